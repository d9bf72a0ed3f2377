"""Stage `check`: check every parameter, and what it names, before any other stage begins.

DVC removes the outputs of a stage just before it runs the stage, so a wrong value that the stage
itself refused would cost these files. Here it costs nothing: the stages at the beginning depend on
this one, and its output never changes.
"""

from tokenmill.core import files, paths
from tokenmill.schema import check_all, refuse_for_stages, with_way_back


def main() -> None:
    """Write data/checked.txt."""
    with with_way_back():
        refuse_for_stages(check_all())
    files.write_text(paths.CHECKED, "params.yaml was checked\n")
