import polars as pl
import pytest

from tests.data.material import filters
from tokenmill.data.filters import LANGUAGE_CHARS, in_other_language, known_languages, languages

SENTENCES = {
    "en": "The children went home before it began to rain, and nobody had seen the dog.",
    "de": "Die Kinder gingen nach Hause, bevor es zu regnen begann, und niemand hatte den Hund gesehen.",
    "fr": "Les enfants sont rentrés à la maison avant la pluie, et personne n'avait vu le chien.",
    "es": "Los niños volvieron a casa antes de que empezara a llover, y nadie había visto al perro.",
    "it": "I bambini tornarono a casa prima che cominciasse a piovere, e nessuno aveva visto il cane.",
    "pl": "Dzieci wróciły do domu, zanim zaczęło padać, i nikt nie widział psa.",
    "ru": "Дети вернулись домой до начала дождя, и никто не видел собаку.",
    "tr": "Çocuklar yağmur başlamadan eve gittiler ve kimse köpeği görmemişti.",
    "zh": "孩子们在下雨之前回家了,没有人看见那只狗。",
    "ja": "雨が降り出す前に子供たちは家に帰り、誰も犬を見ていなかった。",
    "ko": "비가 오기 전에 아이들은 집으로 돌아갔고 아무도 개를 보지 못했다.",
    "ar": "عاد الأطفال إلى البيت قبل أن يبدأ المطر ولم ير أحد الكلب.",
}


def test_languages_are_told_apart():
    found = languages(pl.Series(list(SENTENCES.values())))
    assert found["language"].to_list() == list(SENTENCES)
    assert found["confidence"].is_between(0.5, 1).all()
    assert set(SENTENCES) < known_languages()
    assert len(known_languages()) == 176


def test_only_the_words_of_the_head_tell_the_language():
    text = SENTENCES["en"]
    same = pl.Series([text, text.replace(" ", "\n"), text.upper(), text * 10 + SENTENCES["ru"] * 50])
    assert languages(same)["language"].to_list() == ["en"] * 4
    assert len(text) * 10 > LANGUAGE_CHARS


@pytest.mark.parametrize(
    ("wanted", "confidence", "kept"), [(["en"], 0.5, "en"), (["de", "fr"], 0.5, "de fr"), (["en"], 1.0, "")]
)
def test_only_documents_surely_in_the_wanted_languages_stay(wanted, confidence, kept):
    params = filters(languages=wanted, min_language_confidence=confidence)
    dropped = in_other_language(pl.DataFrame({"text": list(SENTENCES.values())}), params)["language"]
    assert [code for code, is_other in zip(SENTENCES, dropped, strict=True) if not is_other] == kept.split()


def test_no_text_is_in_no_language():
    params = filters(languages=["en"], min_language_confidence=0.5)
    assert in_other_language(pl.DataFrame({"text": ["", " \n", "1234 5678"]}), params)["language"].all()
