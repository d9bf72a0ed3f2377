"""Find what could stop a run, and say what state a project is in and what to type next. The checks
change nothing, and each names the command that fixes what it finds."""
