"""What the tests of this folder are made of."""

import bz2
import gzip
import io
import itertools
import json
import lzma
from collections.abc import Callable
from typing import Any

import polars as pl
import zstandard

from tokenmill.data.chunks import Chunk, Read
from tokenmill.data.filters import FilterParams
from tokenmill.data.params import CleanParams
from tokenmill.data.report import Tally

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


NEAR_DUPLICATES = {"enabled": False, "threshold": 0.8, "permutations": 128, "ngram": 5}


def parameters(**changes: Any) -> CleanParams:
    values = {
        "mode": "balanced",
        "columns": None,
        "text_file": "file",
        "drop_boilerplate": False,
        "mask": [],
        "filters": filters(),
        "min_chars": 1,
        "max_chars": None,
        "deduplicate": True,
        "near_duplicates": NEAR_DUPLICATES,
    }
    return CleanParams.model_validate({**values, **changes})


def filters(**changes: Any) -> FilterParams:
    values = {
        "max_digit_fraction": None,
        "max_symbol_fraction": None,
        "languages": None,
        "min_language_confidence": 0.65,
        "gopher_quality": False,
        "gopher_min_words": 50,
        "gopher_stop_words": 2,
        "gopher_repetition": False,
        "fineweb_lines": False,
    }
    return FilterParams.model_validate({**values, **changes})


def read_whole(chunk: Chunk, params: CleanParams, tally: Tally) -> list[tuple[str, str]]:
    """The texts of a chunk, and of what is left of it, with their files."""
    found = []
    read: Read | None = chunk.read
    while read:
        texts, names, read = read(params, tally)
        found += zip(texts, names, strict=True)
    return found


def parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pl.DataFrame(rows).write_parquet(file)
    return file.getvalue()


def json_lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def in_blocks(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data in blocks that end at the given places."""
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]
