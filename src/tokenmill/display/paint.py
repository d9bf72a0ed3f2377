"""Colours on a terminal, and nowhere else."""

import os
from typing import Literal, TextIO

CODES = {"red": "31", "green": "32", "yellow": "33", "dim": "2"}
Colour = Literal["red", "green", "yellow", "dim"]


def paint(text: str, colour: Colour, out: TextIO) -> str:
    """`text` in a colour, if `out` is a terminal that should have any (https://no-color.org)."""
    plain = not out.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return text if plain else f"\033[{CODES[colour]}m{text}\033[0m"
