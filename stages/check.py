"""Stage `check`: every parameter is checked before any other stage begins.

DVC removes the outputs of a stage just before it runs the stage. A wrong value that the stage itself refused would cost
these files. Here it costs nothing: the stages at the beginning depend on this one, and its output never changes.
"""

from tokenmill.core import files, paths


def main() -> None:
    """Write data/checked.txt; what starts a stage has checked params.yaml before."""
    files.write_text(paths.CHECKED, "params.yaml was checked\n")
