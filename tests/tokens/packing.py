"""Packing on this machine, and token files without a text."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats.token_blocks import compressed_blocks, write_blocks
from tokenmill.formats.token_file import (
    DTYPE,
    PackedShard,
    Part,
    SourceRun,
    Split,
    TokenMetadata,
    compressed_file,
    packed_dtype,
    read_metadata,
    token_file,
    write_metadata,
)
from tokenmill.formats.tokenizer import TextTokenizer
from tokenmill.tokens import encoder as encoder_module
from tokenmill.tokens import index as index_module
from tokenmill.tokens import pack as pack_module
from tokenmill.tokens.corpus import SplitMethod
from tokenmill.tokens.encoder import Encoder
from tokenmill.tokens.pack import pack
from tokenmill.tokens.params import TokenizeParams
from tokenmill.tokens.unpack import unpack


def pack_here(
    clean: Path,
    tokenizer_file: Path,
    out: Path,
    params: TokenizeParams,
    *,
    results: Path | None = None,
) -> tuple[TokenMetadata, SplitMethod]:
    """Pack in two threads, with a folder of results for each `out`."""
    results = results or results_of(out)
    with ThreadExecutor(threads=2) as executor:
        return pack(clean, tokenizer_file, out, params, executor=executor, results=results)


@contextlib.contextmanager
def encoders_chosen_once() -> Iterator[None]:
    """Inside, packing compares gigatoken with the reference once for each tokenizer: that takes
    most of the time of packing a small text, and tests/tokens/test_encoder.py does it often."""
    with patch.object(pack_module, "choose_encoder", _chosen):
        yield


def _chosen(tokenizer: TextTokenizer, sample: list[str]) -> Encoder:
    key = (encoder_module.build_gigatoken, tokenizer.sha256)
    if key not in _CHOSEN:
        _CHOSEN[key] = encoder_module.choose_encoder(tokenizer, sample)
    return _CHOSEN[key]


_CHOSEN: dict[tuple[Callable[..., Any], str], Encoder] = {}


def results_of(out: Path) -> Path:
    """Where `pack_here` keeps finished shards."""
    return out.parent.with_name(f"{out.parent.name}-{out.name}-results")


def index_here(
    folder: Path,
    clean: Path,
    tokenizer_file: Path,
    split: TokenizeParams,
    *,
    max_tokens: int = 10**9,
    part_bytes: int = index_module.PART_BYTES,
    compressed: bool = False,
) -> Path:
    """Pack, unpack and index a corpus; the tokens lie in `folder`/tokens.

    Returns:
        The folder of the index.
    """
    pack_here(clean, tokenizer_file, folder / "packed", split)
    unpack(folder / "packed", folder / "tokens", compressed=compressed)
    with patch.object(index_module, "PART_BYTES", part_bytes):
        index_module.build_index(
            clean=clean,
            tokens=folder / "tokens",
            tokenizer_file=tokenizer_file,
            out=folder / "index",
            split=split,
            max_tokens=max_tokens,
        )
    return folder / "index"


def part_of(
    ids: np.ndarray, *, documents: int = 1, text_bytes: int = 7, source: str = "a.txt"
) -> Part:
    """The description of these ids."""
    counts = {"tokens": len(ids), "documents": documents, "bytes": text_bytes}
    return Part(
        **counts,
        turn_tokens=0,
        sha256=sha256(ids.astype(DTYPE).tobytes()).hexdigest(),
        sources=[SourceRun(source=source, **counts)],
    )


def shard_of(number: int = 0, **parts: Part) -> PackedShard:
    """A shard of these parts, whose file is nowhere."""
    return PackedShard.model_validate(
        {"name": f"part-{number:05}.zst", "size": 1, "sha256": "0" * 64, **parts}
    )


def write_tokens(
    folder: Path,
    ids: Mapping[Split, np.ndarray],
    bytes_per_token: int = 1,
    sources: tuple[str, str] = ("a.txt", "a.txt"),
    **tokenizer: Any,
) -> None:
    """A folder as `unpack` leaves it, of two shards of these sources."""
    folder.mkdir(parents=True)
    shards = []
    for split, all_of_it in ids.items():
        token_file(folder, split).write_bytes(all_of_it.astype(DTYPE).tobytes())
    for number in range(2):
        parts = {}
        for split, all_of_it in ids.items():
            some = np.array_split(all_of_it, 2)[number]
            size = bytes_per_token * len(some)
            parts[split] = part_of(some, text_bytes=size, source=sources[number])
        shards.append(shard_of(number, **parts))
    facts = {"eot_id": 0, "tokenizer_type": "char", "tokenizer_sha256": "0" * 64} | tokenizer
    write_metadata(folder, TokenMetadata.of(shards, **facts))


def compressed_copy(tokens: Path, folder: Path) -> Path:
    """The same tokens in another folder, as `unpack` leaves them if it shall compress."""
    shutil.copytree(tokens, folder)
    plain = token_file(folder, "train")
    dtype = packed_dtype(read_metadata(folder).vocab_size)
    with compressed_file(folder).open("wb") as file:
        write_blocks(file, compressed_blocks(np.fromfile(plain, DTYPE), dtype))
    plain.unlink()
    return folder
