"""Clean documents to token files: train the tokenizer, encode, split, compress, unpack."""
