"""From clean text to compressed token files: the slow half of tokenizing, done once, cached and shared.

The work overlaps: one thread reads and splits, an engine encodes (threads here, or a cluster), one thread compresses,
hashes and writes. At most a few parts of PART_BYTES are in memory, and one document, however large the corpus is.
The bytes written depend on nothing but text, tokenizer and parameters: zstd compresses in blocks of its own,
whatever the parts and the number of cores.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import polars as pl
import zstandard

from tokenmill.core import files, shards
from tokenmill.core.errors import UserError
from tokenmill.core.executor import Engine, LocalEngine, ahead
from tokenmill.core.token_file import (
    DTYPE,
    FORMAT_VERSION,
    SPLITS,
    Split,
    SplitMetadata,
    TokenMetadata,
    packed_file,
    write_metadata,
)
from tokenmill.core.tokenizer import read_tokenizer
from tokenmill.display.progress import Progress
from tokenmill.tokens.corpus import SEGMENT_CHARS, Texts, cut, probe, split_texts
from tokenmill.tokens.encoder import Encoder, choose_encoder
from tokenmill.tokens.params import TokenizeParams

PART_BYTES = 8 << 20
"""UTF-8 bytes of text encoded at a time."""


CHECKED_CHARS = 1 << 20
"""Characters of this corpus on which the fast encoder must agree with the reference."""


ENCODING_THREADS = 1
"""Parts encoded at a time on this machine: the encoder itself uses all cores."""


ZSTD_LEVEL = 5
"""English text becomes 29 to 35 % of its .bin, at 160 MB/s in one thread; level 3: 32 to 37 % at 230 MB/s."""


ZSTD_SHORTEST_MATCH = 7
"""Bytes: what agrees in fewer than two tokens is dearer to say than to repeat."""


ZSTD_THREADS = 2
"""Any number above zero gives the same bytes; zero would give others."""


@dataclass(frozen=True)
class Part:
    """Some text of one split: whole documents, or segments of a long one."""

    split: Split
    texts: list[str]
    ends: np.ndarray
    """Whether a document ends with this text; bool, one per text."""
    bytes: int


@dataclass(frozen=True)
class Tokens:
    """A part, encoded, with end-of-text after every document."""

    split: Split
    ids: np.ndarray
    documents: int
    bytes: int


def pack(
    clean: Path,
    tokenizer_file: Path,
    out: Path,
    params: TokenizeParams,
    engine: Engine = LocalEngine(threads=ENCODING_THREADS),  # noqa: B008  (it has no state)
) -> TokenMetadata:
    """Encode the corpus in `clean` into out/train.bin.zst, out/val.bin.zst and out/metadata.json.

    Raises:
        UserError: the tokenizer cannot be used, a character has no token, a split would be empty, or the disk is full.
    """
    tokenizer = read_tokenizer(tokenizer_file)
    sides = split_texts(clean, params)
    encoder = choose_encoder(tokenizer, probe(clean, CHECKED_CHARS))
    if encoder.note:
        print(encoder.note)
    promised = shards.totals(clean)
    encode = partial(encoded, encoder=encoder, eot_id=tokenizer.eot_id)
    packed: list[PackedFile] = []
    with files.enough_room(out, lambda: _size_at(promised.bytes, packed)), files.write_directory(out) as folder:
        packed += (PackedFile(packed_file(folder, split)) for split in SPLITS)
        train, val = _write(packed, engine.map(encode, ahead(parts(sides))), promised.bytes)
        if train.bytes + val.bytes != promised.bytes:
            raise UserError(
                f"{clean} holds {train.bytes + val.bytes:,} bytes of text and promises {promised.bytes:,}; "
                "make it again with `dvc repro -f clean`."
            )
        metadata = TokenMetadata(
            format_version=FORMAT_VERSION,
            dtype=DTYPE,
            train=train,
            val=val,
            vocab_size=tokenizer.vocab_size,
            eot_id=tokenizer.eot_id,
            tokenizer_type=tokenizer.type,
            tokenizer_sha256=tokenizer.sha256,
        )
        write_metadata(folder, metadata)
    return metadata


def summary(packed: Path, metadata: TokenMetadata) -> dict[str, int | float]:
    """Flat numbers for metrics/tokens.json."""
    tokens = metadata.train.tokens + metadata.val.tokens
    documents = metadata.train.documents + metadata.val.documents
    compressed = sum(packed_file(packed, split).stat().st_size for split in SPLITS)
    return {
        "train_tokens": metadata.train.tokens,
        "val_tokens": metadata.val.tokens,
        "train_documents": metadata.train.documents,
        "val_documents": metadata.val.documents,
        "bytes_per_token": round((metadata.train.bytes + metadata.val.bytes) / (tokens - documents), 4),
        "compression_ratio": round(tokens * np.dtype(DTYPE).itemsize / compressed, 3),
    }


def _write(packed: "list[PackedFile]", tokens: Iterable[Tokens], total: int) -> tuple[SplitMetadata, SplitMetadata]:
    """Write the tokens of `total` bytes of text into the files of train and val."""
    train, val = packed
    with train, val, Progress("tokenize", total=total, unit="B") as progress:
        for some in tokens:
            (train if some.split == "train" else val).add(some)
            progress.advance(some.bytes)
        return train.finish(), val.finish()


def _size_at(total: int, packed: Iterable["PackedFile"]) -> int:
    """About how many bytes the packed files will have after `total` bytes of text; before any tokens, that many."""
    so_far = zip((0, 0, 0, 0), *(file.so_far() for file in packed), strict=True)
    text, tokens, compressed, became = (sum(numbers) for numbers in so_far)
    return became * tokens * total // (compressed * text) if compressed and text else total


def parts(sides: Iterable[Texts], size: int = PART_BYTES) -> Iterator[Part]:
    """Cut the corpus into parts of about `size` bytes; texts over SEGMENT_CHARS into segments."""
    for side in sides:
        for some in _slices(side, size):
            yield from _in_segments(some, size) if _has_long(some.texts) else (_whole(some),)


def _slices(side: Texts, size: int) -> Iterator[Texts]:
    """Consecutive slices that begin in different multiples of `size` bytes: over `size` only by one text."""
    split, texts, ends = side
    if texts.is_empty():
        return
    lengths = texts.str.len_bytes().cast(pl.Int64)
    first = np.flatnonzero(np.diff(((lengths.cum_sum() - lengths) // size).to_numpy(), prepend=-1)).tolist()
    for start, end in zip(first, [*first[1:], len(texts)], strict=True):
        yield Texts(split, texts.slice(start, end - start), ends[start:end])


def _has_long(texts: pl.Series) -> bool:
    return bool((texts.str.len_chars() > SEGMENT_CHARS).any())


def _whole(some: Texts) -> Part:
    """All texts as they are."""
    return Part(some.split, some.texts.to_list(), some.ends, int(some.texts.str.len_bytes().sum()))


def _in_segments(some: Texts, size: int) -> Iterator[Part]:
    """Segments of the texts in parts of about `size` bytes."""
    segments: list[str] = []
    ends: list[bool] = []
    count = 0
    for segment, is_end in _flagged(some):
        segments.append(segment)
        ends.append(is_end)
        count += len(segment.encode())
        if count >= size:
            yield Part(some.split, segments, np.array(ends), count)
            segments, ends, count = [], [], 0
    if segments:
        yield Part(some.split, segments, np.array(ends), count)


def _flagged(some: Texts) -> Iterator[tuple[str, bool]]:
    """Every segment of every text, and whether a document ends with it."""
    for text, is_end in zip(some.texts, some.ends.tolist(), strict=True):
        left = len(text)
        for segment in cut(text):
            left -= len(segment)
            yield segment, is_end and left == 0


def encoded(part: Part, *, encoder: Encoder, eot_id: int) -> Tokens:
    """Encode a part and end its documents."""
    ids, offsets = encoder.encode(part.texts)
    ids = with_end_of_text(ids, offsets[1:][part.ends], eot_id)
    return Tokens(part.split, ids, documents=int(part.ends.sum()), bytes=part.bytes)


def with_end_of_text(ids: np.ndarray, ends: np.ndarray, eot_id: int) -> np.ndarray:
    """`ids` with `eot_id` inserted before each position in `ends` (sorted; may repeat).

    Example:
        >>> with_end_of_text(np.array([5, 6, 7]), np.array([2, 3, 3]), eot_id=0).tolist()
        [5, 6, 0, 7, 0, 0]
    """
    return np.insert(ids, ends, eot_id).astype(DTYPE, copy=False)


def compressor(*, threads: int) -> zstandard.ZstdCompressor:
    """What packs tokens: zstd with a checksum."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        ZSTD_LEVEL, min_match=ZSTD_SHORTEST_MATCH, threads=threads, write_checksum=True, write_content_size=False
    )
    return zstandard.ZstdCompressor(compression_params=parameters)


class PackedFile:
    """One .bin.zst on its way to disk, hashed and counted as it goes."""

    def __init__(self, path: Path):
        self._file = path.open("wb")
        self._compressor = compressor(threads=ZSTD_THREADS)
        self._zstd = self._compressor.compressobj()
        self._sha256 = hashlib.sha256()
        self._tokens = self._documents = self._bytes = 0

    def add(self, tokens: Tokens) -> None:
        """Append a part."""
        self._tokens += len(tokens.ids)
        self._documents += tokens.documents
        self._bytes += tokens.bytes
        self._sha256.update(tokens.ids.data)
        self._file.write(self._zstd.compress(tokens.ids.data))

    def so_far(self) -> tuple[int, int, int, int]:
        """Bytes of text, of its tokens, of those that zstd is through with, and of what they became."""
        return self._bytes, *self._compressor.frame_progression()

    def finish(self) -> SplitMetadata:
        """Write what zstd still holds back, and say what the file holds."""
        self._file.write(self._zstd.flush())
        return SplitMetadata(
            tokens=self._tokens, documents=self._documents, bytes=self._bytes, sha256=self._sha256.hexdigest()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
