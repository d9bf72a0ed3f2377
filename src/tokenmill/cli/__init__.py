"""The command line, one module per command: `run(options)` does it, `add_arguments(parser)`
declares its arguments, if it has any, and EXAMPLES shows it. What a user can cause is a UserError,
which `main` prints as one sentence.

Completion and `--help` import these modules, so heavy packages (PyTorch, DVC, pydantic) are
imported in functions only.
"""
