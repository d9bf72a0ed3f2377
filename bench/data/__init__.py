"""TokenMill: data."""
