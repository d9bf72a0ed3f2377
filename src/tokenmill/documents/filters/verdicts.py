"""Which documents of a batch are dropped, and why: the filters of `clean.filters` in their order.

A dropped document has one reason, that of the first rule it breaks in the order of REASONS. Cheap rules come first, and
a rule sees only documents that passed those before it. Memory: some 20 to 40 MB a thread, and up to 150 MB while a
document of LONGEST characters is judged.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import polars as pl

from tokenmill.documents.filters import parts
from tokenmill.documents.filters.characters import too_many
from tokenmill.documents.filters.fineweb import fineweb_lines
from tokenmill.documents.filters.language import in_other_language
from tokenmill.documents.filters.quality import gopher_quality
from tokenmill.documents.filters.repetition import repeated_ngrams, repeated_parts
from tokenmill.documents.params import FilterParams

REASONS: dict[str, dict[str, str]] = {
    "max_digit_fraction": {"digits": "too large a part is digits"},
    "max_symbol_fraction": {"symbols": "too large a part is neither letter, digit nor space"},
    "languages": {"language": "not surely in one of the languages asked for"},
    "gopher_quality": {
        "gopher_words": "too few words, or more than 100,000",
        "gopher_word_length": "words of fewer than 3 or more than 10 characters on average",
        "gopher_symbols": "more than one # or ellipsis for ten words",
        "gopher_bullets": "more than 90 % of the lines begin with a bullet",
        "gopher_ellipsis": "more than 30 % of the lines end in an ellipsis",
        "gopher_alphabetic": "fewer than 80 % of the words hold a letter",
        "gopher_stop_words": "too few of the, be, to, of, and, that, have, with",
    },
    "fineweb_lines": {
        "fineweb_punctuation": "too few lines end in punctuation",
        "fineweb_short_lines": "too many short lines",
        "fineweb_repeated_lines": "too much in lines that come again",
    },
    "gopher_repetition": {
        "repeated_paragraphs": "too much in paragraphs that come again",
        "repeated_lines": "too much in lines that come again",
        "top_ngrams": "too much in the most frequent two, three or four words in a row",
        "duplicate_ngrams": "too much in five to ten words in a row that come again",
    },
}
"""The filters in the order in which they are tried; for each, its rules in their order and what they mean."""

SLICE = 1 << 19
"""Bytes of text that are worked on at a time, more only if one document is longer."""
LONGEST = 1 << 22
"""Characters by which a longer document is judged: its first."""

Filter = Callable[[pl.DataFrame], pl.Series]


def looked_for(params: FilterParams) -> dict[str, str]:
    """The reasons for which these parameters drop documents, in their order, and what they mean."""
    return {
        reason: meaning
        for name, rules in REASONS.items()
        if getattr(params, name) not in (None, False)
        for reason, meaning in rules.items()
    }


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
    asked = looked_for(params)
    on = {name: not asked.keys().isdisjoint(rules) for name, rules in REASONS.items()}
    whole: dict[Filter, bool] = {
        partial(too_many, params=params): on["max_digit_fraction"] or on["max_symbol_fraction"],
        partial(in_other_language, params=params): on["languages"],
    }
    divided: dict[Filter, bool] = {
        partial(gopher_quality, params=params): on["gopher_quality"],
        fineweb_lines: on["fineweb_lines"],
        repeated_parts: on["gopher_repetition"],
        repeated_ngrams: on["gopher_repetition"],
    }
    return [rule for rule, is_on in whole.items() if is_on], [rule for rule, is_on in divided.items() if is_on]


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
        frame = frame.with_columns(parts.words(frame["text"]).alias("words"), parts.lines(frame["text"]).alias("lines"))
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
