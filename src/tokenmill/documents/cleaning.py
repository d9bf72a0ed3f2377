r"""Texts made uniform, a batch at a time, by polars expressions; each row by itself, so batches do not matter.

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
"""

from collections.abc import Callable

import numpy as np
import polars as pl

from tokenmill.documents.folding import LATIN_1_END, table
from tokenmill.documents.params import Mode

_GONE = "\x1f"
"""Stands for a character that was taken out, until its place is known; step 2 leaves none of its own."""

_UNUSUAL = r"[^\n\t -~]"
_LOOSE = r"  |\t| \n|\n\n\n"
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
    # outside blocks in which every character is NFC by itself and none combines: Latin with IPA, punctuation,
    # currencies, symbols, Chinese and Japanese, Korean syllables, emoji
    r"[^\x{0}-\x{2FF}\x{2010}-\x{205E}\x{20A0}-\x{20BF}\x{2190}-\x{2328}\x{232B}-\x{2ADB}\x{3001}-\x{3029}"
    r"\x{30A1}-\x{30FF}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{AC00}-\x{D7A3}\x{FF00}-\x{FFEF}\x{1F000}-\x{1FAFF}]"
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
    # One scan finds the rows that need anything at all; most need nothing.
    texts = _where(texts, texts.str.contains(f"{_UNUSUAL}|{_LOOSE}"), lambda some: _changed(some, mode))
    return texts.str.strip_chars(" \t\n")


def _changed(texts: pl.Series, mode: Mode) -> pl.Series:
    """All steps but the last for rows that need some."""
    texts = _where(texts, texts.str.contains(_UNUSUAL), lambda some: _characters(some, mode))
    return _where(texts, texts.str.contains(_LOOSE), _white_space)


def _where(texts: pl.Series, mask: pl.Series, change: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """`change` applied to the rows of `mask` only."""
    count = int(mask.sum())
    if count == 0:
        return texts
    if count == len(texts):
        return change(texts)
    rows = np.arange(len(texts))
    rows[mask.to_numpy()] = len(texts) + np.arange(count)
    return pl.concat([texts, change(texts.filter(mask))]).gather(rows)


def _characters(texts: pl.Series, mode: Mode) -> pl.Series:
    """Steps 1 to 5 for rows that hold anything but printable ASCII."""
    texts = _where(
        texts,
        texts.str.contains(_UNSEEN),
        lambda some: some.str.replace_all(_BREAKS, "\n").str.replace_all(_SPACES, " ").str.replace_all(_INVISIBLE, ""),
    )
    return _where(texts, texts.str.len_bytes() != texts.str.len_chars(), lambda some: _alphabet(some, mode))


def _alphabet(texts: pl.Series, mode: Mode) -> pl.Series:
    """Steps 4 and 5 for rows beyond ASCII."""
    texts = _where(texts, texts.str.contains(_NOT_SURELY_NFC), lambda some: some.str.normalize("NFC"))
    if mode == "lenient":
        return _blanked(texts, _EMOJI)
    first = 0x80 if mode == "strict" else LATIN_1_END
    foreign = rf"[^\x{{0}}-\x{{{first - 1:X}}}]"
    return _where(texts, texts.str.contains(foreign), lambda some: _folded(some, first, foreign))


def _folded(texts: pl.Series, first: int, foreign: str) -> pl.Series:
    folds = table(first)
    texts = texts.str.replace_many(list(folds), list(folds.values()))
    # Quotes and dashes are all there is in most rows: they are ASCII now, and done.
    beyond = texts.str.len_bytes() != texts.str.len_chars()
    return _where(texts, beyond, lambda some: _blanked(some.str.replace_all(r"\p{M}", ""), f"{foreign}+"))


def _blanked(texts: pl.Series, pattern: str) -> pl.Series:
    """A space for what matches, but nothing at the start of a line, where it would look like indentation."""

    def place(some: pl.Series) -> pl.Series:
        some = some.str.replace_all(pattern, _GONE).str.replace_all(rf"(\n[ \t]*){_GONE}[ \t{_GONE}]*", "${1}")
        return some.str.replace_all(_GONE, " ", literal=True)

    return _where(texts, texts.str.contains(pattern), place)


def _white_space(texts: pl.Series) -> pl.Series:
    """Step 6 for rows that need it."""
    return (
        texts.str.replace_all(r"([^ \t\n])(?:[ \t]{2,}|\t)", "${1} ")
        .str.replace_all(r"[ \t]+\n", "\n")
        .str.replace_all(r"\n{3,}", "\n\n")
    )
