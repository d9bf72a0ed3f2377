"""TokenMill: training."""
