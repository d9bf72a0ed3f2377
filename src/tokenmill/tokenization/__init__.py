"""From clean text to token files: the tokenizer, the fast encoder, the packed and the unpacked format."""
