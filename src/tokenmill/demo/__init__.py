"""A local web page on which the trained models answer."""
