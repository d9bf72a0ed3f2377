"""The trained models there are, wherever they lie, and text written by one of them."""
