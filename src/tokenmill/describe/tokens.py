"""The token files counted in one pass: how often each token occurs, how many words, how long the documents.

Read in blocks rather than mapped, so that the memory taken does not grow with the files; 1.2 to 1.7 GB/s.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenmill.display.progress import Progress
from tokenmill.errors import UserError
from tokenmill.tokenization.metadata import SPLITS, Split, TokenMetadata, token_file
from tokenmill.tokenization.token_file import open_tokens
from tokenmill.tokenization.tokenizer import TextTokenizer
from tokenmill.tokenization.vocabulary import token_bytes

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
