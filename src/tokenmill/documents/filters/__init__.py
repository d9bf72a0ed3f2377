"""Optional quality filters and masks of the stage `clean`, over batches of texts; each row by itself."""
