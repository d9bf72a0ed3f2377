"""What token files promise: metadata.json beside them, checked by everyone who reads them.

No clock, host or path: the same text and parameters give the same file.

Token files as training reads them: mapped, read-only, and refused unless they are what they promise.
"""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tokenmill.core import files
from tokenmill.core.errors import UserError

FORMAT_VERSION = 1


METADATA_FILE = "metadata.json"


DTYPE = "<i4"
"""int32, little-endian, whatever machine wrote it: room for any vocabulary, and what most readers expect."""


TokenizerType: TypeAlias = Literal["bpe", "char"]


Split: TypeAlias = Literal["train", "val"]


SPLITS: tuple[Split, ...] = ("train", "val")


Count = Annotated[int, Field(ge=1)]


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class SplitMetadata(BaseModel):
    """One .bin."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tokens: Count
    """End-of-text included."""
    documents: Count
    """As many as there are end-of-text tokens."""
    bytes: Annotated[int, Field(ge=0)]
    """UTF-8 bytes of the text, end-of-text not counted: what bits per byte are measured by."""
    sha256: Sha256
    """Of the .bin."""


class TokenMetadata(BaseModel):
    """Both .bin files and the tokenizer that made them."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format_version: Literal[1]
    dtype: Literal["<i4"]
    train: SplitMetadata
    val: SplitMetadata
    vocab_size: Count
    eot_id: Annotated[int, Field(ge=0)]
    tokenizer_type: TokenizerType
    tokenizer_sha256: Sha256

    def split(self, name: Split) -> SplitMetadata:
        """The part about `train` or `val`."""
        return self.train if name == "train" else self.val


def packed_file(folder: Path, split: Split) -> Path:
    """Where the compressed tokens of a split are."""
    return folder / f"{split}.bin.zst"


def token_file(folder: Path, split: Split) -> Path:
    """Where the tokens of a split are."""
    return folder / f"{split}.bin"


def write_metadata(folder: Path, metadata: TokenMetadata) -> None:
    """Write metadata.json; do it last, so that a folder that has one is whole."""
    files.write_json(folder / METADATA_FILE, metadata.model_dump())


def read_metadata(folder: Path) -> TokenMetadata:
    """Read metadata.json.

    Raises:
        UserError: it is missing, damaged, or of another format.
    """
    path = folder / METADATA_FILE
    content = files.read_json(path)
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path} has format_version {version!r}, this TokenMill reads {FORMAT_VERSION}; "
            "`dvc repro tokenize unpack` makes it again."
        )
    try:
        return TokenMetadata.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"]))
        raise UserError(
            f"{path}: {name} ({problem['input']!r}) is wrong ({problem['msg']}); "
            "delete the folder and run `dvc repro tokenize unpack`."
        ) from None


__all__ = ["open_tokens", "read_metadata"]


def open_tokens(folder: Path, split: Split, *, verify: bool = False) -> np.memmap:
    """Map the tokens of a split: one row of ids in the dtype of the metadata, documents ended by end-of-text.

    Args:
        folder: what `unpack` wrote, `data/tokens`.
        split: `train` or `val`.
        verify: read the whole file and compare its SHA-256 and its ids with the metadata, not only its size.

    Raises:
        UserError: something is missing or does not match.

    Example:
        >>> tokens = open_tokens(Path("data/tokens"), "train")
        >>> sequence = torch.from_numpy(tokens[start : start + context_length + 1].astype(np.int64))
    """
    metadata = read_metadata(folder)
    path, promised, dtype = token_file(folder, split), metadata.split(split), np.dtype(metadata.dtype)
    if not path.is_file():
        raise UserError(f"{path} is missing; run `dvc repro unpack`.")
    size = path.stat().st_size
    if size != promised.tokens * dtype.itemsize:
        raise _refused(path, f"has {size:,} bytes, not {promised.tokens:,} tokens of {dtype.itemsize} bytes")
    if verify and files.sha256_of(path) != promised.sha256:
        raise _refused(path, "is not the file that metadata.json promises (SHA-256)")
    tokens = np.memmap(path, dtype=dtype, mode="r")
    if verify and not (tokens.min() >= 0 and tokens.max() < metadata.vocab_size):
        raise _refused(path, f"has ids outside 0 … {metadata.vocab_size - 1}")
    return tokens


def _refused(path: Path, what: str) -> UserError:
    return UserError(f"{path} {what}; run `dvc repro -f unpack`.")
