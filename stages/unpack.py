"""Stage `unpack`: unpack the tokens into files that training reads anywhere."""

from tokenmill.core import paths
from tokenmill.core.params import Section, load
from tokenmill.display import say
from tokenmill.formats.token_file import PlacementParams
from tokenmill.tokens.unpack import unpack


class Params(Section):
    """The section of params.yaml that this stage reads."""

    runtime: PlacementParams


def main() -> None:
    """Write data/tokens."""
    compressed = load(Params).runtime.is_compressed
    metadata = unpack(paths.PACKED, paths.TOKENS, compressed=compressed)
    tokens = metadata.train.tokens + metadata.val.tokens
    size = sum(path.stat().st_size for path in paths.TOKENS.iterdir() if path.suffix != ".json")
    say(f"{tokens:,} tokens, {size / 1e6:,.1f} MB, sizes and hashes as promised")
