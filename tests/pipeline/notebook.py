"""Run the code of a notebook as a process, as Jupyter would: Python with lines of shell, `!command
{name}`.

As a program it takes the notebook and the values of its first cell, as JSON. Cells with the tag
`colab` need Colab, and are left out. What a cell displays is printed.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

SHELL = re.compile(r"^( *)!(.*)$", re.MULTILINE)


def code_cells(notebook: Path) -> list[str]:
    """The source of the code cells that run anywhere."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    return [
        "".join(cell["source"]) for cell in code if "colab" not in cell["metadata"].get("tags", [])
    ]


def run(notebook: Path, values: dict[str, Any]) -> None:
    """Run the cells, with these values in place of the first cell's."""
    names: dict[str, Any] = {}

    def shell(command: str) -> None:
        sys.stdout.flush()
        # As in Jupyter
        names["_exit_code"] = subprocess.run(command, shell=True, check=False).returncode  # noqa: S602

    display = ModuleType("IPython.display")
    display.__dict__.update(
        HTML=lambda filename: Path(filename).read_text(encoding="utf-8"), display=print
    )
    sys.modules["IPython.display"] = display
    first, *cells = code_cells(notebook)
    exec(first, names)  # noqa: S102 (our own notebook)
    assert names.keys() - {"__builtins__"} == values.keys()
    names.update(values, shell=shell)
    for cell in cells:
        exec(SHELL.sub(lambda line: f"{line[1]}shell(f{line[2]!r})", cell), names)  # noqa: S102


if __name__ == "__main__":
    run(Path(sys.argv[1]), json.loads(sys.argv[2]))
