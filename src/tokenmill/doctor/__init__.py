"""What could stop a run: checks that look and change nothing, each with the command that fixes what
it finds."""
