"""Bytes of unknown encoding as UTF-8, with a mark where they are damaged.

UTF-16 and UTF-32 are recognised by their byte-order mark. Bytes that cannot be decoded become DAMAGE, a code point that
Unicode reserves for internal use. Only `replace_damage` turns it into U+FFFD: there a text is one document, so that
damaged documents can be counted exactly.
"""

import codecs
import re
from collections.abc import Iterable, Iterator

from tokenmill.core.errors import UserError

DAMAGE = "\ufdd0"
"""Stands for bytes that could not be decoded."""

REPLACEMENT = "\ufffd"

SNIFFED_BYTES = 4096
"""Bytes at the start of a file that are searched for UTF-16 without a byte-order mark."""

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode(data: bytes) -> str:
    """UTF-8 as text, with DAMAGE for each invalid sequence (divided as by Python's "replace")."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", damage_handler())


def replace_damage(text: str) -> tuple[str, bool]:
    """`text` with U+FFFD for DAMAGE, and whether there was any."""
    if DAMAGE in text:
        return text.replace(DAMAGE, REPLACEMENT), True
    return text, False


def damage_handler() -> str:
    """The name of the codec error handler that writes DAMAGE. (Codecs know handlers only by name.)"""

    def replace(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        return DAMAGE, error.end

    codecs.register_error("tokenmill.damage", replace)
    return "tokenmill.damage"


def utf8(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The blocks of the file `name` as UTF-8 without byte-order mark.

    Raises:
        UserError: the file looks like UTF-16 without a byte-order mark.
    """
    stream = iter(blocks)
    head = b""
    while len(head) < SNIFFED_BYTES and (block := next(stream, None)) is not None:
        head += block
    mark, encoding = encoding_of(head, name)
    head = head[len(mark) :]
    if encoding == "utf-8":
        yield head
        yield from stream
        return
    decoder = codecs.getincrementaldecoder(encoding)(damage_handler())
    yield decoder.decode(head).encode()
    for block in stream:
        yield decoder.decode(block).encode()
    yield decoder.decode(b"", final=True).encode()


def encoding_of(head: bytes, name: str) -> tuple[bytes, str]:
    """The byte-order mark at the start of the file `name`, if there is one, and the encoding.

    Raises:
        UserError: the file looks like UTF-16 without a byte-order mark.
    """
    mark, encoding = next((pair for pair in _BYTE_ORDER_MARKS if head.startswith(pair[0])), (b"", "utf-8"))
    if not mark:
        _refuse_utf16(head[:SNIFFED_BYTES], name)
    return mark, encoding


def _refuse_utf16(head: bytes, name: str) -> None:
    """Refuse what has a NUL in every second byte, as Latin letters in UTF-16 do."""
    if len(head) < 16:
        return
    even, odd = head[::2].count(0) / len(head[::2]), head[1::2].count(0) / len(head[1::2])
    if max(even, odd) > 0.4 and min(even, odd) < 0.05:
        encoding = "UTF-16BE" if even > odd else "UTF-16LE"
        raise UserError(f"{name} looks like {encoding} without a byte-order mark; iconv -f {encoding} -t UTF-8 it.")


_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""A JSON escape: a surrogate pair, a lone surrogate (the group), or any other."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

_COMPLETE = re.compile(rb".*[^\\u0-9a-fA-F\x80-\xff]", re.DOTALL)
"""Up to the last character after which neither an escape nor a multi-byte character is unfinished."""


def mark_json_damage(data: bytes) -> bytes:
    """JSON with DAMAGE for invalid UTF-8 and for escapes of lone surrogates, which strict parsers refuse."""
    if _SURROGATE.search(data):
        data = _ESCAPE.sub(lambda match: rb"\ufdd0" if match[1] else match[0], data)
    try:
        data.decode()
    except UnicodeDecodeError:
        return decode(data).encode()
    return data


def mark_json_stream_damage(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """`mark_json_damage` block by block, for parsers that read a stream; where the blocks end does not matter."""
    rest = b""
    for block in blocks:
        data = rest + block
        complete = _COMPLETE.match(data, max(0, len(data) - SNIFFED_BYTES))
        cut = complete.end() if complete else 0
        yield mark_json_damage(data[:cut])
        rest = data[cut:]
    yield mark_json_damage(rest)
