"""What people see of a running stage: progress and plans. Nothing here changes a result, so DVC does not track it."""
