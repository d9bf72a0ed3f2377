"""Token files as training reads them: mapped, read-only, and refused unless they are what they promise."""

from pathlib import Path

import numpy as np

from tokenmill import files
from tokenmill.errors import UserError
from tokenmill.tokenization.metadata import Split, read_metadata, token_file

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
        >>> window = torch.from_numpy(tokens[start : start + context_length + 1].astype(np.int64))
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
