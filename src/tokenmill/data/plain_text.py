"""Text files as documents: the whole file, its paragraphs or its lines.

A document longer than LONGEST is cut: at the first line break beyond SHORTEST before a non-blank character; failing
that, at the first white space; failing that, at LONGEST. Where the cuts are depends on the text alone, never on the
blocks it comes in. A part has at least SHORTEST bytes, so a remainder of up to LONGEST stays whole.
"""

import re
from collections.abc import Iterable, Iterator

from tokenmill.data.encoding import decode, read_utf8
from tokenmill.data.params import CleanParams, Unit
from tokenmill.data.report import Tally
from tokenmill.data.sources import Advance, Source

SHORTEST = 1 << 20
"""Bytes after which a document that is too long may be cut."""

LONGEST = 2 << 20
"""Bytes beyond which a document is cut."""

_SEPARATORS: dict[Unit, re.Pattern[bytes] | None] = {
    "file": None,
    "paragraph": re.compile(rb"(?>\r\n|\r|\n)[ \t]*[\r\n]"),
    "line": re.compile(rb"[\r\n]"),
}

_SKIPPED: dict[Unit, re.Pattern[bytes]] = {
    "file": re.compile(rb""),
    "paragraph": re.compile(rb"\s*"),
    "line": re.compile(rb"[\r\n]*"),
}
"""What is skipped before a document begins."""

_LINE_BREAK = re.compile(rb"[\r\n](?=\S)")

_BLANK = re.compile(rb"\s")


def read_plain_text(source: Source, params: CleanParams, tally: Tally, advance: Advance) -> Iterator[str]:
    """The texts of a plain text file; every one is a document, so there is nothing to count."""
    return map(decode, documents(read_utf8(source, tally, advance), params.text_file))


def documents(
    blocks: Iterable[bytes], unit: Unit, *, shortest: int = SHORTEST, longest: int = LONGEST
) -> Iterator[bytes]:
    r"""The documents in UTF-8 text that comes in blocks; empty ones are skipped, but an empty file is one.

    Example:
        >>> list(documents([b"To be,\nor no", b"t to be\n"], "line"))
        [b'To be,', b'or not to be']
    """
    buffer = b""
    found_any = False
    for block in blocks:
        buffer += block
        start = 0
        while (span := _next(buffer, start, unit, shortest, longest)) is not None:
            begin, end, start = span
            found_any = True
            yield buffer[begin:end]
        buffer = buffer[_begin(buffer, start, unit) :]
    rest = buffer if unit == "file" else buffer.rstrip()
    if rest or (unit == "file" and not found_any):
        yield rest


def _begin(buffer: bytes, start: int, unit: Unit) -> int:
    match = _SKIPPED[unit].match(buffer, start)
    return match.end() if match else start


def _next(buffer: bytes, start: int, unit: Unit, shortest: int, longest: int) -> tuple[int, int, int] | None:
    """Begin and end of the next document and the start of the one after it; None if that needs another block."""
    begin = _begin(buffer, start, unit)
    separator = _SEPARATORS[unit]
    horizon = begin + longest + 2  # no byte beyond this may decide, or the blocks would matter
    match = separator.search(buffer, begin, horizon) if separator else None
    if match:
        return begin, match.start(), match.end()
    if len(buffer) <= horizon:
        return None
    cut = _cut(buffer, begin + shortest, begin + longest)
    return begin, cut, cut


def _cut(buffer: bytes, low: int, high: int) -> int:
    """Where to cut between `low` and `high`, looking at no byte beyond `high`."""
    for pattern in (_LINE_BREAK, _BLANK):
        if match := pattern.search(buffer, low, high + 1):
            return match.end()
    cut = high
    while cut > high - 3 and buffer[cut] & 0xC0 == 0x80:  # within a UTF-8 character
        cut -= 1
    return cut
