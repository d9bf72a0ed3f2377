"""What finished and unfinished runs leave behind: find a model, let it write, compare runs, import
a model as a start, export one."""
