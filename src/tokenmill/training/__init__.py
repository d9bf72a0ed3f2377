"""Training: what a step is, in which order the tokens come, and how a run survives anything."""
