"""The counts of `clean`: the tallies of chunks, which are added up in their order, and the
report."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tokenmill.core.errors import UserError
from tokenmill.data.params import CleanParams
from tokenmill.data.sources import Found
from tokenmill.formats.chat import readable
from tokenmill.formats.chat_columns import as_lines
from tokenmill.formats.metrics import (
    Characters,
    CleanReport,
    Documents,
    Example,
    Files,
    Lengths,
    Letters,
    Others,
)
from tokenmill.formats.raw_text import Raw
from tokenmill.languages import detect_languages

EXAMPLES = 3
"""The number of dropped documents that are shown for each reason."""

EXCERPT = 400
"""The number of characters that are shown of each dropped document."""

SOURCES = 50
"""The most files that the report lists: the largest ones, the first ones that are not UTF-8, and
the first ones that are held out."""

LANGUAGE_SAMPLE = 128
"""The language of this many documents of a shard is detected, or of one in this many if those are
more. The choice depends on the shard's text alone."""


@dataclass
class Tally:
    """The counts so far. The tallies of all chunks add up to the tally of the whole."""

    read: Counter[str] = field(default_factory=Counter)
    """The number of documents found, by file."""
    kept: Counter[str] = field(default_factory=Counter)
    """The number of documents kept, by file."""
    dropped: Counter[str] = field(default_factory=Counter)
    """The number of documents dropped, by reason."""
    examples: dict[str, list[Example]] = field(default_factory=dict)
    """The first dropped documents, by reason."""
    lengths_read: Counter[int] = field(default_factory=Counter)
    """The number of documents found, by the binary digits of their length in characters."""
    lengths_kept: Counter[int] = field(default_factory=Counter)
    """The number of documents kept, by the binary digits of their length after cleaning."""
    languages: Counter[str] = field(default_factory=Counter)
    """The number of documents kept, by language, in the samples of the shards."""
    encodings: dict[str, str] = field(default_factory=dict)
    """The encoding of each file that is not UTF-8."""
    refusals: dict[str, str] = field(default_factory=dict)
    """The reason to refuse a file if no document is found in it, by file."""
    unread: Counter[str] = field(default_factory=Counter)
    """How often something was left out of a conversation, by its name."""
    letters: int = 0
    letters_taken: int = 0
    """The number of letters that the mode's alphabet has no spelling for, counted only where there
    may be any."""
    characters_in: int = 0
    characters_out: int = 0
    invalid_utf8: int = 0

    def add_read(self, texts: pl.Series, sources: pl.Series) -> None:
        """Count documents as they are found. Marks of turns do not count as characters."""
        chars = as_lines(texts).str.len_chars()
        self.characters_in += int(chars.sum())
        self.lengths_read.update(_binary_digits(chars))
        self.read.update(_occurrences(sources))

    def add_letters(self, texts: pl.Series, lost: str) -> None:
        """Count the letters, and those that match the pattern `lost`."""
        self.letters += int(texts.str.count_matches(r"\p{L}").sum())
        self.letters_taken += int(texts.str.count_matches(lost).sum())

    def add_kept(self, documents: pl.DataFrame) -> None:
        """Count the documents of a shard."""
        texts = as_lines(documents["text"])
        chars = texts.str.len_chars()
        self.characters_out += int(chars.sum())
        self.lengths_kept.update(_binary_digits(chars))
        self.kept.update(_occurrences(documents["source"]))
        size = max(LANGUAGE_SAMPLE, len(texts) // LANGUAGE_SAMPLE)
        sample = texts.gather(documents["id"].arg_sort().head(size))
        self.languages.update(detect_languages(sample)["language"].to_list())

    def drop(self, reason: str, text: str) -> None:
        """Count a record that is no document; `text` is an example of it."""
        self.drop_some(reason, [Example(text=readable(text[:EXCERPT]), source="")], count=1)

    def examples_wanted(self, reason: str) -> int:
        """The number of examples that are still shown for a reason."""
        return EXAMPLES - len(self.examples.get(reason, []))

    def drop_all(self, reasons: pl.Series, texts: pl.Series, sources: pl.Series) -> None:
        """Count the documents of `texts` for which `reasons` has a reason, in their order."""
        for reason in reasons.drop_nulls().unique(maintain_order=True):
            dropped = texts.filter(reasons == reason)
            examples = examples_of(dropped, sources.filter(reasons == reason))
            self.drop_some(reason, examples, count=len(dropped))

    def drop_some(self, reason: str, examples: Sequence[Example], *, count: int) -> None:
        """Count dropped documents, of which `examples` are the first ones."""
        self.dropped[reason] += count
        shown = self.examples.setdefault(reason, [])
        shown += examples[: EXAMPLES - len(shown)]

    def refuse_unread(self) -> None:
        """Refuse a file in which no document is found, if there is a reason to.

        Raises:
            UserError: there is one.
        """
        for name, refusal in self.refusals.items():
            if not self.read[name]:
                raise UserError(refusal)

    def merge(self, other: "Tally") -> None:
        """Add the counts of the next chunk."""
        for name in ("read", "kept", "lengths_read", "lengths_kept", "languages", "unread"):
            getattr(self, name).update(getattr(other, name))
        self.encodings.update(other.encodings)
        self.refusals.update(other.refusals)
        for reason, count in other.dropped.items():
            self.drop_some(reason, other.examples[reason], count=count)
        for name in ("letters", "letters_taken", "characters_in", "characters_out", "invalid_utf8"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def examples_of(texts: pl.Series, sources: pl.Series) -> list[Example]:
    """The first of these documents, as examples."""
    first = zip(texts.head(EXAMPLES), sources.head(EXAMPLES), strict=True)
    return [Example(text=readable(text[:EXCERPT]), source=name) for text, name in first]


def _occurrences(names: pl.Series) -> dict[str, int]:
    return dict(zip(names.unique(maintain_order=True), names.unique_counts(), strict=True))


def _binary_digits(numbers: pl.Series) -> list[int]:
    return np.frexp(numbers.to_numpy().astype(np.float64))[1].tolist()


def report_on(
    tally: Tally, found: Found, raw: Raw, params: CleanParams, encoding: str
) -> CleanReport:
    """Make the report about what the stage `clean` read, kept and dropped."""
    bins = range(1 + max(tally.lengths_read | tally.lengths_kept, default=0))
    largest = sorted(found.sources, key=lambda source: (-source.size, source.name))[:SOURCES]
    read, kept = tally.read, tally.kept
    listed = {one.name: Documents(read=read[one.name], kept=kept[one.name]) for one in largest}
    reasons = meanings(params)
    return CleanReport(
        files=Files(
            read=len(found.sources),
            skipped=found.skipped,
            held_out=len(found.held_out),
            bytes=sum(source.size for source in found.sources),
        ),
        documents=Documents(read=kept.total() + tally.dropped.total(), kept=kept.total()),
        characters=Characters.model_validate(
            {"in": tally.characters_in, "out": tally.characters_out}
        ),
        letters=Letters(read=tally.letters, taken=tally.letters_taken)
        if params.mode == "strict"
        else None,
        invalid_utf8=tally.invalid_utf8,
        encodings=dict(Counter(tally.encodings.values()).most_common()),
        encoded=dict(sorted(tally.encodings.items())[:SOURCES]),
        dropped={reason: tally.dropped[reason] for reason in reasons},
        meanings=reasons,
        examples={
            reason: tally.examples[reason] for reason in reasons if tally.examples.get(reason)
        },
        lengths=Lengths(
            edges=[2**n // 2 for n in bins],
            read=[tally.lengths_read[n] for n in bins],
            kept=[tally.lengths_kept[n] for n in bins],
        ),
        languages=dict(sorted(tally.languages.items())),
        unread=dict(sorted(tally.unread.items())),
        sources=listed,
        other_sources=Others(
            files=len(found.sources) - len(listed),
            read=read.total() - sum(one.read for one in listed.values()),
            kept=kept.total() - sum(one.kept for one in listed.values()),
        ),
        held_out=[source.name for source in found.held_out[:SOURCES]],
        params={
            "data": {"raw": raw.as_posix(), "encoding": encoding},
            "clean": params.model_dump(mode="json"),
        },
    )


def meanings(params: CleanParams) -> dict[str, str]:
    """The meaning of each reason to drop a document under these parameters, in the order of the
    tests.

    A document counts under the first reason that applies.
    """
    found = {
        "invalid_record": "a line that is no JSON, a row with more fields than the header",
        "no_text": "a record of no known shape, or with a cell of more than 32 MiB",
        "empty": "nothing is left of it, or a conversation without an answer",
        "too_short": f"fewer than {params.min_chars:,} characters",
        "too_long": "more than clean.max_chars characters, which is off"
        if params.max_chars is None
        else f"more than {params.max_chars:,} characters",
        **{
            reason: meaning
            for one in params.filters.enabled()
            for reason, meaning in one.reasons.items()
        },
        "duplicate": "the same cleaned text came before",
    }
    if params.near_duplicates.enabled:
        found["near_duplicate"] = "nearly the same text came before"
    return found
