"""How the lines of a document look, by the three rules that FineWeb added (Penedo et al. 2024, section 3.6).

A document is dropped when, in this order,

- at most 0.12 of its lines end in punctuation (`fineweb_punctuation`);
- at least 0.67 of its lines have fewer than 30 characters (`fineweb_short_lines`);
- lines that stood before hold at least 0.10 of its characters (`fineweb_repeated_lines`).

Blank lines are no lines, and line breaks no characters. Made for web pages: verse and chats break these rules.
"""

import numpy as np
import polars as pl

from tokenmill.documents.filters.first import first
from tokenmill.documents.filters.parts import Parts
from tokenmill.documents.filters.repetition import seen_before

MIN_PUNCTUATED = 0.12
MAX_SHORT = 0.67
SHORT_CHARS = 30
MAX_REPEATED_CHARS = 0.10

_PUNCTUATED = r"""[\p{Sentence_Terminal}…"'”’»]$"""


def fineweb_lines(frame: pl.DataFrame) -> pl.Series:
    """Why the lines of a document (column `lines`) are none of running text; null if they may be."""
    lines = Parts.of(frame["lines"])
    n_lines = np.maximum(lines.counts, 1)
    repeated = lines.sums(seen_before(lines.keys) * lines.chars)
    rules = {
        "fineweb_punctuation": lines.sums(lines.text.str.contains(_PUNCTUATED)) / n_lines <= MIN_PUNCTUATED,
        "fineweb_short_lines": lines.sums(lines.chars < SHORT_CHARS) / n_lines >= MAX_SHORT,
        "fineweb_repeated_lines": repeated / np.maximum(lines.sums(lines.chars), 1) >= MAX_REPEATED_CHARS,
    }
    return first({reason: pl.Series(broken) for reason, broken in rules.items()}, len(frame))
