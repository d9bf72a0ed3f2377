"""What people see on a terminal or in a log. Nothing here changes a result, so DVC does not track it."""
