"""Make texts uniform, a batch at a time, by polars expressions. Each row is changed by itself, so
the division into batches does not matter.

For every mode but `none`, in this order:

1. every line break becomes `\n` (CRLF, CR, vertical tab, form feed, NEL, U+2028, U+2029);
2. every Unicode space becomes a space;
3. control, zero-width and other invisible characters are removed (`\n` and tab stay), but for
   single joiners (U+200C, U+200D) within words of Arabic, Indic and a few other scripts, where
   they are spelling;
4. the text is brought into NFC;
5. characters outside the mode's alphabet are folded to it, or become one space (none at the start
   of a line): `strict` ASCII; `balanced` Latin-1 and the letters, marks, numbers, punctuation and
   currencies of every script; `lenient` all of Unicode but emoji;
6. white space: a run of blanks within a line becomes one space, blanks at the end of a line are
   removed, indentation stays, at most one blank line in a row, nothing around the whole text.

Normalizing a normalized text changes nothing. Most rows are printable ASCII and take only the
tests.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import cache, partial
from typing import Literal, TypeAlias

import numpy as np
import polars as pl

from tokenmill.core.params import Mode

_MARK = "\x1f"
"""The character that marks the place of a removed one in step 5, and in step 3 a joiner that stays.
After step 2 no text contains it."""

# `regex` searches for a few strings, or for groups of at most ten characters, with SIMD, and for a
# larger class byte by byte
_CONTROL = r"([\x00-\x08])|([\x0B-\x13])|([\x14-\x1D])|([\x1E\x1F\x7F])"
"""Matches the ASCII characters that step 1, 2 or 3 may change."""

_EXTRA_BLANKS = "  | \n|\n\n\n"
"""Matches the white space within a text that step 6 may change, but for tabs."""

BREAKS = r"\r\n?|[\x0B\x0C\x1C-\x1E\x{85}\x{2028}\x{2029}]"

SPACES = r"[\x1F[\p{Zs}--[ ]]]"

JOINERS = r"[\x{200C}\x{200D}]"

INVISIBLE = (
    r"[[\p{Cc}--[\n\t]]"
    # signs that precede Arabic, Syriac and Kaithi numbers are Cf, but visible; joiners have rules
    # of their own
    r"[\p{Cf}--[\x{600}-\x{605}\x{6DD}\x{70F}\x{890}\x{891}\x{8E2}\x{110BD}\x{110CD}"
    rf"{JOINERS}]]"
    # combining grapheme joiner, keycap, text and emoji selectors, noncharacters
    r"\x{34F}\x{20E3}\x{FE0E}\x{FE0F}\x{FDD0}-\x{FDEF}\x{FFFE}\x{FFFF}]"
)

_BREAKS_SPACES_INVISIBLE = rf"{BREAKS}|{SPACES}|{INVISIBLE}|{JOINERS}"

_JOINED = (
    r"[[\p{sc=Arabic}\p{sc=Syriac}\p{sc=Mongolian}\p{sc=Devanagari}\p{sc=Bengali}\p{sc=Gurmukhi}"
    r"\p{sc=Gujarati}\p{sc=Oriya}\p{sc=Tamil}\p{sc=Telugu}\p{sc=Kannada}\p{sc=Malayalam}"
    r"\p{sc=Sinhala}\p{sc=Khmer}\p{sc=Myanmar}]&&\p{L}]"
)
"""Matches a letter of the scripts that are spelled with joiners."""

# The first one stays after such a letter and its marks, if a letter or a mark follows. Marks of any
# script count, because NFC changes their order.
WITHOUT_JOINERS = (
    (rf"({_JOINED}\p{{M}}*)({JOINERS})", f"$1{_MARK}$2"),
    (rf"{_MARK}({JOINERS}){JOINERS}*({_JOINED}|\p{{M}})|{_MARK}?{JOINERS}", "$1$2"),
)
"""Patterns, with their replacements, that together remove all joiners but those of spelling."""

NOT_SURELY_NFC = (
    # outside the blocks in which every character is NFC by itself and none combines: Latin with
    # IPA, Greek, Cyrillic, Armenian, Hebrew, Arabic, Thai, punctuation, currencies, symbols,
    # Chinese and Japanese, Korean syllables, emoji
    r"[^\x{0}-\x{2FF}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3CE}"
    r"\x{400}-\x{482}\x{48A}-\x{4CE}\x{531}-\x{556}"
    r"\x{561}-\x{587}\x{5D0}-\x{5EA}\x{621}-\x{63A}\x{640}-\x{64A}"
    r"\x{E01}-\x{E30}\x{E32}\x{E33}\x{E40}-\x{E46}"
    r"\x{1E00}-\x{1E9B}\x{1EA0}-\x{1EF9}\x{2010}-\x{205E}\x{20A0}-\x{20BF}"
    r"\x{2190}-\x{2328}\x{232B}-\x{2ADB}"
    r"\x{3001}-\x{3029}\x{3041}-\x{3094}\x{30A1}-\x{30FF}\x{3400}-\x{4DBF}"
    r"\x{4E00}-\x{9FFF}\x{AC00}-\x{D7A3}"
    r"\x{FF00}-\x{FFEF}\x{FFFD}\x{1F000}-\x{1FAFF}]"
)

FOREIGN = r"(?:[[\x{100}-\x{10FFFF}]--[\p{L}\p{M}\p{N}\p{P}\p{Sc}" + JOINERS + r"]]\p{M}*)+"

STRAY_MARKS = r"([<=>¨])\p{M}+"
"""Matches marks that would turn a symbol of Latin-1 into another one (`=` with a stroke is `≠`)."""

MARKS = rf"[\p{{M}}{JOINERS}]"
"""Matches what `strict` removes without a trace."""

BEYOND_ASCII = r"[^\x{0}-\x{7F}]+"

EMOJI = (
    r"[\p{Emoji_Presentation}\p{Emoji_Modifier}\p{Regional_Indicator}"
    # (c), (R), TM, arrows, geometric shapes and CJK marks are Extended_Pictographic, but text
    r"[\p{Extended_Pictographic}--[\x{0}-\x{22FF}\x{25A0}-\x{25FF}"
    r"\x{2900}-\x{297F}\x{2B00}-\x{2BFF}\x{3000}-\x{33FF}]]]+"
)

UNWANTED_MARKS = {"strict": ((MARKS, ""),), "balanced": ((STRAY_MARKS, "$1"),), "lenient": ()}
"""The marks that go without a trace, of folded text: patterns with their replacements."""

OUTSIDE = {"strict": BEYOND_ASCII, "balanced": FOREIGN, "lenient": EMOJI}
"""What becomes a space, of folded text."""

_TYPOGRAPHY = (("[‘’]", "'"), ("[“”]", '"'), ("–", "-"), ("—", "--"), ("…", "..."))
"""The folds of most rows beyond ASCII. No other step changes these characters or looks for them."""


def normalize(texts: pl.Series, mode: Mode) -> pl.Series:
    r"""Normalize the texts of a batch (String, no nulls) to the alphabet of `mode`, in order. A
    text is empty if nothing is left.

    Example:
        >>> normalize(pl.Series(["“Café”  au lait\r\n😀 你好 ok"]), "balanced").to_list()
        ['"Café" au lait\nok']
    """
    if mode == "none":
        return texts
    if mode != "lenient":
        texts = _change(texts, _beyond_ascii(texts), _fold_typography)
    beyond = _beyond_ascii(texts)
    texts = _change(texts, beyond, lambda some: _steps_1_to_5(some, mode))
    # Rows of ASCII need neither step 4 nor 5.
    texts = _change(texts, ~beyond & texts.str.contains(_CONTROL), _steps_1_to_3)
    texts = _change(texts, texts.str.contains(_EXTRA_BLANKS) | _have(texts, "\t"), _step_6)
    return texts.str.strip_chars(" \t\n")


def normalize_typed(text: str, mode: Mode) -> str:
    """Normalize a text that somebody types, as a prompt, but for the white space around it, on
    which the answer depends.

    Example:
        >>> normalize_typed("“It’s open”: ", "balanced")
        '"It\'s open": '
    """
    if mode == "none":
        return text
    inner = text.strip()
    start = text.find(inner)
    ends = _steps_1_to_3(pl.Series([text[:start], text[start + len(inner) :]]))
    return f"{ends[0]}{normalize(pl.Series([inner]), mode)[0]}{ends[1]}"


Change: TypeAlias = Callable[[pl.Series], pl.Series]


def _change(texts: pl.Series, mask: pl.Series, function: Change) -> pl.Series:
    """Apply `function` to the rows of `mask` only."""
    count = int(mask.sum())
    if count == 0:
        return texts
    if count == len(texts):
        return function(texts)
    rows = np.arange(len(texts))
    rows[mask.to_numpy()] = len(texts) + np.arange(count)
    # `gather` would copy a column of two chunks
    both = pl.concat([texts, function(texts.filter(mask))], rechunk=True)
    return both.gather(rows)


def _beyond_ascii(texts: pl.Series) -> pl.Series:
    """Which rows are not ASCII."""
    return texts.str.len_bytes() != texts.str.len_chars()


def _have(texts: pl.Series, string: str) -> pl.Series:
    """Which rows contain a string."""
    return texts.str.contains(string, literal=True)


def _change_matching(texts: pl.Series, pattern: str, function: Change) -> pl.Series:
    """Apply `function` to the rows that have a match only."""
    return _change(texts, texts.str.contains(pattern), function)


def _replace(texts: pl.Series, pattern: str, by: str) -> pl.Series:
    """Replace each match by `by`. Only rows that have a match are changed."""
    return _change_matching(texts, pattern, lambda some: some.str.replace_all(pattern, by))


def _steps_1_to_3(texts: pl.Series) -> pl.Series:
    texts = texts.str.replace_all(BREAKS, "\n").str.replace_all(SPACES, " ")
    texts = texts.str.replace_all(INVISIBLE, "")
    return _change_matching(texts, JOINERS, _without_joiners)


def _without_joiners(texts: pl.Series) -> pl.Series:
    """The end of step 3."""
    for pattern, replacement in WITHOUT_JOINERS:
        texts = texts.str.replace_all(pattern, replacement)
    return texts


def _steps_1_to_5(texts: pl.Series, mode: Mode) -> pl.Series:
    """Steps 1 to 5 for rows beyond ASCII."""

    def changed(some: pl.Series) -> pl.Series:
        # All marks and joiners are in these
        unsure = some.str.contains(f"{_BREAKS_SPACES_INVISIBLE}|{NOT_SURELY_NFC}")
        some = _change(some, unsure, _steps_1_to_4)
        if mode != "lenient":
            folds = fold_table(mode)
            folded = some.str.replace_many(list(folds), list(folds.values()))
            for pattern, left in UNWANTED_MARKS[mode]:
                folded = _change(folded, unsure, partial(_replace, pattern=pattern, by=left))
            some = _change(folded, unsure & (folded != some), _nfc)
        outside = _beyond_ascii(some)
        return _change(some, outside, lambda rest: _spaces_for(rest, OUTSIDE[mode]))

    return _change_matching(texts, _to_change(mode), changed)


def _fold_typography(texts: pl.Series) -> pl.Series:
    for pattern, folded in _TYPOGRAPHY:
        texts = _replace(texts, pattern, folded)
    return texts


@cache
def _to_change(mode: Mode) -> str:
    """Matches the characters that steps 1 to 5 may change, alone or with their neighbours."""
    if mode == "strict":
        return BEYOND_ASCII
    folded = "" if mode == "lenient" else f"[{''.join(fold_table(mode))}]|"
    return f"{_BREAKS_SPACES_INVISIBLE}|{NOT_SURELY_NFC}|{folded}{OUTSIDE[mode]}"


def _steps_1_to_4(texts: pl.Series) -> pl.Series:
    """Steps 1 to 4 for rows that need any of them."""
    return _nfc(_change_matching(texts, _BREAKS_SPACES_INVISIBLE, _steps_1_to_3))


def _nfc(texts: pl.Series) -> pl.Series:
    return _change_matching(texts, NOT_SURELY_NFC, lambda some: some.str.normalize("NFC"))


def _spaces_for(texts: pl.Series, pattern: str) -> pl.Series:
    """Replace each match by a space, but at the start of a line by nothing, because there a space
    would be indentation."""

    def spaced(some: pl.Series) -> pl.Series:
        some = some.str.replace_all(rf"(\n[ \t]*){_MARK}[ \t{_MARK}]*", "${1}")
        return some.str.replace_all(_MARK, " ", literal=True)

    texts = texts.str.replace_all(pattern, _MARK)
    return _change(texts, _have(texts, _MARK), spaced)


def _step_6(texts: pl.Series) -> pl.Series:
    texts = _change_matching(texts, r"[ \t]\n", _without_trailing_blanks)
    texts = _change(texts, _have(texts, "  ") | _have(texts, "\t"), _single_blanks)
    return _replace(texts, "\n{3,}", "\n\n")


def _without_trailing_blanks(texts: pl.Series) -> pl.Series:
    texts = texts.str.replace_many([" \n", "\t\n"], ["\n", "\n"])  # fast, and enough for one blank
    return _replace(texts, r"[ \t]+\n", "\n")


def _single_blanks(texts: pl.Series) -> pl.Series:
    """Replace every run of blanks by one space, except indentation."""
    special = _have(texts, "\n ") | _have(texts, "\t")
    texts = _change(texts, ~special, lambda some: some.str.replace_all("  +", " "))
    return _change(
        texts, special, lambda some: some.str.replace_all(r"([^ \t\n])(?:[ \t]{2,}|\t)", "${1} ")
    )


_RANGES = ((0x80, 0x3000), (0xFB00, 0xFB07), (0xFF01, 0xFF5F), (0x1D400, 0x1D800))
"""The ranges of code points that may be folded."""

_BY_HAND = """
‘’‚‛′‵‹›ʹʻʼˈ´ '  “”„‟″‶«» "  ‐‑‒–−⁃ -  —― --  •‣∙●▪ *  ·⋅ .  ⁄∕ /  × x  ÷ /  ± +/-
≤ <=  ≥ >=  ≠ !=  ≈ ~=  → ->  ← <-  ⇒ =>  © (c)  ® (R)  ™ (TM)  € EUR  £ GBP  ¥ JPY  ¢ c  ¦ |  µ u
Æ AE  æ ae  Œ OE  œ oe  ẞ SS  ß ss  Þ Th  þ th  ÐĐ D  ðđ d  ıɩ i  ȷ j  Ŋ NG  ŋ ng  ĸ k  Ə E  ə e
"""
"""The characters that no rule folds: groups of them, each followed by its ASCII spelling."""

_LETTER_WITH = re.compile(r"LATIN (SMALL|CAPITAL) LETTER ([A-Z]) WITH ")


@cache
def fold_table(mode: Literal["strict", "balanced"]) -> dict[str, str]:
    """The ASCII spelling of each character that `mode` folds.

    It comes from Unicode 3.2, which every Python carries unchanged (`unicodedata.ucd_3_2_0`), so
    that the same text gives the same bytes under every Python. Letters lose their accents (é -> e),
    compatibility forms their form (ﬁ -> fi, Ａ -> A, … -> ...); _BY_HAND holds what no rule gives.
    `balanced` leaves Latin-1 and all letters but compatibility forms alone, and the punctuation of
    Chinese and Japanese.

    Example:
        >>> fold_table("strict")["ł"], fold_table("balanced")["—"], "ł" in fold_table("balanced")
        ('l', '--', False)
    """
    folds = {char: _fold_character(char) for block in _RANGES for char in map(chr, range(*block))}
    pairs = iter(_BY_HAND.split())
    for group, folded in zip(pairs, pairs, strict=True):
        folds |= dict.fromkeys(group, folded)
    return {
        character: folded
        for character, folded in folds.items()
        if folded and (mode == "strict" or _is_typography(character, folded))
    }


@cache
def lost_letters() -> str:
    """A pattern of the letters that `strict` removes, because it has no spelling for them."""
    folds = fold_table("strict")
    letters = filter(str.isalpha, map(chr, range(0x20000)))
    composed = ((letter, unicodedata.ucd_3_2_0.normalize("NFC", letter)) for letter in letters)
    spelled = "".join(letter for letter, nfc in composed if nfc.isascii() or nfc in folds)
    return rf"[\p{{L}}--[{spelled}]]"


def _is_typography(character: str, folded: str) -> bool:
    """Whether a character beyond Latin-1 is only a typographic form of what it is folded to."""
    data = unicodedata.ucd_3_2_0
    kind = data.category(character)
    width = data.decomposition(character).partition(" ")[0]
    if kind[0] == "L":
        return (
            width in ("<compat>", "<wide>", "<font>")
            and data.normalize("NFKC", character) == folded
        )
    return character > "\xff" and not (kind[0] == "P" and width == "<wide>")


def _fold_character(character: str) -> str:
    """Fold a character by Unicode's own data. The result is empty if that gives no ASCII."""
    data = unicodedata.ucd_3_2_0
    kind = data.decomposition(character)
    if kind.startswith("<super>"):
        plain = data.normalize("NFKD", character)
        return f"^{plain}" if plain.isascii() and plain.isdigit() else _ascii(plain)
    if kind.startswith("<fraction>"):
        return _ascii(f" {data.normalize('NFKD', character)}".replace("⁄", "/"))
    if data.category(character)[0] == "L":
        parts = data.normalize("NFKD", character)
        plain = "".join(part for part in parts if data.category(part) != "Mn")
        stroke = _LETTER_WITH.match(data.name(character, ""))
        if not plain.isascii() and stroke:
            plain = stroke[2].lower() if stroke[1] == "SMALL" else stroke[2]
        return _ascii(plain)
    return _ascii(data.normalize("NFKD", character)) if kind.startswith("<") else ""


def _ascii(text: str) -> str:
    return text if text.isascii() and text.isprintable() and text.strip() else ""


_BOILERPLATE = (
    r"(?i:lorem ipsum|javascript|terms of use|terms of service|privacy policy|cookie policy"
    r"|uses cookies|use of cookies|use cookies)"
)


def drop_boilerplate(texts: pl.Series) -> pl.Series:
    r"""Remove lines that only a web page needs from the texts of a batch (normalized).

    The phrases are those of C4 (Raffel et al. 2020, section 2.2). C4 drops the whole page for
    `lorem ipsum` and for a curly bracket; here the former costs its line, and code may stay. The
    result is normalized again, and empty if nothing is left.

    Example:
        >>> drop_boilerplate(pl.Series(["A cat.\n\nThis site uses cookies.\n\nA dog."]))[0]
        'A cat.\n\nA dog.'
    """
    rows = texts.str.contains(_BOILERPLATE).arg_true()
    if not len(rows):
        return texts
    left = texts.gather(rows).str.replace_all(rf"(?m)^.*{_BOILERPLATE}.*\n?", "")
    left = left.str.replace_all(r"\n{3,}", "\n\n").str.strip_chars(" \t\n")
    return texts.clone().scatter(rows, left)
