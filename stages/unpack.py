"""Stage `unpack`: unpack the tokens into plain files that training can map."""

from tokenmill.core import paths
from tokenmill.display import say
from tokenmill.tokens.unpack import unpack


def main() -> None:
    """Write data/tokens."""
    metadata = unpack(paths.PACKED, paths.TOKENS)
    tokens = metadata.train.tokens + metadata.val.tokens
    size = metadata.train.file_bytes + metadata.val.file_bytes
    say(f"{tokens:,} tokens, {size / 1e6:,.1f} MB, sizes and hashes as promised")
