"""The model and what runs it: architectures, loss, device, validation, the files it is saved in,
generation."""
