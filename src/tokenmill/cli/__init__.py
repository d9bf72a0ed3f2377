"""The command line, with one module per command. `run(options)` executes the command,
`add_arguments(parser)` declares its arguments, if it has any, and EXAMPLES shows its use. An error
that a user can cause is a UserError, which `main` prints as one sentence.

Completion and `--help` import these modules, so heavy packages (PyTorch, DVC, pydantic) are
imported in functions only.
"""
