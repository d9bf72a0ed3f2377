"""What stands in the way of a run: checks that look and change nothing, each with the command that mends it."""
