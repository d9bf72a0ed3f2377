"""The model and what runs it: architectures, loss, device, validation, files, generation."""
