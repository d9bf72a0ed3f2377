"""What people see: progress, plans, summaries. Nothing here changes a result, so DVC does not track it."""
