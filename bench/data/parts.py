"""Parts of the pipeline, to set beside the same part of a peer."""

import gzip
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl

from bench.data.corpus import ENCODE, read_texts, size_of
from bench.data.jobs import Facts, Work
from stages.clean import Params
from tokenmill.core import paths
from tokenmill.core.params import load
from tokenmill.data.filters import drop_reasons
from tokenmill.formats.token_blocks import compressor
from tokenmill.formats.token_file import DTYPE, NARROW_DTYPE, token_file
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.tokens.bpe import train_bpe
from tokenmill.tokens.encoder import choose_encoder

TOKEN_BYTES = 32_000_000
"""Of tokens that the compressors get."""

VOCAB_SIZE = 32_000
"""Entries of the vocabulary that trainers learn."""

BATCH_ROWS = 2048
"""Documents in a batch: some 4 MB."""


def encode() -> Work:
    """The encoder of the stage `tokenize`, after its test against `tokenizers`, batches in threads
    as there."""
    texts = read_texts(ENCODE)
    encoder = choose_encoder(read_tokenizer(paths.TOKENIZER), texts[:200])
    size = size_of(ENCODE)
    batches = [texts[start : start + BATCH_ROWS] for start in range(0, len(texts), BATCH_ROWS)]

    def work() -> Facts:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            encoded = sum(pool.map(lambda batch: len(encoder.encode(batch)[0]), batches))
        return {"tokens": encoded, "bytes": size, "engine": encoder.name}

    return work


def learn() -> Work:
    """The trainer of the stage `tokenizer`, its comparison with `tokenizers` included."""
    texts = read_texts(ENCODE)
    size = size_of(ENCODE)

    def work() -> Facts:
        backend, note = train_bpe(lambda: [texts], size, VOCAB_SIZE)
        return {"entries": backend.get_vocab_size(), "bytes": size, "note": note}

    return work


def compress_with_zstd() -> Work:
    """zstd as the stage `tokenize` has it, in one thread."""
    data = tokens()
    ids = np.frombuffer(data, dtype=DTYPE)

    def work() -> Facts:
        packed = compressor(NARROW_DTYPE).compress(ids.astype(NARROW_DTYPE).data)
        return {"bytes": len(data), "share": round(len(packed) / len(data), 4)}

    return work


def compress_with_gzip() -> Work:
    """gzip -6, as one would without zstd."""
    data = tokens()
    return lambda: {
        "bytes": len(data),
        "share": round(len(gzip.compress(data, compresslevel=6)) / len(data), 4),
    }


def tokens() -> bytes:
    """The beginning of the encoded corpus."""
    with token_file(paths.TOKENS, "train").open("rb") as file:
        return file.read(TOKEN_BYTES)


def gopher() -> Work:
    """The repetition and the quality rules of Gopher, batches in threads as the stage `clean` has
    them."""
    filters = load(Params).clean.filters.model_copy(
        update={"gopher_quality": True, "gopher_repetition": True}
    )
    texts = pl.Series(read_texts(ENCODE), dtype=pl.String)
    size = size_of(ENCODE)
    batches = [texts.slice(start, BATCH_ROWS) for start in range(0, len(texts), BATCH_ROWS)]

    def work() -> Facts:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            kept = sum(pool.map(lambda batch: drop_reasons(batch, filters).null_count(), batches))
        return {"bytes": size, "kept": f"{kept} of {len(texts)} documents"}

    return work


JOBS = {
    "learn": learn,
    "encode": encode,
    "zstd": compress_with_zstd,
    "gzip": compress_with_gzip,
    "gopher": gopher,
}
