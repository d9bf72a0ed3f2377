import re

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data import filter_reference as reference
from tests.data.material import filters
from tokenmill import languages
from tokenmill.core.errors import UserError
from tokenmill.data import filters as filters_module
from tokenmill.data.filters import Languages, drop_reasons, first_broken_rule
from tokenmill.data.repetition import (
    lines_of,
    paragraphs_of,
    repeated_ngrams,
    repeated_spans,
    words_of,
)
from tokenmill.languages import LANGUAGE_CHARS, detect_languages, known_languages

QUALITY = filters(gopher_quality=True, gopher_min_words=3, gopher_stop_words=1)
REPETITION = filters(gopher_repetition=True)
LINES = filters(fineweb_lines=True)
PROSE = (
    "The mill stood at the edge of the water, and nobody in the village could say how old it was. "
    "Some people told that a monk had built it; others thought of soldiers who came with a king "
    "long dead. Every spring the river rose to its door, carried away whatever had been left "
    "outside, and went back to its bed as if nothing had happened."
)


def texts(*some: str) -> pl.Series:
    return pl.Series("text", some, dtype=pl.String)


def reason(text: str, **on: object) -> str | None:
    return drop_reasons(texts(text), filters(**on))[0]


token = st.sampled_from(
    [
        "the",
        "of",
        "mill",
        "water",
        "a",
        "don't",
        "1984",
        "#",
        "...",
        "…",
        "—",
        "x_y",
        "Straße",
        "我们",
        "می\u200cخواهم",
    ]
)
gap = st.sampled_from([" "] * 8 + ["\n", "\n\n", "\n- ", ".\n", ", "])
phrase = st.lists(st.tuples(token, gap), min_size=1, max_size=8).map(
    lambda parts: "".join(t + g for t, g in parts)
)
document = st.lists(phrase, min_size=1, max_size=4).flatmap(
    lambda phrases: st.lists(st.sampled_from(phrases) | phrase, max_size=14).map(
        lambda parts: "".join(parts).strip()
    )
)
anything = st.text(st.sampled_from("ab ' \n.-*•#…’é1_我\u200c"), max_size=60)


@settings(max_examples=60)
@given(st.lists(document | anything, max_size=5))
def test_filters_agree_with_plain_rules(batch):
    some = texts(*batch)
    assert words_of(some).to_list() == [reference.words(text) for text in batch]
    assert drop_reasons(some, QUALITY).to_list() == [
        reference.quality(text, QUALITY) for text in batch
    ]
    assert drop_reasons(some, REPETITION).to_list() == [
        reference.repetition(text) for text in batch
    ]
    assert drop_reasons(some, LINES).to_list() == [reference.fineweb(text) for text in batch]


@settings(max_examples=20)
@given(st.lists(document, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_order_and_grouping_of_documents_change_nothing(batch, random):
    params = filters(
        gopher_quality=True, gopher_min_words=5, gopher_repetition=True, max_symbol_fraction=0.2
    )
    alone = {text: drop_reasons(texts(text), params)[0] for text in batch}
    random.shuffle(batch)
    assert drop_reasons(texts(*batch), params).to_list() == [alone[text] for text in batch]


def test_slices_change_nothing(monkeypatch):
    batch = texts(*[PROSE * n for n in (1, 2, 3, 1)], "", "short", PROSE + "x" * 5000)
    params = filters(gopher_quality=True, gopher_repetition=True)
    whole = drop_reasons(batch, params)
    monkeypatch.setattr(filters_module, "SLICE_BYTES", 700)
    assert drop_reasons(batch, params).to_list() == whole.to_list()
    assert whole.to_list()[:2] == [None, "duplicate_ngrams"]


def test_disabled_filters_drop_nothing():
    assert drop_reasons(texts("", "a a a a", "#"), filters()).to_list() == [None, None, None]
    assert (
        drop_reasons(texts(), filters(gopher_quality=True, gopher_repetition=True)).to_list() == []
    )


def test_prose_passes_everything():
    on = {
        "gopher_quality": True,
        "gopher_repetition": True,
        "fineweb_lines": True,
        "languages": ["en"],
    }
    assert reason(PROSE, max_digit_fraction=0.01, max_symbol_fraction=0.05, **on) is None


def _prose(words: int) -> str:
    """So many different words of four letters, two of them stop words."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join(
        ["the", "and", *(f"qz{letters[n // 26]}{letters[n % 26]}" for n in range(words - 2))]
    )


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (_prose(50), None),
        (_prose(49), "gopher_words"),
        ("the and " + "abcd " * 99_998, None),
        ("the and " + "abcd " * 99_999, "gopher_words"),
        (_prose(50).replace(" ", " | "), "gopher_alphabetic"),
        (" ".join("abc" for _ in range(48)) + " the and", None),
        (" ".join("abc" for _ in range(47)) + " the and ab", "gopher_word_length"),
        (
            " ".join("a" * 10 for _ in range(58)) + " " + "a" * 17 + " " + "a" * 17 + " the and",
            None,
        ),
        (
            " ".join("a" * 10 for _ in range(58)) + " " + "a" * 17 + " " + "a" * 18 + " the and",
            "gopher_word_length",
        ),
        (_prose(54) + " # # # # # #", None),
        (_prose(53) + " # # # # # #", "gopher_symbols"),
        ("... ... ... ... ... ... " + _prose(54), None),
        ("... … ... … ... … " + _prose(53), "gopher_symbols"),
        ("- " + _prose(90).replace(" ", "\n- ", 8).replace("qzaj ", "qzaj\n"), None),
        ("* " + _prose(90).replace(" ", "\n* ", 9), "gopher_bullets"),
        ("* " + _prose(90), "gopher_bullets"),
        (
            _prose(90)
            .replace(" ", "...\n", 3)
            .replace("qzaj ", "qzaj\n")
            .replace("qzak ", "qzak\n"),
            "gopher_ellipsis",
        ),
        (_prose(90).replace(" ", "...\n", 3) + "\nx" * 6, None),
        (_prose(80) + " 5" * 20, None),
        (_prose(80) + " 5" * 21, "gopher_alphabetic"),
        (_prose(60).replace("and", "xxxx"), "gopher_stop_words"),
        (_prose(60).replace("and", "And"), "gopher_stop_words"),
    ],
)
def test_gopher_quality_at_the_edge_of_each_rule(text, verdict):
    assert reason(text, gopher_quality=True) == verdict


@pytest.mark.parametrize(
    ("parts", "repeats"),
    [
        # 3 of 10 parts, 3 of 9
        (["abcdef", "d", "e", "f", "g", "h", "i", "d", "e", "f"], False),
        (["abcdef", "d", "e", "f", "g", "h", "d", "e", "f"], True),
        # 20 of 94 characters (97 with blank lines between), 20 of 100 (103); not of bytes
        (["é" * 20, "ß" * 50, "z", "é" * 20], True),
        (["x" * 20, "y" * 56, "z", "x" * 20], False),
    ],
)
def test_repeated_lines_and_paragraphs_at_the_edge(parts, repeats):
    one_line_break = frame("\n".join(parts))
    assert first_broken_rule(repeated_spans(one_line_break))[0] == (
        "repeated_lines" if repeats else None
    )
    blank_line = frame("\n\n".join(parts))
    assert first_broken_rule(repeated_spans(blank_line))[0] == (
        "repeated_paragraphs" if repeats else None
    )


@pytest.mark.parametrize("n", range(2, 11))
def test_ngrams_at_the_edge(n):
    """A phrase of n words twice in T characters: at the limit it passes, one character less and it
    does not."""
    limit = (0.20, 0.18, 0.16, 0.15, 0.14, 0.13, 0.12, 0.11, 0.10)[n - 2]
    phrase = " ".join(["first" * 40, *(f"w{k}" for k in range(n - 2)), "last" * 50])
    taken = 2 * len(phrase) if n < 5 else len(phrase) - (n - 1)
    total = next(t for t in range(1, 10**5) if taken / t <= limit)
    between = f"{phrase} <BETWEEN> {phrase} "
    filler = "q" * (total - len(between) + len("<BETWEEN>") - 3)
    text = between.replace("<BETWEEN>", filler) + "end"
    assert len(text) == total
    shorter = text.replace("qq", "q", 1)
    found = [first_broken_rule(repeated_ngrams(frame(one)))[0] for one in (text, shorter)]
    assert found == [None, "top_ngrams" if n < 5 else "duplicate_ngrams"]


def test_a_repeated_phrase_counts_by_whole_ngrams():
    """Of its eleven words of three characters, ten are a repetition: 30 of 300 characters."""
    phrase = " ".join(f"w{number:02}" for number in range(11))
    for chars, verdict in ((300, None), (299, "duplicate_ngrams")):
        text = f"{phrase} <> {phrase}"
        text = text.replace("<>", "q" * (chars - len(text) + 2))
        assert len(text) == chars
        assert first_broken_rule(repeated_ngrams(frame(text)))[0] == verdict


def test_blank_lines_are_no_parts():
    some = texts("a\n\n\nb\n\n \n\n\n\nc\n")
    assert paragraphs_of(some)[0].to_list() == lines_of(some)[0].to_list() == ["a", "b", "c"]


def frame(text: str) -> pl.DataFrame:
    some = texts(text)
    return pl.DataFrame({"text": some, "words": words_of(some), "lines": lines_of(some)})


def test_an_ngram_that_stands_once_is_no_repetition():
    assert reason("Hello there", gopher_repetition=True) is None
    assert reason("Hello there, hello there, hello there.", gopher_repetition=True) == "top_ngrams"


def test_ngrams_do_not_cross_documents():
    assert drop_reasons(texts(PROSE, PROSE, PROSE), REPETITION).to_list() == [None] * 3


def _lines(**counts: int) -> str:
    """Different lines: `long` ones of 30 characters, `short` of 29, and `ended` of 30 with a full
    stop."""
    ends = {"long": "xx", "short": "x", "ended": "x."}
    return "\n".join(
        f"{kind:24}{n:04}{ends[kind]}" for kind, count in counts.items() for n in range(count)
    )


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (_lines(ended=3, long=22), "fineweb_punctuation"),
        (_lines(ended=3, long=21), None),
        (_lines(ended=33, short=67), "fineweb_short_lines"),
        (_lines(ended=34, short=66), None),
        ("A mill.", "fineweb_short_lines"),
        (_lines(ended=9) + "\n\n" + _lines(ended=1), "fineweb_repeated_lines"),
        (_lines(ended=10) + "\n\n" + _lines(ended=1), None),
    ],
)
def test_fineweb_lines_at_the_edge_of_each_rule(text, verdict):
    assert reason(text, fineweb_lines=True) == verdict


def test_digits_and_symbols():
    assert reason("abcd567890" * 2, max_digit_fraction=0.6) is None
    assert reason("abcd567890" * 2, max_digit_fraction=0.59) == "digits"
    assert reason("a+b= é我", max_symbol_fraction=2 / 7) is None
    assert reason("a+b=_é我", max_symbol_fraction=2 / 7) == "symbols"
    assert reason("می\u200cروم", max_symbol_fraction=0.0) is None
    assert reason("a7", max_digit_fraction=0.0) == "digits"
    assert reason("a+", max_symbol_fraction=0.0) == "symbols"
    assert reason("", max_digit_fraction=0.0, max_symbol_fraction=0.0) is None


def test_the_first_broken_rule_is_the_reason():
    text = "7 " * 100
    on = {
        "max_digit_fraction": 0.1,
        "languages": ["en"],
        "gopher_quality": True,
        "gopher_repetition": True,
    }
    found = []
    for off in ({}, {"max_digit_fraction": None}, {"languages": None}, {"gopher_quality": False}):
        on |= off
        found.append(reason(text, **on))
    assert found == ["digits", "language", "gopher_word_length", "top_ngrams"]
    everything = filters(
        max_digit_fraction=0.1, languages=["en"], gopher_quality=True, gopher_repetition=True
    )
    order = [reason for one in everything.enabled() for reason in one.reasons]
    assert sorted(found, key=lambda name: order.index(str(name))) == found
    assert filters().enabled() == []


def test_the_longest_document_is_judged_by_its_head(monkeypatch):
    monkeypatch.setattr(filters_module, "MAX_CHARS", len(PROSE))
    assert reason(PROSE + " again and again" * 100, gopher_repetition=True) is None
    assert reason(" again and again" * 100 + PROSE, gopher_repetition=True) == "top_ngrams"


def test_an_unknown_language_is_refused():
    with pytest.raises(UserError, match=re.escape("clean.filters.languages (eng, xx)")):
        reason("Hello", languages=["en", "xx", "eng"])


SENTENCES = {
    "en": "The children went home before it began to rain, and nobody had seen the dog.",
    "de": (
        "Die Kinder gingen nach Hause, bevor es zu regnen begann, "
        "und niemand hatte den Hund gesehen."
    ),
    "fr": "Les enfants sont rentrés à la maison avant la pluie, et personne n'avait vu le chien.",
    "es": (
        "Los niños volvieron a casa antes de que empezara a llover, y nadie había visto al perro."
    ),
    "it": (
        "I bambini tornarono a casa prima che cominciasse a piovere, e nessuno aveva visto il cane."
    ),
    "pl": "Dzieci wróciły do domu, zanim zaczęło padać, i nikt nie widział psa.",
    "ru": "Дети вернулись домой до начала дождя, и никто не видел собаку.",
    "tr": "Çocuklar yağmur başlamadan eve gittiler ve kimse köpeği görmemişti.",
    "zh": "孩子们在下雨之前回家了,没有人看见那只狗。",
    "ja": "雨が降り出す前に子供たちは家に帰り、誰も犬を見ていなかった。",
    "ko": "비가 오기 전에 아이들은 집으로 돌아갔고 아무도 개를 보지 못했다.",
    "ar": "عاد الأطفال إلى البيت قبل أن يبدأ المطر ولم ير أحد الكلب.",
}


def test_languages_are_told_apart():
    found = detect_languages(pl.Series(list(SENTENCES.values())))
    assert found["language"].to_list() == list(SENTENCES)
    assert found["confidence"].is_between(0.5, 1).all()
    assert set(SENTENCES) < known_languages()
    assert len(known_languages()) == 176


def test_only_the_words_of_the_head_tell_the_language():
    text = SENTENCES["en"]
    same = pl.Series(
        [text, text.replace(" ", "\n"), text.upper(), text * 10 + SENTENCES["ru"] * 50]
    )
    assert detect_languages(same)["language"].to_list() == ["en"] * 4
    assert len(text) * 10 > LANGUAGE_CHARS


@pytest.mark.parametrize(
    ("wanted", "confidence", "kept"),
    [(["en"], 0.5, "en"), (["de", "fr"], 0.5, "de fr"), (["en"], 1.0, "")],
)
def test_only_documents_surely_in_the_wanted_languages_stay(wanted, confidence, kept):
    params = filters(languages=wanted, min_language_confidence=confidence)
    dropped = Languages.broken(params, pl.DataFrame({"text": list(SENTENCES.values())}))["language"]
    assert [
        code for code, is_other in zip(SENTENCES, dropped, strict=True) if not is_other
    ] == kept.split()


def test_a_package_in_the_place_of_the_model_is_refused(monkeypatch: pytest.MonkeyPatch):
    """The package `fasttext` overwrites the module of `fasttext-predict`, and can train."""
    monkeypatch.setattr("fasttext.train_supervised", None, raising=False)
    monkeypatch.setattr(languages, "_detector", languages._detector.__wrapped__)
    with pytest.raises(UserError, match="fasttext"):
        detect_languages(texts("The cat sat on the mat."))


def test_no_text_is_in_no_language():
    params = filters(languages=["en"], min_language_confidence=0.5)
    assert Languages.broken(params, pl.DataFrame({"text": ["", " \n", "1234 5678"]}))[
        "language"
    ].all()
