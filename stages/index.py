"""Stage `index`: make the index by which phrases are found in the training text."""

from tokenmill.core import paths
from tokenmill.core.params import Section, load
from tokenmill.display import say
from tokenmill.tokens.index import build_index
from tokenmill.tokens.params import TokenizeParams, TraceParams


class Params(Section):
    """The sections that this stage reads."""

    tokenize: TokenizeParams
    trace: TraceParams


def main() -> None:
    """Write data/index."""
    params = load(Params)
    index = build_index(
        clean=paths.CLEAN,
        tokens=paths.TOKENS,
        tokenizer_file=paths.TOKENIZER,
        out=paths.INDEX,
        split=params.tokenize,
        max_tokens=params.trace.max_tokens,
    )
    if index.parts:
        places = sum(part.places for part in index.parts)
        say(f"{index.tokens:,} tokens, a suffix array of {places:,} places where words begin")
    else:
        say(
            f"{index.tokens:,} tokens are more than trace.max_tokens "
            f"({params.trace.max_tokens:,}): no index is made"
        )
