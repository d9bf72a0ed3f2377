"""Bytes of unknown encoding as UTF-8, with a mark where they are damaged.

UTF-8 is tried first. UTF-16 and UTF-32 are recognised by their byte-order mark, other encodings by
chardet from a bounded sample. Bytes that cannot be decoded become DAMAGE, a code point that Unicode
reserves for internal use. Only `without_damage` turns it into U+FFFD: there a text is one document,
so that damaged documents can be counted.
"""

import codecs
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from tokenmill.data.report import Tally
from tokenmill.data.sources import BLOCK_BYTES, Advance, Source, blocks, opened

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


def without_damage(texts: Iterable[str], tally: Tally) -> Iterator[str]:
    """The texts with U+FFFD for DAMAGE; those that have any are counted in `tally`."""
    for text in texts:
        tally.invalid_utf8 += DAMAGE in text
        yield text.replace(DAMAGE, REPLACEMENT)


def damage_handler() -> str:
    """The codec error handler that writes DAMAGE; codecs know handlers only by name."""

    def replace(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        return DAMAGE, error.end

    codecs.register_error("tokenmill.damage", replace)
    return "tokenmill.damage"


def read_utf8(source: Source, tally: Tally, advance: Advance = lambda _: None) -> Iterator[bytes]:
    """The content of a file as UTF-8 without byte-order mark; an encoding that is not UTF-8 is
    noted in the tally.

    Raises:
        UserError: the file cannot be read.
    """
    return utf8(
        blocks(source, advance), source.encoding, partial(tally.encodings.__setitem__, source.name)
    )


def utf8(blocks: Iterable[bytes], encoding: str, found: Callable[[str], object]) -> Iterator[bytes]:
    """The blocks of a file as UTF-8 without byte-order mark.

    Args:
        blocks: the file from its beginning.
        encoding: its name, or `auto`: then the first block beyond ASCII decides, and a file in
            ASCII or UTF-8 passes through unchanged.
        found: called with the encoding if it is not UTF-8.
    """
    stream = iter(blocks)
    head = b""
    while len(head) < SNIFFED_BYTES and (block := next(stream, None)) is not None:
        head += block
    mark, by_mark = byte_order(head)
    stream = itertools.chain([head[len(mark) :]], stream)
    encoding = by_mark or encoding
    while encoding == "auto" and (block := next(stream, None)) is not None:
        if block.isascii():
            yield block
        else:
            encoding = detect(block)
            stream = itertools.chain([block], stream)
    if encoding in ("auto", "utf-8"):
        yield from stream
        return
    found(encoding)
    decoder = codecs.getincrementaldecoder(encoding)(damage_handler())
    for block in stream:
        yield decoder.decode(block).encode()
    yield decoder.decode(b"", final=True).encode()


def byte_order(head: bytes) -> tuple[bytes, str]:
    """The byte-order mark at a file's beginning and its encoding; both empty if unclear.

    UTF-16 without a mark has a NUL in every second byte where its letters are Latin.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return mark, encoding
    head = head[:SNIFFED_BYTES]
    even = head[::2].count(0) / max(8, len(head) // 2)
    odd = head[1::2].count(0) / max(8, len(head) // 2)
    if max(even, odd) > 0.4 and min(even, odd) < 0.05:
        return b"", "utf-16-be" if even > odd else "utf-16-le"
    return b"", ""


def is_utf8(source: Source) -> bool:
    """Whether a plain file is UTF-8, judged by its first block."""
    with opened(source) as file:
        head = file.read(BLOCK_BYTES)
    encoding = byte_order(head)[1] or (
        source.encoding if source.encoding != "auto" else detect(head)
    )
    return encoding == "utf-8"


CENTRAL_EUROPEAN = ("cp1250", "iso8859-2")
"""Read as one of these, text in cp1252 has a few other letters, and the languages of both are much
alike to chardet."""

LEGACY = (
    *(
        "cp1252",
        "cp1251",
        "koi8-r",
        "koi8-u",
        "cp866",
        "gb18030",
        "big5hkscs",
        "cp932",
        "euc_jis_2004",
        "cp949",
    ),
    *(
        "cp437",
        "cp850",
        "cp852",
        "cp855",
        "cp1253",
        "cp1254",
        "cp1255",
        "cp1256",
        "cp1257",
        "iso8859-5",
        "iso8859-6",
    ),
    *("iso8859-7", "mac-cyrillic", "tis-620", "johab", *CENTRAL_EUROPEAN),
)
"""Encodings that are looked for: those of most old text. Each stands for its subsets, as cp1252 for
Latin-1."""

DETECTION_BYTES = 1 << 16
"""Bytes, from the first one beyond ASCII, by which an encoding is recognised."""


def detect(data: bytes) -> str:
    """The encoding of text: UTF-8 if that is possible, also with some damage; else the likeliest in
    LEGACY.

    Example:
        >>> detect("Все люди рождаются свободными".encode("koi8_r"))
        'koi8-r'
    """
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data)
    damaged = text.count(REPLACEMENT) - data.count(REPLACEMENT.encode())
    if 2 * damaged <= len(_BEYOND_ASCII.findall(text)):
        return "utf-8"
    start = next(match.start() for match in _BEYOND_ASCII_BYTE.finditer(data))
    sample = data[max(0, start - 32) : start + DETECTION_BYTES]
    sample = b"\n".join(line for line in sample.splitlines() if not line.isascii())
    few = len(_BEYOND_ASCII_BYTE.findall(sample)) < 8  # too few to tell an encoding
    if (
        few
        and re.search(rb"[A-Za-z]", sample)
        and REPLACEMENT not in sample.decode("cp1252", "replace")
    ):
        return "cp1252"
    best = next(filter(None, map(_likeliest, _parts(sample))), "utf-8")
    if _odd_letters(sample, best) <= 0.05:
        return best
    # Dashes and quotation marks, say in English: nothing but them tells the encoding.
    return min((best, "big5hkscs", "cp437", "cp850"), key=partial(_odd_letters, sample))


def _likeliest(sample: bytes) -> str | None:
    """The encoding that fits the whole sample, if there is one."""
    import chardet  # noqa: PLC0415 (40 ms, and hardly a text needs it)

    found = chardet.detect_all(
        sample, include_encodings=LEGACY, compat_names=False, prefer_superset=False
    )
    confidence = {match["encoding"]: match["confidence"] for match in found}
    best = max(confidence, key=confidence.__getitem__)
    # For text that was written in one of CENTRAL_EUROPEAN the confidence is 1.5 times that in
    # cp1252 and more.
    if best in CENTRAL_EUROPEAN and confidence[best] < 1.2 * confidence.get("cp1252", 0):
        return "cp1252"
    return best if confidence[best] >= 0.04 else None  # a line of text that fits has 0.06 and more


def _parts(sample: bytes) -> Iterator[bytes]:
    """The sample, without the bytes of a character that its end may cut, and its beginnings, which
    have less damage."""
    # GB18030 has the longest characters
    yield from (sample[: len(sample) - cut] for cut in range(4))
    while len(sample) >= 256:
        sample = sample[: len(sample) // 2]
        yield from (sample[: len(sample) - cut] for cut in range(4))


_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")

_BEYOND_ASCII_BYTE = re.compile(rb"[\x80-\xff]")


def _odd_letters(data: bytes, encoding: str) -> float:
    """Of the characters beyond ASCII, the fraction in Latin words that are signs, or capitals
    behind a small letter."""
    text = data.decode(encoding, "replace")
    # One character, or its two bytes
    runs = re.findall(r"([a-zA-Z])([^\x00-\x7f\s’–—]{1,2})(?=[a-zA-Z])", text)
    signs = sum(not character.isalnum() for _, run in runs for character in run)
    capitals = sum(before.islower() and run[0].isupper() for before, run in runs)
    return (signs + capitals) / len(_BEYOND_ASCII.findall(text))


_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""A JSON escape: a surrogate pair, a lone surrogate (the group), or any other."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

_COMPLETE = re.compile(rb".*[^\\u0-9a-fA-F\x80-\xff]", re.DOTALL)
"""Up to the last character after which neither an escape nor a multi-byte character is
unfinished."""


def mark_json_damage(data: bytes) -> bytes:
    """JSON with DAMAGE for invalid UTF-8 and for escapes of lone surrogates, which strict parsers
    refuse."""
    if _SURROGATE.search(data):
        data = _ESCAPE.sub(lambda match: rb"\ufdd0" if match[1] else match[0], data)
    try:
        data.decode()
    except UnicodeDecodeError:
        return decode(data).encode()
    return data


def mark_json_stream_damage(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """`mark_json_damage` block by block, for parsers that read a stream; where the blocks end does
    not matter."""
    rest = b""
    for block in blocks:
        data = rest + block
        complete = _COMPLETE.match(data, max(0, len(data) - SNIFFED_BYTES))
        cut = complete.end() if complete else 0
        yield mark_json_damage(data[:cut])
        rest = data[cut:]
    yield mark_json_damage(rest)
