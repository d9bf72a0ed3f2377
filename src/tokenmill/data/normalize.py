"""Texts made uniform, a batch at a time, by polars expressions; each row by itself, so batches do not matter.

For every mode but `none`, in this order:

1. every line break is `\n` (CRLF, CR, vertical tab, form feed, NEL, U+2028, U+2029);
2. every Unicode space is a space;
3. control, zero-width and other invisible characters go (`\n` and tab stay);
4. NFC;
5. characters beyond the mode's alphabet are folded to it, or become one space (none at the start of a line):
   `strict` ASCII, `balanced` Latin-1, `lenient` all of Unicode but emoji;
6. white space: a run of blanks within a line is one space, none at the end of a line, indentation stays, at most
   one blank line in a row, nothing around the whole.

Cleaning a clean text changes nothing. Most rows are printable ASCII and take only the tests.

What a character outside the alphabet of a mode is written as within it.

Derived from Unicode 3.2, which every Python carries unchanged (`unicodedata.ucd_3_2_0`), so that the same text
gives the same bytes whatever the Python. Letters lose their accents (é -> e), compatibility forms their form
(ﬁ -> fi, Ａ -> A, … -> ...); what no rule gives stands in _BY_HAND.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import polars as pl

from tokenmill.data.params import Mode

_GONE = "\x1f"
"""Stands for a character that was taken out, until its place is known; step 2 leaves none of its own."""


_CONTROL = r"[\x00-\x08\x0B-\x1F\x7F]"
"""What step 1, 2 or 3 may change in ASCII."""


_LOOSE = ["  ", "\t", " \n", "\n\n\n"]
"""White space that step 6 may change, not counting what is around the whole."""


_BREAKS = r"\r\n?|[\x0B\x0C\x1C-\x1E\x{85}\x{2028}\x{2029}]"


_SPACES = r"[\x1F[\p{Zs}--[ ]]]"


_INVISIBLE = (
    r"[[\p{Cc}--[\n\t]]"
    # signs that precede Arabic, Syriac and Kaithi numbers are Cf, but to be seen
    r"[\p{Cf}--[\x{600}-\x{605}\x{6DD}\x{70F}\x{890}\x{891}\x{8E2}\x{110BD}\x{110CD}]]"
    # combining grapheme joiner, keycap, text and emoji selectors, noncharacters
    r"\x{34F}\x{20E3}\x{FE0E}\x{FE0F}\x{FDD0}-\x{FDEF}\x{FFFE}\x{FFFF}]"
)


_UNSEEN = rf"{_BREAKS}|{_SPACES}|{_INVISIBLE}"


_NOT_SURELY_NFC = (
    # outside blocks in which every character is NFC by itself and none combines: Latin with IPA, Greek, Cyrillic,
    # Armenian, Hebrew, Arabic, Thai, punctuation, currencies, symbols, Chinese and Japanese, Korean syllables, emoji
    r"[^\x{0}-\x{2FF}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3CE}\x{400}-\x{482}\x{48A}-\x{4CE}\x{531}-\x{556}"
    r"\x{561}-\x{587}\x{5D0}-\x{5EA}\x{621}-\x{63A}\x{640}-\x{64A}\x{E01}-\x{E30}\x{E32}\x{E33}\x{E40}-\x{E46}"
    r"\x{1E00}-\x{1E9B}\x{1EA0}-\x{1EF9}\x{2010}-\x{205E}\x{20A0}-\x{20BF}\x{2190}-\x{2328}\x{232B}-\x{2ADB}"
    r"\x{3001}-\x{3029}\x{3041}-\x{3094}\x{30A1}-\x{30FF}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{AC00}-\x{D7A3}"
    r"\x{FF00}-\x{FFEF}\x{FFFD}\x{1F000}-\x{1FAFF}]"
)


_EMOJI = (
    r"[\p{Emoji_Presentation}\p{Emoji_Modifier}\p{Regional_Indicator}"
    # (c), (R), TM, arrows, geometric shapes and CJK marks are Extended_Pictographic, but text
    r"[\p{Extended_Pictographic}--[\x{0}-\x{22FF}\x{25A0}-\x{25FF}\x{2900}-\x{297F}\x{2B00}-\x{2BFF}\x{3000}-\x{33FF}]]]+"
)


def cleaned(texts: pl.Series, mode: Mode) -> pl.Series:
    r"""The texts of a batch (String, no nulls) as `mode` wants them, in the same order; empty where nothing is left.

    Example:
        >>> cleaned(pl.Series(["“Café”  au lait\r\n😀 你好 ok"]), "balanced").to_list()
        ['"Café" au lait\nok']
    """
    if mode == "none":
        return texts
    beyond = texts.str.len_bytes() != texts.str.len_chars()
    texts = _where(texts, beyond, lambda some: _alphabet(some, mode))
    texts = _where(texts, ~beyond, _visible_ascii)
    texts = _where(texts, texts.str.contains_any(_LOOSE), _spaced)
    return texts.str.strip_chars(" \t\n")


def _where(texts: pl.Series, mask: pl.Series, change: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """`change` applied to the rows of `mask` only."""
    count = int(mask.sum())
    if count == 0:
        return texts
    if count == len(texts):
        return change(texts)
    rows = np.arange(len(texts))
    rows[mask.to_numpy()] = len(texts) + np.arange(count)
    return pl.concat([texts, change(texts.filter(mask))], rechunk=True).gather(rows)  # of two chunks it would copy all


def _visible_ascii(texts: pl.Series) -> pl.Series:
    """Steps 1 to 3 for rows of ASCII; they need no others."""
    return _where(texts, texts.str.contains(_CONTROL), _visible)


def _visible(texts: pl.Series) -> pl.Series:
    """Steps 1 to 3."""
    return texts.str.replace_all(_BREAKS, "\n").str.replace_all(_SPACES, " ").str.replace_all(_INVISIBLE, "")


def _alphabet(texts: pl.Series, mode: Mode) -> pl.Series:
    """Steps 1 to 5 for rows beyond ASCII."""
    texts = _where(texts, texts.str.contains(f"{_UNSEEN}|{_NOT_SURELY_NFC}"), _composed)
    if mode == "lenient":
        return _blanked(texts, _EMOJI)
    return _folded(texts, 0x80 if mode == "strict" else LATIN_1_END)


def _composed(texts: pl.Series) -> pl.Series:
    """Steps 1 to 4."""
    texts = _where(texts, texts.str.contains(_UNSEEN), _visible)
    return _where(texts, texts.str.contains(_NOT_SURELY_NFC), lambda some: some.str.normalize("NFC"))


def _folded(texts: pl.Series, first: int) -> pl.Series:
    """Step 5: nothing from code point `first` on."""
    folds = table(first)
    texts = texts.str.replace_many(list(folds), list(folds.values()))
    # Quotes and dashes are all there is in most rows: they are ASCII now, and done.
    foreign = rf"[^\x{{0}}-\x{{{first - 1:X}}}]"
    beyond = texts.str.len_bytes() != texts.str.len_chars()
    return _where(texts, beyond, lambda some: _blanked(some.str.replace_all(r"\p{M}", ""), f"{foreign}+"))


def _blanked(texts: pl.Series, pattern: str) -> pl.Series:
    """A space for what matches, but nothing at the start of a line, where it would look like indentation."""

    def place(some: pl.Series) -> pl.Series:
        some = some.str.replace_all(pattern, _GONE).str.replace_all(rf"(\n[ \t]*){_GONE}[ \t{_GONE}]*", "${1}")
        return some.str.replace_all(_GONE, " ", literal=True)

    return _where(texts, texts.str.contains(pattern), place)


def _spaced(texts: pl.Series) -> pl.Series:
    """Step 6 for rows that need it."""
    texts = _where(texts, texts.str.contains(r"[ \t]\n"), _without_trailing_blanks)
    texts = _where(texts, texts.str.contains_any(["  ", "\t"]), _single_blanks)
    return _where(
        texts, texts.str.contains("\n\n\n", literal=True), lambda some: some.str.replace_all("\n{3,}", "\n\n")
    )


def _without_trailing_blanks(texts: pl.Series) -> pl.Series:
    texts = texts.str.replace_many([" \n", "\t\n"], ["\n", "\n"])  # most often there was one, and this is quick
    return _where(texts, texts.str.contains(r"[ \t]\n"), lambda some: some.str.replace_all(r"[ \t]+\n", "\n"))


def _single_blanks(texts: pl.Series) -> pl.Series:
    """A space for every run of blanks, but for indentation."""
    special = texts.str.contains(r"\n[ \t]|\t")
    texts = _where(texts, ~special, lambda some: some.str.replace_all("  +", " "))
    return _where(texts, special, lambda some: some.str.replace_all(r"([^ \t\n])(?:[ \t]{2,}|\t)", "${1} "))


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
    folds = {chr(point): folded for point in _points() if (folded := _fold_character(chr(point)))}
    return {character: folded for character, folded in {**folds, **by_hand}.items() if ord(character) >= first}


def _points() -> Iterator[int]:
    for first, end in _RANGES:
        yield from range(first, end)


def _fold_character(character: str) -> str:
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
