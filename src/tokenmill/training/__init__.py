"""Training: what one step is, in which order the sequences come, and how a run survives
interruptions."""
