"""The encoding of a file whose encoding nobody named; `decide` states the rule."""

import codecs
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from tokenmill.data.sources import BLOCK_BYTES

REPLACEMENT = "\ufffd"

SNIFFED_BYTES = 4096
"""Bytes at the start of a file that are searched for UTF-16 without a byte-order mark."""

FEWEST_NULS = 0.02
"""The share of characters with a NUL that UTF-16 has at least: one line break for 50 of them."""

MOST_ASCII = 0.85
"""The share of a file's bytes, without its NULs, that are ASCII at most if its letters are not
Latin."""

NOT_TEXT = 0.1
"""The share of characters that no text has, from which bytes are not text in an encoding. UTF-16
that is read as UTF-8 has 0.18 (Japanese) to 0.9 (Hebrew)."""

NEARLY_TEXT = 0.01
"""The same share below which they are."""

_UTF16 = ("utf-16-le", "utf-16-be")
_ASCII = re.compile(rb"[ -~]")

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def without_mark(blocks: Iterable[bytes]) -> tuple[str, Iterator[bytes]]:
    """The encoding that the beginning of a file shows (see `byte_order`), and the file without its
    byte-order mark."""
    stream = iter(blocks)
    head = b""
    while len(head) < SNIFFED_BYTES and (block := next(stream, None)) is not None:
        head += block
    mark, encoding = byte_order(head)
    return encoding, itertools.chain([head[len(mark) :]], stream)


def byte_order(head: bytes) -> tuple[bytes, str]:
    """The byte-order mark at a file's beginning and its encoding; both empty if unclear."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return mark, encoding
    head = head[:SNIFFED_BYTES]
    return b"", _utf16_without_mark(head) if 0 in head else ""


def _utf16_without_mark(head: bytes) -> str:
    """The encoding of a file that begins with `head`, which has a NUL, if it is UTF-16; else empty.

    Latin letters have a NUL in every second byte. In other scripts spaces, line breaks and digits
    have one; there a file is UTF-16 if it is text as that and not as UTF-8.
    """
    even = head[::2].count(0) / max(8, len(head) // 2)
    odd = head[1::2].count(0) / max(8, len(head) // 2)
    if max(even, odd) > 0.4 and min(even, odd) < 0.05:
        return "utf-16-be" if even > odd else "utf-16-le"
    is_latin = len(_ASCII.findall(head)) > MOST_ASCII * (len(head) - head.count(0))
    few = head.count(0) < 2 or max(even, odd) < FEWEST_NULS
    if few or is_latin or _odd_share(head.decode("utf-8", "replace")) < NOT_TEXT:
        return ""
    decoders = {name: codecs.getincrementaldecoder(name)("replace") for name in _UTF16}
    # A last character may be cut off
    return next((name for name in decoders if _is_text(decoders[name].decode(head))), "")


def _is_text(text: str) -> bool:
    """Whether these characters are what UTF-16 in its right byte order gives: hardly any that no
    text has, and among the first 256 of Unicode hardly any but those of ASCII."""
    narrow = [char for char in text if char <= "\xff"]
    ascii_ = sum(char.isascii() for char in narrow)
    return bool(narrow) and ascii_ >= 0.9 * len(narrow) and _odd_share(text) < NEARLY_TEXT


def _odd_share(text: str) -> float:
    """The share of characters that no text has: control characters, unassigned ones, damage."""
    odd = sum(unicodedata.category(char) in {"Cc", "Cn", "Co", "Cs"} for char in text)
    lines = sum(map(text.count, "\t\n\v\f\r"))
    return (odd + text.count(REPLACEMENT) - lines) / max(1, len(text))


CENTRAL_EUROPEAN = ("cp1250", "iso8859-2")
"""Encodings that chardet confuses with cp1252. Text in cp1252 that is decoded as one of these has
only a few other letters, and chardet finds the languages written in both much alike."""

LEGACY = (
    *("cp1252", "cp1251", "koi8-r", "koi8-u", "cp866"),
    *("gb18030", "big5hkscs", "cp932", "euc_jis_2004", "cp949"),
    *("cp437", "cp850", "cp852", "cp855", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257"),
    *("iso8859-5", "iso8859-6", "iso8859-7", "mac-cyrillic", "tis-620", "johab"),
    *CENTRAL_EUROPEAN,
)
"""The encodings that are looked for: those of most old text. Each stands for its subsets, as cp1252
for Latin-1. All of them extend ASCII, and none has a control character or a space within a
character."""

_JAPANESE = {b"\x1b$@", b"\x1b$B"}

ESCAPES = {
    "iso2022_jp_ext": _JAPANESE | {b"\x1b(I", b"\x1b$(D"},
    "iso2022_jp_2": _JAPANESE | {b"\x1b$(D", b"\x1b$A", b"\x1b$(C", b"\x1b.A", b"\x1b.F"},
    "iso2022_jp_2004": _JAPANESE | {b"\x1b$(Q", b"\x1b$(P"},
    "iso2022_jp_3": _JAPANESE | {b"\x1b$(O", b"\x1b$(P"},
    "iso2022_kr": {b"\x1b$)C"},
}
"""Encodings whose bytes are all ASCII, with the sequences that begin their other characters (RFC
1468, 1554, 1557). Each stands for its subsets, as `iso2022_jp_ext` for `iso2022_jp`."""

OPENINGS = {"iso2022_kr": b"\x1b$)C"}
"""What a file in such an encoding has only once, before the first character that needs it."""

_ESCAPE = re.compile(rb"\x1b(?:\$(?:[@AB]|\([CDOPQ]|\)C)|\(I|\.[AF])")
"""Matches such a sequence."""

MOST_DAMAGED = 0.1
"""The share of invalid characters from which a file with escape sequences is in no encoding of
them. English that is read as pairs of bytes has 0.4."""


def is_plain(block: bytes) -> bool:
    """Whether the bytes of a file are the same characters in every encoding that `decide` may find:
    they are ASCII, and none begins an escape or shifts between alphabets."""
    return block.isascii() and not any(sign in block for sign in (b"\x1b", b"\x0e", b"\x0f"))


ENOUGH_CHARACTERS = 1 << 14
"""The number of characters beyond ASCII, counted from the beginning of a file, that decide whether
it is UTF-8."""

SAMPLE_BYTES = 1 << 20
"""Bytes of text around characters beyond ASCII that are collected from a whole file. A legacy
encoding is told from DETECTION_BYTES of them, at even distances."""

DETECTION_BYTES = 1 << 16


def decide(read: Callable[[], Iterable[bytes]]) -> str:
    """The encoding of a file, by all of its text.

    1. A byte-order mark decides, or the NUL bytes of UTF-16 (`byte_order`).
    2. A file with escape sequences is in the encoding of ESCAPES that has them, if hardly anything
       in it is invalid there.
    3. A file is UTF-8 if of its characters beyond ASCII (the first ENOUGH_CHARACTERS, wherever they
       are) at least half are valid: some broken bytes make no other encoding of it.
    4. Any other file is in the encoding of LEGACY that is likeliest for its text around the bytes
       beyond ASCII, taken from the whole file.

    Args:
        read: opens the file and gives its bytes, in blocks of any size; called up to three times.

    Example:
        >>> decide(lambda: ["Все люди рождаются свободными".encode("koi8_r")])
        'koi8-r'
    """
    encoding, stream = without_mark(_equal_blocks(read()))
    if encoding:
        return encoding
    escapes: set[bytes] = set()
    damaged = _damaged_share(_noting_escapes(stream, escapes), "utf-8")
    if escapes:
        # The first of those that have the most of them
        encoding = max(ESCAPES, key=lambda name: len(escapes & ESCAPES[name]))
        if _damaged_share(_equal_blocks(read()), encoding) < MOST_DAMAGED:
            return encoding
    if damaged <= 0.5:
        return "utf-8"
    return _legacy(_sample(_equal_blocks(read())))


def _equal_blocks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Divide bytes into blocks of BLOCK_BYTES, so that the decision depends on the file alone."""
    rest = b""
    for block in blocks:
        rest += block
        while len(rest) >= BLOCK_BYTES:
            yield rest[:BLOCK_BYTES]
            rest = rest[BLOCK_BYTES:]
    yield rest


def _noting_escapes(blocks: Iterable[bytes], found: set[bytes]) -> Iterator[bytes]:
    """The blocks as they are. Their escape sequences are added to `found`."""
    end = b""
    for block in blocks:
        found.update(_ESCAPE.findall(end + block))
        end = block[-3:]
        yield block


def _damaged_share(blocks: Iterable[bytes], encoding: str) -> float:
    """The share of the characters beyond ASCII, of the first ENOUGH_CHARACTERS, that are invalid in
    an encoding."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    decoder.decode(OPENINGS.get(encoding, b""))
    beyond = damaged = 0
    for block in blocks:
        try:
            text = decoder.decode(block)
        except UnicodeError:  # a sequence that is cut off and too long to be one
            decoder.reset()
            continue
        if not text.isascii():
            beyond += len(text) - len(text.encode("ascii", "ignore"))
            found = text.count(REPLACEMENT)
            damaged += found - block.count(REPLACEMENT.encode()) if found else 0
        if beyond >= ENOUGH_CHARACTERS:
            break
    return damaged / max(1, beyond)


_STRETCH = re.compile(rb"[\x80-\xff](?:[^\n]{0,32}[\x80-\xff])*+[^\n]{0,32}")
"""Matches text of one line in which a byte beyond ASCII is never far away. A match ends between two
characters."""

_WHOLE = re.compile(rb".*[\x00-\x2f]", re.DOTALL)
"""Matches up to the last byte that no encoding of LEGACY has within a character."""


def _sample(blocks: Iterable[bytes]) -> bytes:
    """DETECTION_BYTES of the text around bytes beyond ASCII, each piece on a line of its own. They
    are taken at even distances from the first SAMPLE_BYTES of such text."""
    found: list[bytes] = []
    size = 0
    rest = b""
    for block in itertools.chain(blocks, [b"\n"]):
        data = rest + block
        whole = _WHOLE.match(data, max(0, len(data) - SNIFFED_BYTES))
        cut = whole.end() if whole else len(data)
        for stretch in _stretches(data, cut) if not data.isascii() else ():
            found.append(stretch)
            size += len(stretch)
        if size >= SAMPLE_BYTES:
            break
        rest = data[cut:]
    taken: list[bytes] = []
    seen = held = 0
    for stretch in found:
        seen += len(stretch)
        if held * size < seen * DETECTION_BYTES:
            taken.append(stretch)
            held += len(stretch)
    return b"\n".join(taken)[:DETECTION_BYTES]


def _stretches(data: bytes, end: int) -> Iterator[bytes]:
    """The text around bytes beyond ASCII before `end`, without valid UTF-8, which tells no other
    encoding."""
    begin = 0
    for match in _STRETCH.finditer(data, 0, end):
        line = data.rfind(b"\n", 0, match.start()) + 1
        stretch = data[max(line, begin, match.start() - 32) : match.end()]
        if stretch.decode("utf-8", "ignore").encode() != stretch:
            yield stretch
        begin = match.end()


_DOS_LETTER = re.compile(rb"[\x82-\x84\x86-\x8f]")
"""Matches letters of cp437 and cp850, é, è, ä and ç among them, that are rare signs in cp1252. Text
without any is hardly in one of the two."""


def _legacy(sample: bytes) -> str:
    """The likeliest encoding of text that is not UTF-8."""
    few = len(_BEYOND_ASCII_BYTE.findall(sample)) < 8  # too few to tell an encoding
    if (
        few
        and re.search(rb"[A-Za-z]", sample)
        and REPLACEMENT not in sample.decode("cp1252", "replace")
    ):
        return "cp1252"
    best = next(filter(None, map(_likeliest, _parts(sample))), "utf-8")
    if (
        best in ("cp437", "cp850")
        and not _DOS_LETTER.search(sample)
        and _odd_letters(sample, "cp1252") <= _odd_letters(sample, best)
    ):
        best = "cp1252"
    if _odd_letters(sample, best) <= 0.05:
        return best
    # A few words, again and again; or only dashes and quotation marks, for example in English:
    # nothing tells the encoding.
    candidates = (best, "cp1252", "big5hkscs", "cp437", "cp850")
    return min(candidates, key=partial(_odd_letters, sample))


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
    """The sample without the last 0 to 3 bytes, which may be a cut character, and then its
    beginnings, which have less damage."""
    # GB18030 has the longest characters
    yield from (sample[: len(sample) - cut] for cut in range(4))
    while len(sample) >= 256:
        sample = sample[: len(sample) // 2]
        yield from (sample[: len(sample) - cut] for cut in range(4))


_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")

_BEYOND_ASCII_BYTE = re.compile(rb"[\x80-\xff]")


def _odd_letters(data: bytes, encoding: str) -> float:
    """The fraction of the characters beyond ASCII that are odd: within a Latin word a sign, a
    letter of Cyrillic or Greek, a capital after a small letter, or invalid in this encoding."""
    text = data.decode(encoding, "replace")
    # One character, or its two bytes
    runs = re.findall(r"([a-zA-Z])([^\x00-\x7f\s’–—]{1,2})(?=[a-zA-Z])", text)
    signs = sum(
        not character.isalnum() or unicodedata.name(character, "").startswith(("CYRILLIC", "GREEK"))
        for _, run in runs
        for character in run
    )
    capitals = sum(before.islower() and run[0].isupper() for before, run in runs)
    return (signs + capitals + text.count(REPLACEMENT)) / len(_BEYOND_ASCII.findall(text))
