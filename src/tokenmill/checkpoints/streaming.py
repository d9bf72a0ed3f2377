"""Text as it comes: whole characters only, up to the words that stop it, without the white space around it."""

import codecs
from collections.abc import Iterable, Iterator

from tokenmill.tokenization.tokenizer import TextTokenizer

PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
"""The bytes that stand for themselves in a byte-level vocabulary (Radford et al. 2019); the others follow U+0100."""


def token_bytes(tokenizer: TextTokenizer) -> list[bytes]:
    """What every id writes, as UTF-8 bytes; those of one character may come from several ids."""
    ids = tokenizer.backend.get_vocab(with_added_tokens=True)
    tokens = sorted(ids, key=ids.__getitem__)
    if tokenizer.type == "char":
        return [token.encode() for token in tokens]
    others = [byte for byte in range(256) if byte not in PRINTABLE]
    byte_of = {chr(byte): byte for byte in PRINTABLE} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
    return [bytes(byte_of[sign] for sign in token) for token in tokens]


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
