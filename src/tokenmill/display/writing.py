"""Text as it is written: the pieces on stdout, what is said about them on stderr."""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TextIO

from tokenmill.display.terminal import paint, wrapped


class Stream(Protocol):
    """Text while it is being written."""

    notes: list[str]
    tokens: int
    seconds: float

    def __iter__(self) -> Iterator[str]: ...


def show(stream: Stream, *, said: Callable[[str], None] = lambda _: None) -> None:
    """Print a text while it is written, on a terminal broken between words, then how fast that was.

    `said` gets each piece as it was written.
    """
    tell("\n".join(stream.notes))

    def pieces() -> Iterator[str]:
        for piece in stream:
            said(piece)
            yield piece

    for piece in _fitted(pieces(), sys.stdout):
        print(piece, end="", flush=True)
    print(flush=True)
    tell(rate(stream.tokens, stream.seconds))


def rate(tokens: int, seconds: float) -> str:
    """How much was written, and how fast."""
    if not seconds:
        return f"{tokens} tokens"
    return f"{tokens:,} tokens in {seconds:.2f} s, {tokens / seconds:,.0f} tokens/s"


def tell(sentence: str) -> None:
    """A line on stderr, if there is anything to tell; on a terminal it stands back behind the answers."""
    if sentence:
        print(paint("".join(_fitted([sentence], sys.stderr)), "dim", sys.stderr), file=sys.stderr, flush=True)


def _fitted(pieces: Iterable[str], out: TextIO) -> Iterable[str]:
    """A text as `out` shows it best."""
    return wrapped(pieces, shutil.get_terminal_size().columns) if out.isatty() else pieces
