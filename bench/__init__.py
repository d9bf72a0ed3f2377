"""TokenMill: bench."""
