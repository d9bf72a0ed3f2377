"""A small project whose data was prepared by the real functions, with hostile text wherever a page
could show it."""

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import xxhash

from tests.imports import ROOT
from tests.shards import write_shards
from tests.tokens.packing import pack_here
from tokenmill.core.files import write_json
from tokenmill.tokens.corpus import SPLIT_IN_WORDS
from tokenmill.tokens.pack import packed_metrics
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer
from tokenmill.tokens.unpack import unpack

HOSTILE = "<script>alert('x')</script> & </blockquote><img src=http://e.example/x> \u202e\x00\r\n\t"
DOCUMENTS = [
    f"Line {i} of the {word}:\n  it's <b>{i * 37 % 101}</b> & {word}!\t{HOSTILE}"
    + " again" * (i % 9)
    for i, word in enumerate(
        ["river", "Müller", "naïve café", "你好 世界", "🙂 face", "x\u00a0y", "</script>"] * 20
    )
]

SOURCES = ["<i>web/1.txt"] * 40 + ["<i>web/2.txt"] * 40 + ["z.txt"] * (len(DOCUMENTS) - 80)
"""The file of each document."""

REPORT: dict[str, Any] = {
    "files": {"read": 3, "skipped": {".<i>pdf": 2}, "held_out": 5, "bytes": 123_456},
    "documents": {"read": 200, "kept": 140},
    "characters": {"in": 20_000, "out": 15_000},
    "letters": {"read": 1000, "taken": 20},
    "invalid_utf8": 1,
    "encodings": {"cp1251": 2},
    "encoded": {"<i>.txt": "cp1251"},
    "dropped": {
        "empty": 3,
        "too_short": 0,
        "duplicate": 20,
        "near_duplicate": 30,
        "gopher_words": 6,
        "<b>": 1,
    },
    "meanings": {"duplicate": "the same <i>cleaned</i> text came before"},
    "examples": {
        "duplicate": [
            {"text": text, "source": "<i>a.txt"} for text in (HOSTILE, "x" * 400, "short")
        ],
        "empty": [{"text": "", "source": "empty<u>.txt"}],
    },
    "lengths": {"edges": [1, 2, 4, 8, 16], "read": [0, 3, 100, 97, 0], "kept": [0, 0, 70, 70, 0]},
    "languages": {"en": 100, "de": 30, "<hr>": 10},
    "sources": {f"part-{i}<u>.jsonl": {"read": 20, "kept": 14 - i} for i in range(12)},
    "other_sources": {"files": 376, "read": 400, "kept": 390},
    "held_out": [f"test-{i}<s>.jsonl" for i in range(5)],
    "params": {"data": {"raw": "data/raw/<b>"}, "clean": {"mode": "strict"}},
}
"""As `clean` writes it."""


def prepare(folder: Path, *, type_: str = "bpe") -> Path:
    """Everything that the stage `data_report` reads, in `folder`."""
    data = folder / "data"
    metrics = folder / "metrics"
    tokenizer = folder / "data/tokenizer/tokenizer.json"
    (data / "clean").mkdir(parents=True)
    ids = pl.Series(
        [xxhash.xxh3_64_intdigest(text.encode()) for text in DOCUMENTS], dtype=pl.UInt64
    )
    write_shards(
        data / "clean",
        [pl.DataFrame({"text": DOCUMENTS, "source": SOURCES, "id": ids})],
    )
    params = TokenizerParams.model_validate(
        {"type": type_, "vocab_size": 400, "sample_bytes": 10**6}
    )
    report = train_tokenizer(data / "clean", tokenizer, params)
    write_json(metrics / "tokenizer.json", report.__dict__)
    tokenize = TokenizeParams(split="hash", val_fraction=0.2)
    metadata, _ = pack_here(data / "clean", tokenizer, data / "packed", tokenize)
    settings = tokenize.model_dump() | {"split_by": SPLIT_IN_WORDS["hash"]}
    write_json(metrics / "tokens.json", packed_metrics(metadata) | settings)
    unpack(data / "packed", data / "tokens")
    write_json(data / "clean_report.json", REPORT)
    shutil.copyfile(ROOT / "params.yaml", folder / "params.yaml")
    return folder
