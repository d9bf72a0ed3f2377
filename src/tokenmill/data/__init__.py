"""Raw text to clean documents: find, decode, split, normalize, filter, deduplicate, count."""
