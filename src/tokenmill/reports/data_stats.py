"""What the stage `clean` says about its work in data/clean_report.json.

The token files counted in one pass: how often each token occurs, how many words, how long the documents.

Read in blocks rather than mapped, so that the memory taken does not grow with the files; 1.2 to 1.7 GB/s.

Numbers that follow from the counts: metrics/data.json, and what the page says beside them.

The report's numbers as tables for `dvc plots`.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, ValidationError, model_validator

from tokenmill.core.errors import UserError
from tokenmill.core.files import read_json, write_text
from tokenmill.core.params import Section
from tokenmill.core.token_file import SPLITS, Split, TokenMetadata, open_tokens, token_file
from tokenmill.core.tokenizer import TextTokenizer, token_bytes
from tokenmill.display.progress import Progress
from tokenmill.reports.page import token_text


class Files(Section):
    """Files below data.raw."""

    read: int
    skipped: dict[str, int]
    """Files of unknown format, by extension."""
    bytes: int
    """Of the files read, as they lie on disk."""


class Documents(Section):
    """Documents, all or of one source."""

    read: int
    kept: int


class Characters(Section):
    """Unicode code points."""

    into: int = Field(alias="in")
    """Of all documents, before cleaning."""
    out: int
    """Of those kept, after cleaning."""


class Lengths(Section):
    """How many documents have how many characters."""

    edges: list[int]
    """Where each bin begins; it ends where the next one begins, the last one nowhere."""
    read: list[int]
    kept: list[int]

    @model_validator(mode="after")
    def _as_many(self) -> "Lengths":
        if not len(self.edges) == len(self.read) == len(self.kept) > 0:
            raise ValueError("edges, read and kept must be of one length")
        return self


class CleanReport(Section):
    """data/clean_report.json."""

    files: Files
    documents: Documents
    characters: Characters
    invalid_utf8: int
    """Documents in which something that is no valid Unicode was replaced."""
    dropped: dict[str, int]
    """Documents by reason; every reason that `clean` knows."""
    meanings: dict[str, str]
    """The reasons in words."""
    examples: dict[str, list[str]]
    """Beginnings of a few dropped documents, by reason."""
    lengths: Lengths
    languages: dict[str, int]
    """Documents by language, of those kept documents that were asked."""
    sources: dict[str, Documents]
    """The largest files."""
    params: dict[str, Any]
    """Of the stage `clean`."""


def read_clean_report(path: Path) -> CleanReport:
    """Read what `clean` wrote.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        return CleanReport.model_validate(read_json(path))
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"]))
        raise UserError(
            f"{path}: {name or 'the file'} is wrong ({problem['msg']}); `dvc repro -f clean` makes it anew."
        ) from None


BLOCK = 1 << 20
"""Tokens read at a time."""


LONGEST = 1 << 20
"""Longer documents count as of this length, in tokens: it bounds the memory."""


BEGINS_WORD, ENDS_WORD = 1, 2
"""Flags of a token: its first byte is not white; after its last byte a word may begin."""


@dataclass(frozen=True)
class TokenCounts:
    """What both splits hold together."""

    by_id: np.ndarray
    """How often each token occurs; int64, one per id, end-of-text too."""
    words: int
    """Runs of bytes without ASCII white space, as `bytes.split` finds them."""
    by_length: np.ndarray
    """How many documents have 0, 1, 2, … tokens, end-of-text not counted; int64, the last one for all longer ones."""


class Counter:
    """Counts blocks of ids that follow each other; a split ends with end-of-text, so the next one just goes on."""

    def __init__(self, vocabulary: Sequence[bytes], eot_id: int) -> None:
        self._eot_id = eot_id
        begins = [token[:1].strip() != b"" for token in vocabulary]
        ends = [number == eot_id or token[-1:].isspace() for number, token in enumerate(vocabulary)]
        self._flags = np.array(begins) * np.uint8(BEGINS_WORD) | np.array(ends) * np.uint8(ENDS_WORD)
        self._words_inside = np.array([len(t.split()) for t in vocabulary], dtype=np.int64) - np.array(begins)
        self._by_id = np.zeros(len(vocabulary), dtype=np.int64)
        self._by_length = np.zeros(1, dtype=np.int64)
        self._boundaries = 0
        self._last = ENDS_WORD
        self._open = 0

    def add(self, ids: np.ndarray) -> None:
        """Count a block that follows the last one; not empty."""
        self._by_id += np.bincount(ids, minlength=len(self._by_id))
        flags = self._flags.take(ids)
        before = np.concatenate(([np.uint8(self._last)], flags[:-1]))
        self._boundaries += int(np.count_nonzero(flags & (before >> 1) & BEGINS_WORD))
        self._last = flags[-1]
        ends = np.flatnonzero(ids == self._eot_id)
        if len(ends):
            lengths = np.diff(ends, prepend=-1) - 1
            lengths[0] += self._open
            found = np.bincount(np.minimum(lengths, LONGEST))
            room = max(len(found), len(self._by_length))
            self._by_length = _padded(self._by_length, room) + _padded(found, room)
            self._open = -int(ends[-1]) - 1
        self._open += len(ids)

    def finish(self) -> TokenCounts:
        """What was counted."""
        words = self._boundaries + int(self._by_id @ self._words_inside)
        return TokenCounts(self._by_id, words, self._by_length)


def _padded(counts: np.ndarray, room: int) -> np.ndarray:
    return np.pad(counts, (0, room - len(counts)))


def count_tokens(folder: Path, metadata: TokenMetadata, tokenizer: TextTokenizer) -> TokenCounts:
    """Count what `unpack` wrote.

    Args:
        folder: data/tokens.
        metadata: its metadata.json.
        tokenizer: that of data/tokenizer.

    Raises:
        UserError: the files are not as promised, or another tokenizer made them.
    """
    if metadata.tokenizer_sha256 != tokenizer.sha256:
        raise UserError(
            f"{folder} was made by another tokenizer (sha256 {metadata.tokenizer_sha256[:12]}) than the present one "
            f"({tokenizer.sha256[:12]}); run `dvc repro unpack`."
        )
    counter = Counter(token_bytes(tokenizer), tokenizer.eot_id)
    total = sum(metadata.split(split).tokens for split in SPLITS) * np.dtype(metadata.dtype).itemsize
    with Progress("describe", total=total, unit="B") as progress:
        for split in SPLITS:
            for ids in blocks(folder, split):
                counter.add(ids)
                progress.advance(ids.nbytes)
    return counter.finish()


def blocks(folder: Path, split: Split) -> Iterator[np.ndarray]:
    """The ids of a split, BLOCK at a time."""
    dtype = open_tokens(folder, split).dtype
    with token_file(folder, split).open("rb") as file:
        while len(ids := np.fromfile(file, dtype=dtype, count=BLOCK)):
            yield ids


RARE = 10
"""A token that occurs less often is rare: a model will hardly learn what it means."""


@dataclass(frozen=True)
class Measures:
    """Clean documents and their tokens, measured; both splits together, end-of-text not counted as a token."""

    clean: CleanReport
    counts: TokenCounts
    metadata: TokenMetadata

    @cached_property
    def by_id(self) -> np.ndarray:
        """How often each token occurs; end-of-text never."""
        counts = self.counts.by_id.copy()
        counts[self.metadata.eot_id] = 0
        return counts

    @cached_property
    def tokens(self) -> int:
        """Tokens of text."""
        return int(self.by_id.sum())

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the text."""
        return self.metadata.train.bytes + self.metadata.val.bytes

    @property
    def bytes_per_token(self) -> float:
        """UTF-8 bytes that a token spells on the average."""
        return self.bytes / max(1, self.tokens)

    @property
    def tokens_per_word(self) -> float:
        """Tokens that a word takes on the average; white space is counted with its neighbour."""
        return self.tokens / max(1, self.counts.words)

    @property
    def unused(self) -> int:
        """Entries of the vocabulary that never occur, end-of-text aside."""
        return int(np.count_nonzero(self.by_id == 0)) - 1

    @property
    def rare(self) -> int:
        """Entries that occur, but less than RARE times."""
        return int(np.count_nonzero((self.by_id > 0) & (self.by_id < RARE)))

    @property
    def used_share(self) -> float:
        """The share of the vocabulary, end-of-text aside, that occurs."""
        entries = len(self.by_id) - 1
        return 1 - self.unused / max(1, entries)

    @cached_property
    def entropy(self) -> float:
        """Of a token drawn at random, in bits."""
        shares = self.by_id[self.by_id > 0] / max(1, self.tokens)
        return float(-(shares * np.log2(shares)).sum())

    @property
    def unigram_bits_per_byte(self) -> float:
        """What a model that knew only how frequent each token is would reach: what training has to beat."""
        return self.entropy / max(1e-9, self.bytes_per_token)

    def length_at(self, share: float) -> int:
        """The length in tokens that this share of the documents does not exceed (nearest rank)."""
        ranks = np.cumsum(self.counts.by_length)
        return int(np.searchsorted(ranks, max(1, np.ceil(share * ranks[-1]))))

    def metrics(self) -> dict[str, int | float]:
        """metrics/data.json: what the metrics of the stages before do not have."""
        read, kept = self.clean.documents.read, self.clean.documents.kept
        return {
            "raw_bytes": self.clean.files.bytes,
            "kept_share": _short(kept / max(1, read)),
            "words": self.counts.words,
            "tokens_per_word": _short(self.tokens_per_word),
            "characters_per_token": _short(self.clean.characters.out / max(1, self.tokens)),
            "document_tokens_p10": self.length_at(0.1),
            "document_tokens_median": self.length_at(0.5),
            "document_tokens_p90": self.length_at(0.9),
            "document_tokens_max": self.length_at(1),
            "vocabulary_used": _short(self.used_share),
            "vocabulary_rare": self.rare,
            "unigram_entropy_bits": _short(self.entropy),
            "unigram_bits_per_byte": _short(self.unigram_bits_per_byte),
            **{f"sampled_language_{name}": count for name, count in self.clean.languages.items()},
        }


def _short(value: float) -> float:
    """Five significant digits: what a person and a plot need."""
    return float(f"{value:.5g}")


FREQUENT = 30
"""Tokens in frequent_tokens.csv."""


def write_tables(folder: Path, measures: Measures, vocabulary: Sequence[bytes]) -> None:
    """Write document_lengths.csv, dropped.csv, frequent_tokens.csv and languages.csv."""
    clean = measures.clean
    lengths = zip(clean.lengths.edges, clean.lengths.read, clean.lengths.kept, strict=True)
    _write(
        folder / "document_lengths.csv",
        ("log2_characters", "read", "kept"),
        ((edge.bit_length() - 1, read, kept) for edge, read, kept in lengths if edge),
    )
    _write(folder / "dropped.csv", ("reason", "documents"), _falling(clean.dropped))
    order = np.argsort(-measures.by_id, kind="stable")[:FREQUENT]
    _write(
        folder / "frequent_tokens.csv",
        ("token", "occurrences"),
        ((token_text(vocabulary[token_id]), int(measures.by_id[token_id])) for token_id in order),
    )
    _write(folder / "languages.csv", ("language", "documents"), _falling(clean.languages))


def _falling(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The largest count first."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(head)
    table.writerows(rows)
    write_text(path, text.getvalue())
