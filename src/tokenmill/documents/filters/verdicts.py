"""Which documents of a batch are dropped, and why: the filters of `clean.filters` in their order.

A dropped document has one reason, that of the first rule it breaks in the order of REASONS. Cheap rules come first, and
a rule sees only documents that passed those before it. Memory: some 20 to 40 MB a thread, and up to 150 MB while a
document of LONGEST characters is judged.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import polars as pl

from tokenmill.documents.filters import pieces
from tokenmill.documents.filters.characters import too_many
from tokenmill.documents.filters.fineweb import fineweb_lines
from tokenmill.documents.filters.language import in_other_language
from tokenmill.documents.filters.quality import gopher_quality
from tokenmill.documents.filters.repetition import repeated_ngrams, repeated_parts
from tokenmill.documents.params import FilterParams

REASONS = (
    "digits",
    "symbols",
    "language",
    "gopher_words",
    "gopher_word_length",
    "gopher_symbols",
    "gopher_bullets",
    "gopher_ellipsis",
    "gopher_alphabetic",
    "gopher_stop_words",
    "fineweb_punctuation",
    "fineweb_short_lines",
    "fineweb_repeated_lines",
    "repeated_paragraphs",
    "repeated_lines",
    "top_ngrams",
    "duplicate_ngrams",
)
"""All reasons, in the order in which the rules are tried."""

SLICE = 1 << 19
"""Bytes of text that are worked on at a time, more only if one document is longer."""
LONGEST = 1 << 22
"""Characters by which a longer document is judged: its first."""

Filter = Callable[[pl.DataFrame], pl.Series]


def reasons(texts: pl.Series, params: FilterParams) -> pl.Series:
    """Why each text (String, no nulls) is dropped: one of REASONS, or null where it passes all filters that are on.

    Raises:
        UserError: params.languages holds an unknown code.
    """
    whole, divided = _filters(params)
    if not whole and not divided:
        return pl.repeat(None, len(texts), dtype=pl.String, eager=True)
    return pl.concat([texts.clear(), *(_judged(part, whole, divided) for part in _slices(texts))])


def _filters(params: FilterParams) -> tuple[list[Filter], list[Filter]]:
    """The filters that are on: those of the whole text, and those that need its words and lines."""
    whole: dict[Filter, bool] = {
        partial(too_many, params=params): params.max_digit_fraction is not None
        or params.max_symbol_fraction is not None,
        partial(in_other_language, params=params): params.languages is not None,
    }
    divided: dict[Filter, bool] = {
        partial(gopher_quality, params=params): params.gopher_quality,
        fineweb_lines: params.fineweb_lines,
        repeated_parts: params.gopher_repetition,
        repeated_ngrams: params.gopher_repetition,
    }
    return [rule for rule, on in whole.items() if on], [rule for rule, on in divided.items() if on]


def _slices(texts: pl.Series) -> Iterator[pl.Series]:
    """The texts in turn, as many at a time as fill SLICE bytes."""
    number = np.cumsum(texts.str.len_bytes().to_numpy(), dtype=np.int64) // SLICE
    bounds = np.flatnonzero(np.diff(number, prepend=-1, append=-1))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield texts[begin:end]


def _judged(texts: pl.Series, whole: list[Filter], divided: list[Filter]) -> pl.Series:
    frame = pl.DataFrame({"text": texts.str.head(LONGEST)}).with_row_index("row")
    verdicts = [pl.DataFrame(schema={"row": frame.schema["row"], "reason": pl.String})]
    frame = _sifted(frame, whole, verdicts)
    if divided:
        frame = frame.with_columns(
            pieces.words(frame["text"]).alias("words"), pieces.lines(frame["text"]).alias("lines")
        )
        _sifted(frame, divided, verdicts)
    dropped = pl.concat(verdicts)
    found = np.full(len(texts), None, dtype=object)
    found[dropped["row"].to_numpy()] = dropped["reason"].to_list()
    return pl.Series(found.tolist(), dtype=pl.String)


def _sifted(frame: pl.DataFrame, filters: list[Filter], verdicts: list[pl.DataFrame]) -> pl.DataFrame:
    """The rows that pass; those that do not are added to `verdicts`."""
    for judge in filters:
        reason = judge(frame)
        verdicts.append(frame.select("row", reason=reason).drop_nulls())
        frame = frame.filter(reason.is_null())
    return frame
