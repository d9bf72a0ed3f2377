import unicodedata

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill.normalize import (
    BREAKS,
    INVISIBLE,
    NOT_SURELY_NFC,
    OUTSIDE,
    SPACES,
    UNWANTED_MARKS,
    WITHOUT_JOINERS,
    drop_boilerplate,
    fold_table,
    lost_letters,
    normalize,
    normalize_typed,
)

MODES = ("strict", "balanced", "lenient")
TRAPS = "ab \t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\u0301\u0308\u0323"
TRAPS += "\u200b\u200c\u200d\u2028\u2003\ufeff\ufe0f\ufdd0"
TRAPS += "éß½²©®™ﬁŁ≠—’…你\u1100\u1161\u11a8\u0344\u212b\u1ec7😀❤👩🏽🇫🇷⃣"
TRAPS += "می\u064b\u0653कष\u093c\u093f\u094d\u0dca"  # scripts with joiners
NASTY = st.text(st.sampled_from(TRAPS) | st.characters(exclude_categories=["Cs"]), max_size=40)


def clean_one(text: str, mode) -> str:
    return normalize(pl.Series([text], dtype=pl.String), mode)[0]


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=50)
@given(texts=st.lists(NASTY, max_size=4))
@example(texts=["a\n  b", "c  d"])
def test_normalizing_is_idempotent_and_row_by_row(mode, texts):
    once = normalize(pl.Series(texts, dtype=pl.String), mode)
    assert normalize(once, mode).to_list() == once.to_list()
    assert [clean_one(text, mode) for text in texts] == once.to_list()


def by_every_step(texts: pl.Series, mode) -> pl.Series:
    """Every step for every text, in their order."""
    one_to_three = [(BREAKS, "\n"), (SPACES, " "), (INVISIBLE, ""), *WITHOUT_JOINERS]
    for pattern, by in one_to_three:
        texts = texts.str.replace_all(pattern, by)
    texts = texts.str.normalize("NFC")
    if mode != "lenient":
        texts = texts.str.replace_many(fold_table(mode))
    for pattern, left in UNWANTED_MARKS[mode]:
        texts = texts.str.replace_all(pattern, left).str.normalize("NFC")
    five_and_six = [
        (OUTSIDE[mode], "\0"),
        (r"(\n[ \t]*)\x00[ \t\x00]*", "${1}"),
        (r"\x00", " "),
        (r"[ \t]+\n", "\n"),
        (r"([^ \t\n])(?:[ \t]{2,}|\t)", "${1} "),
        (r"\n{3,}", "\n\n"),
    ]
    for pattern, by in five_and_six:
        texts = texts.str.replace_all(pattern, by)
    return texts.str.strip_chars(" \t\n")


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=50)
@given(texts=st.lists(NASTY, max_size=8))
@example(texts=[f"a{chr(point)}’{chr(point)}—={chr(point)}" for point in range(0x3100)])
def test_no_shortcut_changes_a_text(mode, texts):
    texts = pl.Series(texts, dtype=pl.String)
    assert normalize(texts, mode).to_list() == by_every_step(texts, mode).to_list()


def test_the_letters_that_strict_loses_are_known():
    texts = pl.Series([char for char in map(chr, range(0x20000)) if char.isalpha()])
    texts = texts.filter(texts.str.contains(r"\p{L}"))
    left = normalize(texts, "strict").str.strip_chars()
    assert ((left == "") == texts.str.contains(lost_letters())).all()


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=30)
@given(texts=st.lists(NASTY, max_size=8))
def test_a_normalized_text_is_clean(mode, texts):
    for text in normalize(pl.Series(texts, dtype=pl.String), mode):
        assert text == text.strip(" \t\n")
        assert not any(
            bad in text for bad in ("\r", " \n", "\t\n", "\n\n\n", "\ufeff", "\u200b", "😀", "\xa0")
        )
        assert all(unicodedata.category(c) != "Cc" or c in "\n\t" for c in text)
        if mode == "strict":
            assert text.isascii()


@pytest.mark.parametrize(
    ("text", "strict", "balanced", "lenient"),
    [
        (
            "Café naïve — “ok”…",
            'Cafe naive -- "ok"...',
            'Café naïve -- "ok"...',
            "Café naïve — “ok”…",
        ),
        ("e\u0301 o\u0328 Łódź", "e o Lodz", "é ǫ Łódź", "é ǫ Łódź"),
        ("© ® ™ ½ x² 1½", "(c) (R) (TM) 1/2 x^2 1 1/2", "© ® (TM) ½ x² 1½", "© ® ™ ½ x² 1½"),
        ("hi😀there 👩🏽‍🚀 🇫🇷 1️⃣ ❤️", "hi there 1", "hi there 1", "hi there 1"),
        ("你好，“world”。", ',"world"', '你好，"world"。', "你好，“world”。"),
        ("Ёж — №1 ☃", "-- No1", "Ёж -- No1", "Ёж — №1"),
        ("مرحبا؟ ₹५ हिन्दी।", "", "مرحبا؟ ₹५ हिन्दी।", "مرحبا؟ ₹५ हिन्दी।"),
        (
            "→\u0338 ﬁ\u0301 -\u0301x\u0302",
            "fi -x",
            "fí -\u0301x\u0302",
            "↛ ﬁ\u0301 -\u0301x\u0302",
        ),
        ("a\n🎉 party\n  🎉 in", "a\nparty\n  in", "a\nparty\n  in", "a\nparty\n  in"),
        *(
            (text, "", text, text)
            for text in ("می\u200cخواهم", "ක්\u200dෂ", "हिन्\u200cदी", "അവ\u0d4d\u200dന", "ہَ\u200cے")
        ),
        ("a\u200db می\u200c \u200cمی", "ab", "ab می می", "ab می می"),
        ("م\u200c\u200dی م\u200c1 م\u200ca", "1 a", "م\u200cی م1 مa", "م\u200cی م1 مa"),
        ("a\u200bb\ufeffc\x00d\xade", "abcde", "abcde", "abcde"),
        ("a\r\nb\rc\x0cd\u2028e", "a\nb\nc\nd\ne", "a\nb\nc\nd\ne", "a\nb\nc\nd\ne"),
        ("a≠b ≤ c", "a!=b <= c", "a!=b <= c", "a≠b ≤ c"),
        ("ﬁne Ａ１", "fine A1", "fine A1", "ﬁne Ａ１"),
    ],
)
def test_each_mode_by_example(text, strict, balanced, lenient):
    assert [clean_one(text, mode) for mode in MODES] == [strict, balanced, lenient]
    assert clean_one(text, "none") == text


@pytest.mark.parametrize("mode", MODES)
def test_white_space(mode):
    text = "  def f():\n\n\n\n    return\t1,  2 \t \n\tx\ty \n"
    assert clean_one(text, mode) == "def f():\n\n    return 1, 2\n\tx y"


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=50)
@given(text=NASTY)
def test_a_typed_text_keeps_the_white_space_around_it(mode, text):
    assert normalize_typed(text, mode).strip(" \t\n") == clean_one(text.strip(), mode)
    assert normalize_typed(f" \t{text}x\n\n\n", mode).endswith("x\n\n\n")
    assert normalize_typed(f"\n  x {text}", mode).startswith("\n  x")


def test_a_typed_text_is_left_alone_in_mode_none():
    assert normalize_typed("“a”\xa0 ", "none") == "“a”\xa0 "


def test_ascii_rows_are_untouched_where_they_are_clean():
    text = "".join(map(chr, range(33, 127))) + "\n\n    indented\nend."
    assert [clean_one(text, mode) for mode in MODES] == [text] * 3


def test_folds_stay_within_the_alphabet_and_keep_meaning():
    folds = fold_table("strict")
    assert all(folded.isascii() and folded.strip() for folded in folds.values())
    assert not any(
        character.isalpha() and character in "ŁøœʼπйéŉǄⁿ" for character in fold_table("balanced")
    )
    assert {c: folds[c] for c in "ÅøẞŒĦ"} == {"Å": "A", "ø": "o", "ẞ": "SS", "Œ": "OE", "Ħ": "H"}
    assert all(normalize(pl.Series([f"x{c}y"]), "strict")[0] == f"x{folds[c]}y" for c in "éłﬁ—“")


def test_characters_that_skip_nfc_are_nfc():
    every = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    skipping = pl.Series(every).str.contains(NOT_SURELY_NFC).to_list()
    sure = "".join(char for char, asks in zip(every, skipping, strict=True) if not asks)
    assert len(sure) > 40_000
    assert all(unicodedata.combining(char) == 0 for char in sure)
    assert not pl.Series([sure]).str.contains(r"\p{M}")[0]
    for start in range(len(sure)):
        assert unicodedata.is_normalized("NFC", sure[start])
    assert (
        unicodedata.normalize("NFC", sure) == unicodedata.normalize("NFC", sure[::-1])[::-1] == sure
    )
    # what composes with a character before it is never among them
    composed = (unicodedata.decomposition(char).split() for char in every)
    seconds = {
        chr(int(parts[1], 16))
        for parts in composed
        if len(parts) == 2 and not parts[0].startswith("<")
    }
    assert not seconds & set(sure)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("One.\nPlease enable JavaScript.\nTwo.", "One.\nTwo."),
        ("One.\n\nRead our Privacy Policy and Terms of Use\n\nTwo.", "One.\n\nTwo."),
        ("This site uses cookies\n  Indented.\nEnd.", "Indented.\nEnd."),
        ("We use cookies.", ""),
        ("Lorem Ipsum dolor\nText with { a bracket }", "Text with { a bracket }"),
        ("I baked cookies and used a script.", "I baked cookies and used a script."),
    ],
)
def test_boilerplate_lines_go(text, left):
    assert drop_boilerplate(pl.Series([text]))[0] == left
