"""Text as it is written: the pieces on stdout, what is said about them on stderr."""

import sys
from collections.abc import Callable

from tokenmill.checkpoints.writer import Stream


def show(stream: Stream, *, said: Callable[[str], None] = lambda _: None) -> None:
    """Print a text while it is written, then how fast that was; `said` gets each piece."""
    tell("\n".join(stream.notes))
    for piece in stream:
        print(piece, end="", flush=True)
        said(piece)
    print(flush=True)
    tell(rate(stream.tokens, stream.seconds))


def rate(tokens: int, seconds: float) -> str:
    """How much was written, and how fast."""
    if not seconds:
        return f"{tokens} tokens"
    return f"{tokens:,} tokens in {seconds:.2f} s, {tokens / seconds:,.0f} tokens/s"


def tell(sentence: str) -> None:
    """A line on stderr, if there is anything to tell."""
    if sentence:
        print(sentence, file=sys.stderr, flush=True)
