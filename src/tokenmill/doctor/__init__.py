"""Find what could stop a run. The checks change nothing, and each names the command that fixes what
it finds."""
