"""Stage `unpack`: the packed tokens as plain files that training can map."""

import numpy as np

from tokenmill.core import paths
from tokenmill.tokens.pack import unpack


def main() -> None:
    """Write data/tokens."""
    metadata = unpack(paths.PACKED, paths.TOKENS)
    tokens = metadata.train.tokens + metadata.val.tokens
    size = tokens * np.dtype(metadata.dtype).itemsize
    print(f"{tokens:,} tokens, {size / 1e6:,.1f} MB, sizes and hashes as promised")
