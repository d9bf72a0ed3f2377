"""The stages of the pipeline, one module each; `python -m stages NAME` runs one."""

import sys

if sys.argv[0] == "-m":  # so it is only while Python looks for the module that it was told to run
    if not sys.flags.safe_path:
        # The project's folder, where a random.py would be imported instead of Python's own; this
        # package is found already, and `stages/__main__.py` adds the library
        del sys.path[0]
    for name in (argument.removeprefix("-m") for argument in sys.orig_argv):
        if name.startswith("stages.") and name != "stages.__main__":
            sys.exit(
                f"error: a stage runs as `python -m stages {name.removeprefix('stages.')}`, with "
                "a space."
            )
