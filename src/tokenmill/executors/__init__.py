"""Run functions in threads of this process, or on a Ray cluster."""
