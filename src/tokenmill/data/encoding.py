"""Bytes of unknown encoding as UTF-8, with a mark where they are damaged.

`encoding_of` decides once for a whole file. Each reader of a part of the file asks it where the
bytes stop being plain ASCII, so that neither chunks nor compression change a character. `decide`
states the rule.

Bytes that cannot be decoded become DAMAGE, a code point that Unicode reserves for internal use.
Only `without_damage` turns it into U+FFFD. There a text is one document, so damaged documents can
be counted.
"""

import codecs
import functools
import itertools
import re
import threading
from collections.abc import Iterable, Iterator
from functools import partial

from tokenmill.core.errors import UserError
from tokenmill.data.detection import (
    OPENINGS,
    REPLACEMENT,
    SNIFFED_BYTES,
    byte_order,
    decide,
    is_plain,
    without_mark,
)
from tokenmill.data.report import Tally
from tokenmill.data.sources import Advance, Source, blocks, opened, refuse_archive

DAMAGE = "\ufdd0"
"""The character that stands for bytes that could not be decoded."""


def decode(data: bytes) -> str:
    """Decode UTF-8, with DAMAGE for each invalid sequence (divided as by Python's "replace")."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", damage_handler())


def without_damage(texts: Iterable[str], tally: Tally) -> Iterator[str]:
    """Replace DAMAGE by U+FFFD in texts. Texts that have any are counted in `tally`."""
    for text in texts:
        tally.invalid_utf8 += DAMAGE in text
        yield text.replace(DAMAGE, REPLACEMENT)


def damage_handler() -> str:
    """Register the codec error handler that writes DAMAGE, and return its name; codecs know
    handlers only by name."""

    def replace(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        return DAMAGE, error.end

    codecs.register_error("tokenmill.damage", replace)
    return "tokenmill.damage"


def read_utf8(source: Source, tally: Tally, advance: Advance = lambda _: None) -> Iterator[bytes]:
    """The content of a file as UTF-8 without byte-order mark. An encoding other than UTF-8 is noted
    in the tally."""
    return utf8(blocks(source, advance), source, tally)


def utf8(
    blocks: Iterable[bytes], source: Source, tally: Tally, *, first: bool = True
) -> Iterator[bytes]:
    """The blocks of a file as UTF-8 without byte-order mark.

    Plain ASCII passes unchanged, because it means the same in every encoding that `decide` may
    find.

    Args:
        blocks: the file from its beginning, or from a later line.
        source: the file. It is read again to decide on its encoding if no encoding is named and a
            block is not plain ASCII.
        tally: notes the file's encoding if it is not UTF-8.
        first: whether the blocks begin the file, so that a byte-order mark may come.
    """
    stream = iter(blocks)
    encoding = source.encoding
    if first:
        by_mark, stream = without_mark(stream)
        encoding = by_mark or encoding
    while encoding == "auto" and (block := next(stream, None)) is not None:
        if is_plain(block):
            yield block
        else:
            is_whole = first and source.compression is None and len(block) == source.size
            encoding = decide(partial(list, [block])) if is_whole else encoding_of(source)
            stream = itertools.chain([block], stream)
    if encoding in ("auto", "utf-8"):
        yield from stream
        return
    tally.encodings[source.name] = encoding
    decoder = codecs.getincrementaldecoder(encoding)(damage_handler())
    decoder.decode(OPENINGS.get(encoding, b""))
    try:
        for block in stream:
            yield decoder.decode(block).encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as error:
        other = "utf-8" if source.encoding == "auto" else "auto"
        raise UserError(
            f"{source.place} cannot be read as {encoding} ({error}); set data.encoding to its "
            f"own encoding, as utf-16-le, or to {other}."
        ) from None


def has_plain_lines(source: Source) -> bool:
    """Whether the lines of an uncompressed file can be decoded one by one, because each byte that
    looks like a line break is one.

    This holds for UTF-8, for LEGACY, and for ESCAPES, where a line of JSON begins in ASCII. For
    other encodings that the user may name it is unknown.
    """
    if source.encoding not in ("auto", "utf-8"):
        return False
    with opened(source) as file:
        head = file.read(SNIFFED_BYTES)
    refuse_archive(source, head)
    return byte_order(head)[1] in ("", "utf-8")


def mark_bytes(source: Source) -> int:
    """The bytes of an uncompressed file's byte-order mark."""
    with opened(source) as file:
        return len(byte_order(file.read(SNIFFED_BYTES))[0])


def encoding_of(source: Source) -> str:
    """The encoding that `decide` finds for a file. A process reads the file for it once, even if
    several chunks ask at the same time."""
    with _deciding(source):
        return _decided(source)


@functools.lru_cache(maxsize=1024)
def _deciding(_source: Source) -> threading.Lock:
    return threading.Lock()


@functools.lru_cache(maxsize=1024)
def _decided(source: Source) -> str:
    return decide(partial(blocks, source))


_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""Matches a JSON escape: a surrogate pair, a lone surrogate (the group), or any other."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def decode_json(data: bytes) -> str:
    """Decode JSON in UTF-8, with DAMAGE also for escapes of lone surrogates, which strict parsers
    refuse."""
    if _SURROGATE.search(data):
        data = _ESCAPE.sub(lambda match: rb"\ufdd0" if match[1] else match[0], data)
    return decode(data)
