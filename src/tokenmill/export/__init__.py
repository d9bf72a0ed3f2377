"""A trained model in the form that other tools load: files of a format, with tokenizer and card."""
