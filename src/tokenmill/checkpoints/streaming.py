"""Text as it comes: whole characters only, up to the words that stop it, without the white space around it."""

import codecs
from collections.abc import Iterable, Iterator


def decoded(parts: Iterable[bytes]) -> Iterator[str]:
    """UTF-8 as text, a piece as soon as its characters are whole; what never becomes one is U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for part in parts:
        if piece := decoder.decode(part):
            yield piece
    if piece := decoder.decode(b"", final=True):
        yield piece


def until(pieces: Iterable[str], stop: str) -> Iterator[str]:
    """The pieces up to the first `stop`; what may be its beginning is held back."""
    held = ""
    for piece in pieces:
        held += piece
        if stop in held:
            held = held[: held.index(stop)]
            break
        kept = next((n for n in range(min(len(stop) - 1, len(held)), 0, -1) if stop.startswith(held[-n:])), 0)
        whole, held = held[: len(held) - kept], held[len(held) - kept :]
        if whole:
            yield whole
    if held:
        yield held


def stripped(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces without the white space at the beginning and the end of all."""
    held, begun = "", False
    for piece in pieces:
        held += piece
        whole = held.rstrip() if begun else held.strip()
        if whole:
            held = held[len(held.rstrip()) :]
            begun = True
            yield whole
