"""Numbers that follow from the counts: metrics/data.json, and what the page says beside them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokenmill.describe.clean_report import CleanReport
from tokenmill.describe.tokens import TokenCounts
from tokenmill.tokenization.metadata import TokenMetadata

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
