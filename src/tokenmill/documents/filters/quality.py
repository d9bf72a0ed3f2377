"""What running text looks like, by the rules of Gopher (Rae et al. 2021, appendix A.1.1), for English.

A document is dropped when, in this order,

- it has fewer than 50 words or more than 100,000 (`gopher_words`; the 50 is a parameter);
- its words have fewer than 3 or more than 10 characters on average (`gopher_word_length`);
- there is more than 0.1 `#`, or more than 0.1 ellipsis, to a word (`gopher_symbols`);
- more than 0.9 of its lines begin with a bullet (`gopher_bullets`);
- more than 0.3 of its lines end in an ellipsis (`gopher_ellipsis`);
- fewer than 0.8 of its words hold a letter (`gopher_alphabetic`);
- it holds fewer than 2 of the, be, to, of, and, that, have, with (`gopher_stop_words`; the 2 is a parameter).

As in datatrove, runs of symbols are words in the ratios, but not in the number and length of words. Unlike there, blank
lines are no lines, `*` followed by a space is a bullet too (cleaning writes one for `•`), and so is `-` only then.
"""

import numpy as np
import polars as pl

from tokenmill.documents.filters.first import first
from tokenmill.documents.filters.parts import SPOKEN, Parts
from tokenmill.documents.params import FilterParams

MAX_WORDS = 100_000
MEAN_WORD_CHARS = (3, 10)
MAX_SYMBOLS_TO_WORDS = 0.1
MAX_BULLET_LINES = 0.9
MAX_ELLIPSIS_LINES = 0.3
MIN_ALPHABETIC_WORDS = 0.8
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")

_ELLIPSES = ["...", "…"]
_BULLET = r"^\s*(?:[•‣◦●▪∙]|[*-] )"


def gopher_quality(frame: pl.DataFrame, params: FilterParams) -> pl.Series:
    """Why a document (columns `text`, `words`, `lines`) is no running text; null if it may be."""
    texts, words, lines = frame["text"], Parts.of(frame["words"]), Parts.of(frame["lines"])
    speaks = words.text.str.contains(SPOKEN)
    n_words = np.maximum(words.counts, 1)
    n_speaking = words.sums(speaks)
    n_lines = np.maximum(lines.counts, 1)
    mean_chars = words.sums(speaks.to_numpy() * words.chars) / np.maximum(n_speaking, 1)
    hashes = texts.str.count_matches("#", literal=True).to_numpy()
    ellipses = sum(texts.str.count_matches(sign, literal=True).to_numpy() for sign in _ELLIPSES)
    ends = lines.text.str.strip_chars_end()
    trailing = ends.str.ends_with(_ELLIPSES[0]) | ends.str.ends_with(_ELLIPSES[1])
    stop_words = sum(texts.str.contains(rf"\b{word}\b").cast(pl.Int64).to_numpy() for word in STOP_WORDS)
    rules = {
        "gopher_words": (n_speaking < params.gopher_min_words) | (n_speaking > MAX_WORDS),
        "gopher_word_length": (mean_chars < MEAN_WORD_CHARS[0]) | (mean_chars > MEAN_WORD_CHARS[1]),
        "gopher_symbols": np.maximum(hashes, ellipses) / n_words > MAX_SYMBOLS_TO_WORDS,
        "gopher_bullets": lines.sums(lines.text.str.contains(_BULLET)) / n_lines > MAX_BULLET_LINES,
        "gopher_ellipsis": lines.sums(trailing) / n_lines > MAX_ELLIPSIS_LINES,
        "gopher_alphabetic": words.sums(words.text.str.contains(r"\p{L}")) / n_words < MIN_ALPHABETIC_WORDS,
        "gopher_stop_words": stop_words < params.gopher_stop_words,
    }
    return first({reason: pl.Series(broken) for reason, broken in rules.items()}, len(frame))
