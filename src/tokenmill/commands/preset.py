"""`tokenmill preset NAME`: the difference first, then params.yaml."""

import difflib
import sys
from pathlib import Path
from typing import TextIO

from tokenmill.core.files import write_text
from tokenmill.core.params import PARAMS_FILE, validate
from tokenmill.display.terminal import Colour, paint
from tokenmill.planning.presets import Changed, put_into, read
from tokenmill.schema import AllParams

COLOURS: dict[str, Colour] = {"+": "green", "-": "red", "@": "dim"}


def put(name: str, *, yes: bool, out: TextIO, path: Path = PARAMS_FILE) -> None:
    """Show on `out` what the preset changes in params.yaml; write it where that is wished.

    Raises:
        UserError: params.yaml cannot be read, or something in it stays wrong with the preset's values.
    """
    changed = put_into(path, read(name))
    validate(AllParams, changed.content, path)
    if changed.after == changed.before:
        print(f"{path} has the values of {name} already", file=out)
        return
    print(_difference(changed, name, path, out), file=out)
    if yes or _wished(path, out):
        write_text(path, changed.after)
        print(f"{path} is written; `tokenmill plan` says what it takes, `dvc repro` does it", file=out)


def _difference(changed: Changed, name: str, path: Path, out: TextIO) -> str:
    lines = difflib.unified_diff(
        changed.before.splitlines(),
        changed.after.splitlines(),
        fromfile=str(path),
        tofile=f"{path} ({name})",
        lineterm="",
        n=1,
    )
    return "\n".join(paint(line, COLOURS[line[0]], out) if line[0] in COLOURS else line for line in lines)


def _wished(path: Path, out: TextIO) -> bool:
    """Ask; where nobody can answer, say how to wish it."""
    if not (sys.stdin.isatty() and out.isatty()):
        print(f"{path} is as it was; --yes writes it", file=out)
        return False
    try:
        answer = input(f"write {path}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        return True
    print(f"{path} is as it was", file=out)
    return False
