"""What the tests of this folder are made of."""

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
from typing import Any

import polars as pl
import zstandard

from tokenmill.documents.params import CleanParams

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def parameters(**changes: Any) -> CleanParams:
    values = {
        "mode": "balanced",
        "columns": None,
        "text_file": "file",
        "min_chars": 1,
        "max_chars": None,
        "deduplicate": True,
    }
    return CleanParams.model_validate({**values, **changes})


def parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pl.DataFrame(rows).write_parquet(file)
    return file.getvalue()


def json_lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
