"""From raw files of any usual kind to one clean table of documents: find, read, clean, filter, write."""
