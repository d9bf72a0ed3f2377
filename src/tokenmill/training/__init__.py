"""Training: what a step is, the order of sequences, and how a run survives interruptions."""
