"""A text as characters, ready to train on: the last tenth validates, as nanoGPT's Tiny Shakespeare
does."""

import hashlib
import itertools
from pathlib import Path

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.formats.measured import evenly_spread
from tokenmill.formats.token_file import (
    DTYPE,
    PackedShard,
    Part,
    SourceRun,
    Split,
    TokenMetadata,
    token_file,
    write_metadata,
)

VAL_SHARE = 0.1

PIECE = 1000


def read_text(path: Path | None) -> str:
    """The text at `path`, or the built-in sample's."""
    if path is not None:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--text {path} cannot be read as UTF-8 ({error}).") from None
    # This needs PyYAML; a file does not
    from tokenmill.sample.generator import conversations  # noqa: PLC0415

    exchanges = itertools.chain.from_iterable(conversations(seed=0, count=4000))
    return "".join(f"{question}\n{answer}\n" for question, answer in exchanges)


def numbered(text: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Training ids, validation ids, and the character of each id."""
    characters = sorted(set(text))
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    ids = np.searchsorted([ord(c) for c in characters], points).astype(DTYPE)
    cut = round(len(ids) * (1 - VAL_SHARE))
    return ids[:cut], ids[cut:], characters


def spread(ids: np.ndarray, share: float) -> np.ndarray:
    """A share of the ids: pieces of a thousand, evenly spread over the text."""
    pieces = len(ids) // PIECE
    chosen = evenly_spread(pieces, max(1, round(pieces * share)))
    return ids[: pieces * PIECE].reshape(pieces, PIECE)[chosen].ravel()


def write_tokens(folder: Path, *, train: np.ndarray, val: np.ndarray, vocabulary: int) -> None:
    """A folder as the stage `unpack` leaves it."""
    folder.mkdir(parents=True)
    parts: dict[Split, np.ndarray] = {"train": train, "val": val}
    described = {}
    for split, ids in parts.items():
        content = ids.astype(DTYPE).tobytes()
        token_file(folder, split).write_bytes(content)
        counts = {"tokens": len(ids), "documents": 1, "bytes": len(ids)}
        described[split] = Part(
            **counts,
            turn_tokens=0,
            sha256=hashlib.sha256(content).hexdigest(),
            sources=[SourceRun(source=None, **counts)],
        )
    shard = PackedShard(name="part-00000.zst", size=1, sha256="0" * 64, **described)
    tokenizer = {"eot_id": 0, "tokenizer_type": "char", "tokenizer_sha256": "0" * 64}
    write_metadata(folder, TokenMetadata.of([shard], vocab_size=vocabulary, **tokenizer))
