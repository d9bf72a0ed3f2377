"""Clean text to compressed token files: the slow half of tokenizing, whose output is cached and
shared.

The work overlaps: one thread reads and splits the corpus, the executor encodes (threads here, or a
cluster), and the calling thread compresses, hashes and writes. A few batches of BATCH_BYTES and one
document are in memory, however large the corpus is. The bytes written depend only on text,
tokenizer and parameters, not on batches or the number of cores.
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

from tokenmill.core import files
from tokenmill.core.errors import UserError
from tokenmill.core.paths import way_out
from tokenmill.display import Progress, say
from tokenmill.executor import Executor, ThreadExecutor, prefetch
from tokenmill.formats import shards
from tokenmill.formats.chat_columns import mark_count, text_bytes
from tokenmill.formats.token_file import (
    DTYPE,
    SPLITS,
    TOKEN_FORMAT,
    Split,
    SplitMetadata,
    TokenMetadata,
    packed_file,
    write_metadata,
)
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.tokens import corpus
from tokenmill.tokens.corpus import (
    SplitMethod,
    TextSpan,
    choose_split,
    probe,
    segmented,
    split_corpus,
)
from tokenmill.tokens.encoder import Encoder, choose_encoder
from tokenmill.tokens.params import TokenizeParams

BATCH_BYTES = 8 << 20
"""UTF-8 bytes of text that are encoded at a time."""

CHECKED_CHARS = 1 << 20
"""The number of characters of this corpus on which the fast encoder must agree with the
reference."""

ENCODING_THREADS = 1
"""The number of batches that are encoded at the same time on this machine; the encoder itself uses
all cores."""

ZSTD_LEVEL = 5
"""The compression level of zstd. English text becomes 29 to 35 % of its .bin, at 160 MB/s in one
thread; with level 3, 32 to 37 % at 230 MB/s."""

ZSTD_MIN_MATCH = 7
"""The shortest repetition, in bytes, that zstd refers to. Below two tokens, a reference takes more
room than writing them again."""

ZSTD_THREADS = 2
"""The number of threads of zstd. Any number above zero gives the same bytes; zero gives others."""


def pack(
    clean: Path,
    tokenizer_file: Path,
    out: Path,
    params: TokenizeParams,
    executor: Executor = ThreadExecutor(threads=ENCODING_THREADS),  # noqa: B008  (it has no state)
) -> tuple[TokenMetadata, SplitMethod]:
    """Encode the corpus in `clean` into out/train.bin.zst, out/val.bin.zst and out/metadata.json.

    Returns:
        The metadata, and how the corpus was split.

    Raises:
        UserError: the tokenizer cannot be used, a character has no token, or a split would be
            empty.
    """
    tokenizer = read_tokenizer(tokenizer_file)
    method = choose_split(clean, params)
    spans = split_corpus(clean, method, params.val_fraction)
    encoder = choose_encoder(tokenizer, probe(clean, CHECKED_CHARS))
    if encoder.note:
        say(encoder.note)
    total = shards.totals(clean).bytes
    encode = partial(encode_batch, encoder=encoder, eot_id=tokenizer.eot_id)
    packed: list[PackedFile] = []
    with (
        files.enough_room(out, lambda: _estimate_size(total, packed)),
        files.write_directory(out) as folder,
    ):
        packed += (PackedFile(packed_file(folder, split)) for split in SPLITS)
        train, val = _write(packed, executor.map(encode, prefetch(text_batches(spans))), total)
        if train.bytes + val.bytes != total:
            raise UserError(
                f"{clean} holds {train.bytes + val.bytes:,} bytes of text, but records {total:,}; "
                f"{way_out(clean)}."
            )
        metadata = TokenMetadata(
            format_version=TOKEN_FORMAT,
            dtype=DTYPE,
            train=train,
            val=val,
            vocab_size=tokenizer.vocab_size,
            eot_id=tokenizer.eot_id,
            tokenizer_type=tokenizer.type,
            tokenizer_sha256=tokenizer.sha256,
        )
        write_metadata(folder, metadata)
    return metadata, method


def packed_metrics(packed: Path, metadata: TokenMetadata) -> dict[str, int | float]:
    """The numbers for metrics/tokens.json, in one flat mapping."""
    text_tokens = metadata.train.text_tokens + metadata.val.text_tokens
    compressed = sum(packed_file(packed, split).stat().st_size for split in SPLITS)
    return {
        "train_tokens": metadata.train.tokens,
        "val_tokens": metadata.val.tokens,
        "train_documents": metadata.train.documents,
        "val_documents": metadata.val.documents,
        "bytes_per_token": round(
            (metadata.train.bytes + metadata.val.bytes) / max(1, text_tokens), 4
        ),
        "compression_ratio": round(
            (metadata.train.file_bytes + metadata.val.file_bytes) / compressed, 3
        ),
    }


@dataclass(frozen=True)
class TextBatch:
    """Texts of one split that are encoded together: whole documents, or segments of long ones."""

    split: Split
    texts: pl.Series
    ends: np.ndarray
    """Whether a document ends with each text; bool, one per text."""
    bytes: int
    """UTF-8 bytes of the texts, without the marks of turns."""


@dataclass(frozen=True)
class TokenBatch:
    """An encoded batch, with end-of-text after every document."""

    split: Split
    ids: np.ndarray
    documents: int
    turn_tokens: int
    bytes: int
    """UTF-8 bytes of the batch's text."""


def text_batches(
    spans: Iterable[TextSpan], *, batch_bytes: int = BATCH_BYTES
) -> Iterator[TextBatch]:
    """Divide the corpus into batches. Each begins in another multiple of `batch_bytes`."""
    for split, documents in spans:
        if documents.is_empty():
            continue
        texts, ends = segmented(documents, corpus.SEGMENT_CHARS)
        lengths = texts.str.len_bytes().cast(pl.Int64)
        number = ((lengths.cum_sum() - lengths) // batch_bytes).to_numpy()
        first = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
        for start, end in zip(first, [*first[1:], len(texts)], strict=True):
            some = texts[start:end]
            yield TextBatch(split, some, ends[start:end], text_bytes(some))


def encode_batch(batch: TextBatch, *, encoder: Encoder, eot_id: int) -> TokenBatch:
    """Encode a batch, with end-of-text after each document."""
    ids, offsets = encoder.encode_documents(batch.texts)
    ids = insert_end_of_text(ids, offsets[1:][batch.ends], eot_id)
    return TokenBatch(
        batch.split,
        ids,
        documents=int(batch.ends.sum()),
        turn_tokens=mark_count(batch.texts),
        bytes=batch.bytes,
    )


def insert_end_of_text(ids: np.ndarray, ends: np.ndarray, eot_id: int) -> np.ndarray:
    """`ids` with `eot_id` inserted before each position in `ends` (sorted; may repeat).

    Example:
        >>> insert_end_of_text(np.array([5, 6, 7]), np.array([2, 3, 3]), eot_id=0).tolist()
        [5, 6, 0, 7, 0, 0]
    """
    return np.insert(ids, ends, eot_id).astype(DTYPE, copy=False)


class PackedFile:
    """One .bin.zst that is being written. It counts and hashes what is added."""

    def __init__(self, path: Path):
        self._file = path.open("wb")
        self._compressor = compressor(threads=ZSTD_THREADS)
        self._stream = self._compressor.compressobj()
        self._sha256 = hashlib.sha256()
        self._tokens = self._documents = self._turn_tokens = self._bytes = 0

    def add(self, batch: TokenBatch) -> None:
        """Append a batch."""
        self._tokens += len(batch.ids)
        self._documents += batch.documents
        self._turn_tokens += batch.turn_tokens
        self._bytes += batch.bytes
        self._sha256.update(batch.ids.data)
        self._file.write(self._stream.compress(batch.ids.data))

    def progress(self) -> tuple[int, int, int, int]:
        """The bytes of text added, of its tokens, of the tokens that zstd has compressed, and of
        the compressed output."""
        return self._bytes, *self._compressor.frame_progression()

    def finish(self) -> SplitMetadata:
        """Write what zstd still buffers, and describe the file."""
        self._file.write(self._stream.flush())
        return SplitMetadata(
            tokens=self._tokens,
            documents=self._documents,
            turn_tokens=self._turn_tokens,
            bytes=self._bytes,
            sha256=self._sha256.hexdigest(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def compressor(*, threads: int) -> zstandard.ZstdCompressor:
    """The compressor of token files: zstd with a checksum."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        ZSTD_LEVEL,
        min_match=ZSTD_MIN_MATCH,
        threads=threads,
        write_checksum=True,
        write_content_size=False,
    )
    return zstandard.ZstdCompressor(compression_params=parameters)


def _write(
    packed: list[PackedFile], batches: Iterable[TokenBatch], total: int
) -> tuple[SplitMetadata, SplitMetadata]:
    """Write the batches, made of `total` bytes of text, into the files of train and val."""
    train, val = packed
    with train, val, Progress("tokenize", total) as progress:
        for batch in batches:
            (train if batch.split == "train" else val).add(batch)
            progress.advance(batch.bytes)
        return train.finish(), val.finish()


def _estimate_size(total: int, packed: Iterable[PackedFile]) -> int:
    """Estimate the bytes of the packed files for `total` bytes of text; `total` itself before any
    tokens exist."""
    sums = zip((0, 0, 0, 0), *(file.progress() for file in packed), strict=True)
    text, tokens, compressed, output = (sum(numbers) for numbers in sums)
    return output * tokens * total // (compressed * text) if compressed and text else total
