"""What a character outside the alphabet of a mode is written as within it.

Derived from Unicode 3.2, which every Python carries unchanged (`unicodedata.ucd_3_2_0`), so that the same text
gives the same bytes whatever the Python. Letters lose their accents (é -> e), compatibility forms their form
(ﬁ -> fi, Ａ -> A, … -> ...); what no rule gives stands in _BY_HAND.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

LATIN_1_END = 0x100
"""First code point beyond Latin-1."""

_RANGES = ((0x80, 0x3000), (0xFB00, 0xFB07), (0xFF01, 0xFF5F), (0x1D400, 0x1D800))
"""Where code points are that can be folded."""

_BY_HAND = {
    "‘’‚‛′‵‹›ʹʻʼˈ´": "'",
    "“”„‟″‶«»": '"',
    "‐‑‒–−⁃": "-",
    "—―": "--",
    "•‣∙●▪": "*",
    "·⋅": ".",
    "⁄∕": "/",
    "×": "x",
    "÷": "/",
    "±": "+/-",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "≈": "~=",
    "→": "->",
    "←": "<-",
    "⇒": "=>",
    "©": "(c)",
    "®": "(R)",
    "™": "(TM)",
    "€": "EUR",
    "£": "GBP",
    "¥": "JPY",
    "¢": "c",
    "¦": "|",
    "µ": "u",
    "Æ": "AE",
    "æ": "ae",
    "Œ": "OE",
    "œ": "oe",
    "ẞ": "SS",
    "ß": "ss",
    "Þ": "Th",
    "þ": "th",
    "ÐĐ": "D",
    "ðđ": "d",
    "ıɩ": "i",
    "ȷ": "j",
    "Ŋ": "NG",
    "ŋ": "ng",
    "ĸ": "k",
    "Ə": "E",
    "ə": "e",
}
_WITH = re.compile(r"LATIN (SMALL|CAPITAL) LETTER ([A-Z]) WITH ")


@cache
def table(first: int) -> dict[str, str]:
    """What each foldable character from code point `first` on is written as, in ASCII.

    Example:
        >>> table(LATIN_1_END)["ł"], table(0x80)["é"], "é" in table(LATIN_1_END)
        ('l', 'e', False)
    """
    by_hand = {character: folded for characters, folded in _BY_HAND.items() for character in characters}
    folds = {chr(point): folded for point in _points() if (folded := _folded(chr(point)))}
    return {character: folded for character, folded in {**folds, **by_hand}.items() if ord(character) >= first}


def _points() -> Iterator[int]:
    for first, end in _RANGES:
        yield from range(first, end)


def _folded(character: str) -> str:
    """By Unicode's own data; empty if that gives no ASCII."""
    data = unicodedata.ucd_3_2_0
    kind = data.decomposition(character)
    if kind.startswith("<super>"):
        plain = data.normalize("NFKD", character)
        return f"^{plain}" if plain.isascii() and plain.isdigit() else _ascii(plain)
    if kind.startswith("<fraction>"):
        return _ascii(f" {data.normalize('NFKD', character)}".replace("⁄", "/"))
    if data.category(character)[0] == "L":
        plain = "".join(part for part in data.normalize("NFKD", character) if data.category(part) != "Mn")
        stroke = _WITH.match(data.name(character, ""))
        if not plain.isascii() and stroke:
            plain = stroke[2].lower() if stroke[1] == "SMALL" else stroke[2]
        return _ascii(plain)
    return _ascii(data.normalize("NFKD", character)) if kind.startswith("<") else ""


def _ascii(text: str) -> str:
    return text if text.isascii() and text.isprintable() and text.strip() else ""
