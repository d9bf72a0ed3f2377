"""Token files: one .bin of token ids per split, described by a metadata.json beside them.

The metadata holds no clock, host or path: the same text and parameters give the same file. Readers
refuse a .bin that does not match it.
"""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field

from tokenmill.core import files
from tokenmill.core.errors import UserError
from tokenmill.core.params import Section
from tokenmill.core.paths import way_out
from tokenmill.formats.records import read_record

METADATA_FILE = "metadata.json"

TOKEN_FORMAT: Literal[2] = 2
"""The version of the format. It is raised when the same text and tokenizer would give other ids or
files. Readers refuse every other version."""

DTYPE = "<i4"
"""The type of the ids: int32, little-endian on every machine. It is large enough for any
vocabulary, and most readers expect it."""

TokenizerType: TypeAlias = Literal["bpe", "char"]
Split: TypeAlias = Literal["train", "val"]
SPLITS: tuple[Split, ...] = ("train", "val")

Count = Annotated[int, Field(ge=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class SplitMetadata(Section):
    """The description of one .bin in metadata.json."""

    tokens: Count
    """The number of tokens, special tokens included."""
    documents: Count
    """The number of documents. Each ends with one end-of-text token."""
    turn_tokens: Annotated[int, Field(ge=0)]
    """The number of special tokens at the boundaries of turns in conversations."""
    bytes: Annotated[int, Field(ge=0)]
    """UTF-8 bytes of the text, by which the loss is divided for bits per byte. Special tokens add
    to the loss but not to the bytes, because a boundary is no text: how a document spells it is
    this project's own affair."""
    sha256: Sha256
    """The SHA-256 of the .bin."""

    @property
    def text_tokens(self) -> int:
        """The number of tokens without special ones."""
        return self.tokens - self.documents - self.turn_tokens

    @property
    def file_bytes(self) -> int:
        """The size of the .bin in bytes."""
        return self.tokens * np.dtype(DTYPE).itemsize


class TokenMetadata(Section):
    """The content of metadata.json: both .bin files and the tokenizer that made them."""

    format_version: Literal[2]
    dtype: Literal["<i4"]
    train: SplitMetadata
    val: SplitMetadata
    vocab_size: Count
    eot_id: Annotated[int, Field(ge=0)]
    tokenizer_type: TokenizerType
    tokenizer_sha256: Sha256

    def split(self, name: Split) -> SplitMetadata:
        """The metadata of `train` or `val`."""
        return self.train if name == "train" else self.val


def too_short(train_tokens: int, context_length: int) -> str | None:
    """An error message if there are too few tokens to train on for one sequence of this length;
    otherwise None."""
    if train_tokens > context_length:
        return None
    return (
        f"model.context_length ({context_length}) does not fit the train split, which has "
        f"{train_tokens:,} tokens; take a shorter context, more text, or another "
        "tokenize.val_fraction."
    )


def packed_file(folder: Path, split: Split) -> Path:
    """The path of a split's compressed tokens."""
    return folder / f"{split}.bin.zst"


def token_file(folder: Path, split: Split) -> Path:
    """The path of a split's tokens."""
    return folder / f"{split}.bin"


def write_metadata(folder: Path, metadata: TokenMetadata) -> None:
    """Write metadata.json; call it last, so that a folder with a metadata.json is complete."""
    files.write_json(folder / METADATA_FILE, metadata.model_dump())


def read_metadata(folder: Path) -> TokenMetadata:
    """Read metadata.json."""
    return read_record(folder / METADATA_FILE, TokenMetadata)


def open_tokens(folder: Path, split: Split) -> np.memmap:
    """Map the tokens of a split, read-only: one row of ids, each document followed by end-of-text.

    The whole file is read once and compared with the metadata: size, SHA-256 and ids (a second for
    a gigabyte).

    Args:
        folder: what `unpack` wrote, `data/tokens`.
        split: `train` or `val`.

    Example:
        >>> tokens = open_tokens(Path("data/tokens"), "train")
        >>> sequence = torch.from_numpy(tokens[start : start + context_length + 1].astype(np.int64))
    """
    metadata = read_metadata(folder)
    path = token_file(folder, split)
    expected = metadata.split(split)
    if not path.is_file():
        raise UserError(f"{path} is missing; run `dvc repro unpack`.")
    size = path.stat().st_size
    if size != expected.file_bytes:
        raise _mismatch(path, f"has {size:,} bytes, not {expected.tokens:,} tokens of 4 bytes")
    if files.sha256_of(path) != expected.sha256:
        raise _mismatch(path, "does not match the SHA-256 in metadata.json")
    tokens = np.memmap(path, dtype=DTYPE, mode="r")
    if not (tokens.min() >= 0 and tokens.max() < metadata.vocab_size):
        raise _mismatch(path, f"has ids outside 0 … {metadata.vocab_size - 1}")
    return tokens


def _mismatch(path: Path, what: str) -> UserError:
    return UserError(f"{path} {what}; {way_out(path)}.")
