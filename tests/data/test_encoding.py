from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.data.material import in_blocks
from tokenmill.core.errors import UserError
from tokenmill.data.detection import DETECTION_BYTES, ENOUGH_CHARACTERS, byte_order, decide
from tokenmill.data.encoding import decode, has_plain_lines, utf8, without_damage
from tokenmill.data.params import DataParams
from tokenmill.data.report import Tally
from tokenmill.data.sources import Source


def file_of(data: bytes, folder: Path, encoding: str = "auto") -> Source:
    """A file with this content."""
    path = folder / "a.txt"
    path.write_bytes(data)
    status = path.stat()
    version = (status.st_size, status.st_mtime_ns)
    return Source(str(path), path.name, ".txt", None, len(data), version, encoding)


def found_in(data: bytes) -> str:
    """The encoding of a file with this content."""
    return decide(lambda: [data])


@pytest.mark.parametrize(
    "encoding", ["idna", "rot13", "hex", "undefined", "nothing", "utf\0", "\ud800"]
)
def test_what_decodes_no_text_is_no_encoding(encoding: str):
    with pytest.raises(ValidationError, match=r"data\.encoding"):
        DataParams(raw="text", mixture=None, encoding=encoding)


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("utf-16", "Все люди".encode("utf-16-le")),
        ("utf-32", "Все люди".encode("utf-32-le")),
        ("unicode_escape", rb"\ud800"),
        ("utf-7", b"+2AA-"),
    ],
)
def test_text_in_another_encoding_than_the_named_one_is_refused(
    tmp_path: Path, encoding: str, data: bytes
):
    source = file_of(data, tmp_path, encoding)
    with pytest.raises(UserError, match=r"data\.encoding"):
        list(utf8([data], source, Tally()))


@pytest.mark.parametrize(
    ("encoding", "are_plain"), [("auto", True), ("utf-8", True), ("utf-16-le", False)]
)
def test_lines_of_a_named_encoding_are_not_decoded_alone(
    tmp_path: Path, encoding: str, are_plain: bool
):
    """`上` has the byte of a line break in UTF-16, and nothing tells a file of it from others."""
    data = ("上" * 9).encode("utf-8" if are_plain else encoding)
    assert has_plain_lines(file_of(data, tmp_path, encoding)) is are_plain


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@given(
    text=st.text("a\u00e9\U0001f600\n", min_size=1, max_size=30), cuts=st.lists(st.integers(0, 120))
)
def test_byte_order_marks(tmp_path_factory, encoding, text, cuts):
    source = file_of(text.encode(encoding), tmp_path_factory.mktemp("file"))
    blocks = in_blocks(text.encode(encoding), cuts)
    assert b"".join(utf8(blocks, source, Tally())) == text.encode()


@given(
    st.lists(st.sampled_from([b"a", b"\xff", b"\xe2\x82", "é".encode(), "\ufffd".encode()])).map(
        b"".join
    )
)
def test_damage_is_divided_as_python_divides_it(data):
    tally = Tally()
    assert list(without_damage([decode(data)], tally)) == [data.decode("utf-8", "replace")]
    assert tally.invalid_utf8 == (data.decode("utf-8", "ignore").encode() != data)


LEGACY = {
    "ru": (
        "Все люди рождаются свободными и равными в своём достоинстве и правах. Они наделены "
        "разумом и совестью и должны поступать в отношении друг друга в духе братства. Каждый "
        "человек должен обладать всеми правами и всеми свободами, провозглашёнными настоящей "
        "Декларацией, без какого бы то ни было различия."
    ),
    "zh": (
        "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。"
        "人人有资格享有本宣言所载的一切权利和自由，不分"
        "种族、肤色、性别、语言、宗教、政治或其他见解、国籍或社会出身、财产、出生或其他身分等任何区别。"
    ),
    "ja": (
        "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"
        "人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。"
        "何人も、奴隷にされ、又は苦役に服することはない。"
    ),
    "ko": (
        "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 "
        "이성과 양심을 부여받았으며 서로 형제애의 정신으로 행동하여야 한다."
    ),
    "fr": (
        "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués "
        "de raison et de conscience et doivent agir les uns envers les autres dans un esprit de "
        "fraternité. Chacun peut s'en prévaloir, été, où, à, ça."
    ),
    "de": (
        "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft "
        "und Gewissen begabt und sollen einander im Geist der Brüderlichkeit begegnen. Größe, "
        "Straße, Übung: schön, daß es möglich wäre."
    ),
    "da": (
        "Alle mennesker er født frie og lige i værdighed og rettigheder. De er udstyret med "
        "fornuft og samvittighed, og de bør handle mod hverandre i en broderskabets ånd. Enhver "
        "har krav på alle de rettigheder og friheder, som nævnes i denne erklæring, uden "
        "forskelsbehandling af nogen art, på grund af køn, sprog eller anden anskuelse, også "
        "øvrigt."
    ),
    "pl": (
        "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni "
        "obdarzeni rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa. Każdy "
        "człowiek posiada wszystkie prawa i wolności zawarte w niniejszej Deklaracji."
    ),
    "es": (
        "En un lugar de la Mancha, de cuyo nombre no quiero acordarme, no ha mucho tiempo que "
        "vivía un hidalgo. Duelos y quebrantos los sábados, lentejas los viernes, algún palomino "
        "de añadidura los domingos."
    ),
    "it": (
        "Quel ramo del lago di Como ... talché non è chi, al primo vederlo, purché sia di fronte, "
        "non lo discerna tosto. Perché così è la verità, e già si può dire che la città è là; né "
        "più né meno."
    ),
    "pt": (
        "Não há razão para que a criação não seja também uma ação; são três irmãos, e a mãe deles "
        "é avó. Já não é possível, disse ele, à noite, que você compreenda a situação política da "
        "nação."
    ),
    "sv": (
        "Det var en gång en flicka som hette Åsa och hon bodde på en ö i havet. Hon gick över "
        "ängen, såg på träden och hörde fåglarna sjunga."
    ),
    "cs": (
        "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem "
        "a svědomím a mají spolu jednat v duchu bratrství."
    ),
    "en": (
        "It’s a truth universally acknowledged — or so they say — that “a single man” in "
        "possession of a good fortune must be in want of a wife. The café was naïve… and the £5 "
        "fee wasn’t paid. "
    ),
}
"""Text in languages that were written in encodings of their own."""


@pytest.mark.parametrize(
    ("language", "encoding"),
    [
        *(
            ("ru", "cp1251"),
            ("ru", "koi8_r"),
            ("ru", "cp866"),
            ("zh", "gb18030"),
            ("ja", "shift_jis"),
            ("ja", "euc_jp"),
        ),
        *(
            ("fr", "cp1252"),
            ("fr", "cp437"),
            ("de", "cp1252"),
            ("de", "cp437"),
            ("da", "cp850"),
            ("en", "cp1252"),
        ),
        *(
            ("es", "cp1252"),
            ("it", "cp1252"),
            ("pt", "cp1252"),
            ("sv", "cp1252"),
            ("cs", "iso8859_2"),
            ("cs", "cp1250"),
        ),
        *(("pl", "cp1250"), ("pl", "iso8859_2"), ("de", "utf-16-le"), ("de", "utf-16-be")),
    ],
)
def test_legacy_encodings_are_found(language: str, encoding: str, tmp_path: Path) -> None:
    data = b"Plain beginning. " * 400 + LEGACY[language].encode(encoding)
    tally = Tally()
    if encoding.startswith("utf-16"):
        data = LEGACY[language].encode(encoding)
    decoded = b"".join(utf8([data], file_of(data, tmp_path), tally))
    assert decoded.decode().endswith(LEGACY[language])
    assert len(tally.encodings) == 1


@pytest.mark.parametrize(
    ("text", "written", "found"),
    [
        (LEGACY["ja"], "iso2022_jp", "iso2022_jp_ext"),
        (LEGACY["ja"] + "ｶﾀｶﾅ", "iso2022_jp_ext", "iso2022_jp_ext"),
        (LEGACY["ja"] + "한국", "iso2022_jp_2", "iso2022_jp_2"),
        (LEGACY["ja"] + "①", "iso2022_jp_2004", "iso2022_jp_2004"),
        (LEGACY["ja"] + "①", "iso2022_jp_3", "iso2022_jp_3"),
        (LEGACY["ko"], "iso2022_kr", "iso2022_kr"),
    ],
)
def test_encodings_of_ascii_bytes_are_found(
    text: str, written: str, found: str, tmp_path: Path
) -> None:
    data = ASCII * 30_000 + text.encode(written)
    tally = Tally()
    decoded = b"".join(utf8(in_blocks(data, [len(data) - 40]), file_of(data, tmp_path), tally))
    assert decoded.decode() == ASCII.decode() * 30_000 + text
    assert tally.encodings == {"a.txt": found}
    assert found_in(data + b"\xff" + data) == found


def test_a_stray_shift_is_read_alike_in_blocks(tmp_path: Path) -> None:
    data = b"A\x0fB " + ASCII * 9 + LEGACY["ko"].encode("iso2022_kr")
    source = file_of(data, tmp_path)
    whole = b"".join(utf8([data], source, Tally()))
    assert b"".join(utf8(in_blocks(data, [9, 200]), source, Tally())) == whole
    assert whole.decode().endswith(LEGACY["ko"])


def test_a_sequence_without_end_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """As that of a VT100 for lines; a decoder raises an error that no handler sees."""
    data = LEGACY["ja"].encode("iso2022_jp") + b"\x1b(0qqqqqqqqqqq\n"
    with pytest.raises(UserError, match=r"a\.txt.*iso2022_jp_ext.*data\.encoding.*utf-8"):
        list(utf8([data], file_of(data, tmp_path), Tally()))


@pytest.mark.parametrize(
    "text",
    [
        f"The sequence \x1b$B begins Japanese. {LEGACY['en']}",
        f"\x1b[31mError\x1b(B\x1b[m {LEGACY['en']}",
        f"\x1b$B {LEGACY['en'].encode('ascii', 'ignore').decode()}",
        f"{LEGACY['ru']} \x1b$B",
    ],
)
def test_single_escape_sequences_make_no_other_encoding(text: str) -> None:
    assert found_in(text.encode()) == "utf-8"


SCRIPTS = {
    "ar": "كان الطقس جيدا وذهبنا في نزهة إلى الحديقة.\n",
    "el": "Ο καιρός ήταν καλός και πήγαμε βόλτα στο πάρκο.\n",
    "he": "מזג האוויר היה טוב והלכנו לטייל בפארק.\n",
    "hi": "मौसम अच्छा था और हम पार्क में घूमने गए।\n",
    "ja": "天気が良くて、公園を散歩しました。\n",
    "ka": "კარგი ამინდი იყო და პარკში სასეირნოდ წავედით.\n",
    "ko": "날씨가 좋아서 우리는 공원을 산책했습니다.\n",
    "pa": "ਮੌਸਮ ਚੰਗਾ ਸੀ ਅਤੇ ਅਸੀਂ ਪਾਰਕ ਵਿੱਚ ਸੈਰ ਕਰਨ ਗਏ।\n",
    "ru": "Погода была хорошая, и мы пошли гулять в парк.\n",
    "th": "อากาศดี เราจึงไปเดินเล่นในสวนสาธารณะ\n",
    "zh": "天气很好，我们一起去公园散步了。\n",
    "emoji": "Погода 😀 хорошая 😀😀\n",
    "mixed": '{"text": "Погода была хорошая"}\n',
}


@pytest.mark.parametrize("language", SCRIPTS)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("lines", [1, 3, 500])
def test_utf16_without_a_mark(language: str, encoding: str, lines: int, tmp_path: Path) -> None:
    text = SCRIPTS[language] * max(lines, 2 if language in {"ja", "zh"} else 1)
    data = text.encode(encoding)
    tally = Tally()
    assert b"".join(utf8([data], file_of(data, tmp_path), tally)).decode() == text
    assert list(tally.encodings.values()) == [encoding]


@pytest.mark.parametrize("language", SCRIPTS)
@pytest.mark.parametrize("place", [0, 1])
def test_stray_nuls_make_no_utf16(language: str, place: int) -> None:
    """All of them in even or all in odd places, as UTF-16 has them."""
    for text in (SCRIPTS[language], LEGACY["fr"], "a fixed width\t" * 30):
        data = bytearray((text * 60).encode())
        data[place::50] = bytes(len(data[place::50]))
        assert byte_order(bytes(data)) == (b"", "")


def test_english_with_the_dashes_of_big5() -> None:
    """Hardly a byte beyond ASCII is a letter, so no language tells the encoding."""
    text = "the genius of our people—not so much—is America’s, and each man’s world "
    for repetitions in (3, 1000):
        data = text.encode("big5") * repetitions
        assert data.decode(found_in(data)) == text * repetitions


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("The new Intel® chips are fast.\n", "cp1252"),
        ("Siobhán knew what was to be done. Seán and I went home.\n", "cp1252"),
        ("We met at the café and had a soufflé.\n", "cp437"),
        (
            "L'été, les élèves allèrent à la plage, déjà très fatigués, dit-il à sa mère.\n",
            "latin-1",
        ),
    ],
)
def test_words_and_signs_that_chardet_takes_for_others(text: str, encoding: str) -> None:
    data = text.encode(encoding) * 20
    assert data.decode(found_in(data)) == text * 20


def test_the_same_few_words_again_and_again() -> None:
    text = "".join(f"café bière naïve garçon {number}\n" for number in range(17_000))
    assert found_in(text.encode("cp1252")) == "cp1252"


OLD = [("zh", "gb18030"), ("ja", "cp932"), ("ja", "euc_jis_2004"), ("ru", "koi8-r")]


@pytest.mark.parametrize(("language", "encoding"), OLD)
@pytest.mark.parametrize("shift", range(4))
def test_the_sample_may_end_within_a_character(language: str, encoding: str, shift: int) -> None:
    text = (LEGACY[language][0] + "\n" * shift + LEGACY[language] * 500).encode(encoding)
    assert len(text) > DETECTION_BYTES
    assert found_in(text) == encoding


@pytest.mark.parametrize(("language", "encoding"), OLD)
def test_a_damaged_byte_hides_no_encoding(language: str, encoding: str) -> None:
    text = LEGACY[language].encode(encoding)
    assert found_in(5 * text + b"\xff\xff" + text) == encoding


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("Größe".encode(), "utf-8"),
        ("naïve café".encode() + b" \xe2\x82", "utf-8"),
        ("Größe".encode("cp1252"), "cp1252"),
        ("fiancée and résumé".encode("cp1252"), "cp1252"),
        (b"it\x92s", "cp1252"),
    ],
)
def test_few_bytes_are_utf8_or_windows(data: bytes, encoding: str) -> None:
    assert found_in(data) == encoding


def test_encoding_may_be_named(tmp_path: Path) -> None:
    source, tally = file_of(b"\xe9", tmp_path, "cp437"), Tally()
    assert b"".join(utf8([b"\xe9"], source, tally)).decode() == "Θ"
    assert tally.encodings == {"a.txt": "cp437"}
    assert list(utf8([b"\xe9"], file_of(b"\xe9", tmp_path, "utf-8"), tally)) == [b"\xe9"]


ASCII = b"A line without an accent, as most are.\n"


@pytest.mark.parametrize(("language", "encoding"), [*OLD, ("fr", "cp1252"), ("pl", "cp1250")])
def test_text_behind_megabytes_of_ascii_decides(language: str, encoding: str) -> None:
    lines = [line.encode(encoding) + b"\n" for line in LEGACY[language].split(". ")]
    assert found_in(ASCII * 80_000 + b"".join(lines) + ASCII * 80_000) == encoding


@pytest.mark.parametrize("shift", range(40))
def test_one_accent_anywhere_is_seen(shift: int) -> None:
    start = (1 << 20) - 20 + shift
    text = b"x" * start + "café au lait".encode("cp1252") + ASCII * 1000
    assert found_in(text) == "cp1252"
    assert found_in(text.replace(b"\xe9", "é".encode())) == "utf-8"


def test_broken_bytes_make_no_other_encoding_of_utf8() -> None:
    good, broken = LEGACY["ru"].encode(), LEGACY["fr"].encode("cp1252")
    assert found_in(good + ASCII * 9000 + broken) == "utf-8"
    assert found_in(broken + ASCII * 9000 + good) == "utf-8"
    assert found_in(good + ASCII * 9000 + 99 * broken) == "cp1252"
    enough = "é".encode() * ENOUGH_CHARACTERS
    assert found_in(enough + ASCII * 30_000 + 9999 * broken) == "utf-8"


@settings(max_examples=10)
@given(st.lists(st.integers(0, 2_500_000), max_size=5))
def test_the_decision_does_not_depend_on_blocks(cuts: list[int]) -> None:
    """The characters that decide end within a block."""
    half = ENOUGH_CHARACTERS // 2
    text = ASCII * 20_000 + "é".encode("cp1252") * half + ASCII * 20_000 + "é".encode() * half
    assert decide(lambda: in_blocks(text, cuts)) == found_in(text) == "utf-8"
    assert decide(lambda: in_blocks(b"\xe9" + text, cuts)) == found_in(b"\xe9" + text) != "utf-8"
