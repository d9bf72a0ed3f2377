"""The command line, one module per command: `add_arguments(parser)` declares its arguments, `run(options)` does it.

Completion and `--help` import these modules, so they import heavy packages (PyTorch, DVC, pydantic) only inside `run`.
"""
