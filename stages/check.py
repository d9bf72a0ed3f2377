"""Stage `check`: check every parameter, and that there is text, before any other stage begins.

DVC removes the outputs of a stage just before it runs the stage, so a wrong value that the stage
itself refused would cost these files. Here it costs nothing: the stages at the beginning depend on
this one, and its output never changes.
"""

from tokenmill.core import files, paths
from tokenmill.schema import (
    check_all,
    refuse_missing_text,
    refuse_other_form,
    refuse_wrong_benchmarks,
    refuse_wrong_filters,
    refuse_wrong_prompts,
    with_way_back,
)


def main() -> None:
    """Write data/checked.txt."""
    with with_way_back():
        params = check_all()
        refuse_missing_text(params)
        refuse_wrong_filters(params)
        refuse_wrong_prompts(params)
        refuse_wrong_benchmarks(params)
        refuse_other_form(params)
    files.write_text(paths.CHECKED, "params.yaml was checked\n")
