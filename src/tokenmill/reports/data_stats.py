"""Statistics of the prepared data: one pass over the token files, the figures that follow from it,
metrics and tables for DVC."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from tokenmill.core import paths
from tokenmill.core.files import write_text
from tokenmill.formats.metrics import CleanReport
from tokenmill.formats.records import csv_line, rounded
from tokenmill.formats.token_file import SourceRun, Split, TokenMetadata, read_metadata
from tokenmill.formats.token_row import open_tokens, read_blocks
from tokenmill.formats.tokenizer import TextTokenizer, token_bytes
from tokenmill.progress import Progress
from tokenmill.reports.page import token_text

RARE = 10
"""The number of occurrences below which a token is rare: a model will hardly learn what it
means."""

FREQUENT = 30
"""The number of rows of frequent_tokens.csv."""


@dataclass(frozen=True)
class TokenCounts:
    """The counts of a split, or of both together."""

    by_id: np.ndarray
    """The occurrences of each token, end-of-text included; int64, one per id."""
    words: int
    """The number of runs of bytes without ASCII white space, as `bytes.split` finds them."""
    lengths: Mapping[int, int]
    """The number of documents of each length in tokens, not counting end-of-text."""

    def __add__(self, other: "TokenCounts") -> "TokenCounts":
        """The counts of two splits together."""
        lengths = Counter(self.lengths) + Counter(other.lengths)
        return TokenCounts(self.by_id + other.by_id, self.words + other.words, lengths)


def count_tokens(
    blocks: Iterable[np.ndarray], vocabulary: Sequence[bytes], eot_id: int, *, measured: int
) -> TokenCounts:
    """Count consecutive blocks of documents, each followed by end-of-text. A document, or a word,
    may go on in the next block; no block is empty. Of the first `measured` documents the lengths
    count."""
    starts = np.array([token[:1].strip() != b"" for token in vocabulary])
    ends = np.array([token == b"" or token[-1:].isspace() for token in vocabulary])
    inside = np.array([len(token.split()) for token in vocabulary]) - starts
    by_id = np.zeros(len(vocabulary), dtype=np.int64)
    words = 0  # those that begin with a token
    has_ended = True  # the word before
    lengths = Counter[int]()
    last_end = -1  # of a document, counted from the beginning of the block
    for ids in blocks:
        by_id += np.bincount(ids, minlength=len(vocabulary))
        ended = np.append(has_ended, ends.take(ids))
        words += int(np.count_nonzero(starts.take(ids) & ended[:-1]))
        has_ended = ended[-1]
        document_ends = np.flatnonzero(ids == eot_id)
        found = np.diff(document_ends, prepend=last_end)[: measured - lengths.total()] - 1
        lengths.update(Counter(found.tolist()))
        last_end = (document_ends[-1] if len(document_ends) else last_end) - len(ids)
    return TokenCounts(by_id, words + int(by_id @ inside), lengths)


def read_stats(folder: Path, tokenizer: TextTokenizer, clean: CleanReport) -> "DataStats":
    """Count the tokens in the files that `unpack` wrote.

    Args:
        folder: data/tokens.
        tokenizer: the one in data/tokenizer.
        clean: data/clean_report.json.

    Raises:
        UserError: the files do not match their metadata, or another tokenizer made them.
    """
    metadata = read_metadata(folder)
    metadata.check_tokenizer(tokenizer.sha256, str(paths.TOKENIZER))
    vocabulary = token_bytes(tokenizer)
    train, val = metadata.train, metadata.val
    is_divided = train.documents + val.documents > clean.documents.kept
    with Progress("data report", train.file_bytes + val.file_bytes) as progress:
        count = partial(count_tokens, vocabulary=vocabulary, eot_id=tokenizer.eot_id)
        of_train = count(_blocks(folder, "train", progress), measured=train.documents)
        of_val = count(
            _blocks(folder, "val", progress), measured=0 if is_divided else val.documents
        )
    return DataStats(clean, of_train + of_val, of_val.by_id, metadata, vocabulary, is_divided)


def _blocks(folder: Path, split: Split, progress: Progress) -> Iterator[np.ndarray]:
    """The ids of a split."""
    for ids in read_blocks(open_tokens(folder, split)):
        yield ids
        progress.advance(ids.nbytes)


@dataclass(frozen=True)
class DataStats:
    """Figures of the clean documents and their tokens: both splits together, special tokens not
    counted."""

    clean: CleanReport
    counts: TokenCounts
    validation: np.ndarray
    """The occurrences of each token in the validation text, special tokens included."""
    metadata: TokenMetadata
    vocabulary: Sequence[bytes]
    """The bytes of every token. Special tokens have none."""
    is_divided: bool = False
    """Whether documents are divided between the splits. Then lengths are those of the parts to
    train on."""

    @cached_property
    def sources(self) -> list[SourceRun]:
        """The sources of the training text, the largest first; none if they are not told apart."""
        found = self.metadata.sources("train")
        named = [source for source in found if source.source is not None]
        return sorted(named, key=lambda source: (-source.tokens, source.source))

    @cached_property
    def occurrences(self) -> np.ndarray:
        """The occurrences of each token; 0 for special tokens."""
        return np.where([token != b"" for token in self.vocabulary], self.counts.by_id, 0)

    @cached_property
    def ranking(self) -> np.ndarray:
        """The ids of all tokens, the most frequent first."""
        return np.argsort(-self.occurrences, kind="stable")

    @cached_property
    def tokens(self) -> int:
        """The number of tokens of text."""
        return int(self.occurrences.sum())

    def coverage(self, count: int) -> float:
        """The fraction of the text's tokens that are one of the `count` most frequent ones."""
        return float(self.occurrences[self.ranking[:count]].sum()) / max(1, self.tokens)

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the text."""
        return self.metadata.train.bytes + self.metadata.val.bytes

    @property
    def characters(self) -> int:
        """Unicode characters of the text: the bytes that begin one in UTF-8."""
        begun = [sum(byte & 0xC0 != 0x80 for byte in token) for token in self.vocabulary]
        return int(self.occurrences @ np.array(begun))

    @property
    def characters_per_token(self) -> float:
        """Mean length of a token in Unicode characters."""
        return self.characters / max(1, self.tokens)

    @property
    def bytes_per_token(self) -> float:
        """Mean length of a token in UTF-8 bytes."""
        return self.bytes / max(1, self.tokens)

    @property
    def tokens_per_word(self) -> float:
        """The mean number of tokens in a word (fertility), with the white space beside it."""
        return self.tokens / max(1, self.counts.words)

    @cached_property
    def unused_ids(self) -> list[int]:
        """The ids of tokens that never occur, without special ones."""
        return [i for i in np.flatnonzero(self.occurrences == 0).tolist() if self.vocabulary[i]]

    @property
    def entries(self) -> int:
        """The number of tokens in the vocabulary, without special ones."""
        return sum(token != b"" for token in self.vocabulary)

    @property
    def rare_tokens(self) -> int:
        """The number of tokens that occur, but fewer than RARE times."""
        return int(np.count_nonzero((self.occurrences > 0) & (self.occurrences < RARE)))

    @property
    def used_fraction(self) -> float:
        """The fraction of the vocabulary that occurs, special tokens left out."""
        return 1 - len(self.unused_ids) / max(1, self.entries)

    @cached_property
    def entropy(self) -> float:
        """Shannon entropy of the distribution of tokens of text, in bits."""
        shares = self.occurrences[self.occurrences > 0] / max(1, self.tokens)
        return float(-(shares * np.log2(shares)).sum())

    @property
    def uniform_entropy(self) -> float:
        """The entropy of a token of text, in bits, if all were equally frequent."""
        return float(np.log2(max(1, self.entries)))

    @property
    def unigram_bits_per_byte(self) -> float:
        """Bits per byte of the validation text for a model that knows only how often each token
        occurs in the training text; the baseline for training.

        Each token has once more than it occurs, so that none is impossible (Laplace). As in the
        model's bits per byte, the special tokens of ends and turns count.
        """
        known = self.counts.by_id - self.validation + 1
        bits = np.log2(known.sum()) - np.log2(known)
        return float(self.validation @ bits) / max(1, self.metadata.val.bytes)

    def length_quantile(self, fraction: float) -> int:
        """The length in tokens that this fraction of documents does not exceed (nearest rank)."""
        lengths = sorted(self.counts.lengths)
        ranks = np.cumsum([self.counts.lengths[length] for length in lengths])
        return lengths[np.searchsorted(ranks, max(1, np.ceil(fraction * ranks[-1])))]

    def metrics(self) -> dict[str, int | float]:
        """The numbers for metrics/data.json, without those in the metrics of the stages before."""
        documents = self.clean.documents
        return {
            "raw_bytes": self.clean.files.bytes,
            "kept_share": rounded(documents.kept / max(1, documents.read)),
            "words": self.counts.words,
            "tokens_per_word": rounded(self.tokens_per_word),
            "characters_per_token": rounded(self.characters_per_token),
            "document_tokens_p10": self.length_quantile(0.1),
            "document_tokens_median": self.length_quantile(0.5),
            "document_tokens_p90": self.length_quantile(0.9),
            "document_tokens_max": self.length_quantile(1),
            "vocabulary_used": rounded(self.used_fraction),
            "vocabulary_rare": self.rare_tokens,
            "unigram_entropy_bits": rounded(self.entropy),
            "unigram_bits_per_byte": rounded(self.unigram_bits_per_byte),
            **{f"sampled_language_{name}": count for name, count in self.clean.languages.items()},
        }


def write_tables(folder: Path, stats: DataStats) -> None:
    """Write the tables of lengths, drops, tokens, languages and sources for `dvc plots`."""
    lengths = stats.clean.lengths
    bins = zip(lengths.edges, lengths.read, lengths.kept, strict=True)
    frequent = stats.ranking[:FREQUENT]
    tables = {
        "document_lengths": (
            "log2_characters,read,kept",
            ((edge.bit_length() - 1, read, kept) for edge, read, kept in bins if edge),
        ),
        "dropped": ("reason,documents", _largest_first(stats.clean.dropped)),
        "frequent_tokens": (
            "token,occurrences",
            ((token_text(stats.vocabulary[i]), stats.occurrences[i]) for i in frequent),
        ),
        "languages": ("language,documents", _largest_first(stats.clean.languages)),
        "sources": (
            "source,documents,tokens,bytes",
            (source.model_dump().values() for source in stats.sources),
        ),
    }
    for name, (head, rows) in tables.items():
        write_text(folder / f"{name}.csv", f"{head}\n{''.join(map(csv_line, rows))}")


def _largest_first(documents: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(documents.items(), key=lambda item: (-item[1], item[0]))
