"""Epochs and experiments beside each other, in the terminal and as reports/compare.html."""

from collections.abc import Sequence
from pathlib import Path

from tokenmill.compare.comparison import Comparison
from tokenmill.compare.page import render_page
from tokenmill.compare.runs import find_epochs
from tokenmill.compare.terminal import render
from tokenmill.core.files import write_text

PAGE = Path("reports/compare.html")


def compare(root: Path, names: Sequence[str], *, width: int, colours: bool) -> str:
    """What to print; writes the page, too.

    Raises:
        UserError: a name stands for nothing, or what it stands for is out of reach.
    """
    comparison = Comparison(find_epochs(root, names))
    write_text(root / PAGE, render_page(comparison))
    return f"{render(comparison, width=width, colours=colours)}\n\nas a page: {root / PAGE}"
