"""Chunks only divide the work: the texts do not depend on them."""

import contextlib
import gzip
import itertools
import json
import math
import re
import tracemalloc
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest
import zstandard
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.data.material import (
    PACK,
    in_blocks,
    json_lines,
    parameters,
    parquet,
    read_whole,
)
from tests.data.test_encoding import LEGACY
from tokenmill.core.errors import UserError
from tokenmill.data import chunks as chunks_module
from tokenmill.data import detection, encoding, json_records, readers, sources
from tokenmill.data.chunks import Chunk, Planner, Read
from tokenmill.data.clean import clean
from tokenmill.data.csv_records import DELIMITERS, csv_rows, cut_csv
from tokenmill.data.encoding import DAMAGE
from tokenmill.data.json_records import (
    _Structure,
    cut_json,
    lines,
    whole_lines,
)
from tokenmill.data.params import CleanParams
from tokenmill.data.readers import FORMATS
from tokenmill.data.readers import texts as whole_texts
from tokenmill.data.report import Tally
from tokenmill.data.sources import MAX_RECORD_BYTES, Advance, Part, Source, find_sources
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats.chat import TURN_TOKENS
from tokenmill.formats.metrics import Example

NOT_IN_FILES = [DAMAGE, *TURN_TOKENS]
"""Characters that readers remove, because they mean something in documents."""

TEXTS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters=NOT_IN_FILES), max_size=30),
    min_size=1,
    max_size=20,
)


def planned(
    raw: Path, size: int, params: CleanParams | None = None, advance: Advance = lambda _: None
) -> list[Chunk]:
    """The chunks of about `size` bytes."""
    planner = Planner(params or parameters(), advance, size)
    return list(planner.chunks(find_sources(raw, FORMATS).sources))


def read(raw: Path, size: int) -> tuple[list[tuple[str, str]], list[str], Tally]:
    """All texts with their files, how each chunk is read, and the counts."""
    total = Tally()
    found = []
    kinds = []
    for chunk in planned(raw, size, parameters(text_file="line")):
        tally = Tally()
        found += read_whole(chunk, parameters(text_file="line"), tally)
        total.merge(tally)
        kinds.append(chunk.read.func.__name__)  # pyright: ignore[reportFunctionMemberAccess]
    return found, kinds, total


@given(
    texts=TEXTS,
    size=st.integers(4, 200),
    ends_with_newline=st.booleans(),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_ranges_of_any_size_give_every_line_once(
    tmp_path_factory, texts, size, ends_with_newline, mark
):
    path = tmp_path_factory.mktemp("raw") / "a.jsonl"
    data = b"".join(json.dumps(text, ensure_ascii=False).encode() + b"\n" for text in texts)
    path.write_bytes(mark + (data if ends_with_newline else data[:-1]))
    found, kinds, _ = read(path, size)
    assert found == [(text, "a.jsonl") for text in texts]
    assert set(kinds) == ({"_read_files"} if path.stat().st_size <= size else {"_read_range"})


@given(texts=TEXTS, size=st.integers(1, 200))
def test_an_archive_comes_in_blocks_of_whole_lines(tmp_path_factory, texts, size):
    path = tmp_path_factory.mktemp("raw") / "a.jsonl.zst"
    path.write_bytes(zstandard.compress(json_lines(texts)))
    found, kinds, _ = read(path, size)
    assert found == [(text, "a.jsonl.zst") for text in texts]
    assert set(kinds) <= {"_read_part", "_read_parts"}


def test_lines_of_records_are_read_from_any_on(tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, ".records", FORMATS[".jsonl"])
    path = tmp_path / "a.records"
    path.write_bytes(json_lines([str(n) for n in range(50)]))
    found, kinds, _ = read(path, 20)
    assert [text for text, _ in found] == [str(n) for n in range(50)]
    assert set(kinds) == {"_read_range"}


@given(
    data=st.binary(max_size=60).map(lambda data: data.replace(b"\x00", b"\n")),
    size=st.integers(1, 20),
    cut=st.integers(1, 9),
)
def test_whole_lines_are_the_same_bytes_cut_at_line_ends(data, size, cut):
    blocks = [data[i : i + cut] for i in range(0, len(data), cut)]
    parts = [b"".join(part) for part in whole_lines(blocks, size)]
    assert b"".join(parts) == data
    assert all(part.endswith(b"\n") for part in parts[:-1])


def test_a_line_over_the_limit_takes_bounded_memory(monkeypatch):
    limit = 16 << 20
    monkeypatch.setattr("tokenmill.data.json_records.MAX_RECORD_BYTES", limit)

    def stream():
        yield b'"before"\n'
        yield from (b"x" * (1 << 20) for _ in range(100))
        yield b'\n"after"\n'

    tracemalloc.start()
    parts = whole_lines(stream(), 1 << 20)
    assert [line for part in parts for line in lines(part)] == [
        b'"before"',
        None,
        b'"after"',
    ]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * limit


VALUES = st.recursive(
    st.one_of(
        st.text('ab"\\\n,é\U0001f600[]{}\ud800', max_size=8),
        st.integers(),
        st.floats(),
        st.none(),
        st.booleans(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["text", "a", "messages"]), inner, max_size=3),
    ),
    max_leaves=5,
)
MIXED = ['[{}] "a"\n[{}]', '"a" [{}] {"a": []}', '[] [] {"text": ""}[{}]']
BROKEN = ["", "[", "]", "{", "}", ",", ":", '"', "\\", "1", "x", " ", "[]", "{}", '"a"', "é"]


@st.composite
def json_file(draw: st.DrawFn) -> bytes:
    """Lists and other values one after the other, sometimes with something wrong."""
    values = draw(st.lists(VALUES, max_size=6))
    written = [json.dumps(one, ensure_ascii=draw(st.booleans())) for one in values]
    comma = draw(st.sampled_from([",", ", ", "\n,\n"]))
    text = draw(st.sampled_from(["[{}]", " [ {} ]\n", "[{}] [{}]", "{}", '["a", {}]', *MIXED]))
    inside = (comma if "[" in text else draw(st.sampled_from([" ", "\n", ""]))).join(written)
    text = text.replace("{}", inside)
    for wrong in draw(st.lists(st.sampled_from(BROKEN), max_size=2)):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + wrong + text[place:]
    return text.encode("utf-8", "surrogatepass")


def texts_or_refusal(
    parts: Iterable[Part], source: Source, params: CleanParams
) -> tuple[list[str], Tally] | str:
    read = FORMATS[source.format].read
    assert read
    tally = Tally()
    found = []
    try:
        for number, part in enumerate(parts):
            found += read(part._replace(first=number == 0), source, params, tally)
    except UserError as error:
        return re.sub(r"(valid JSON) \(.*\);|, line \d+:", r"\1;", str(error)).replace(":", ";")
    return found, tally


@given(
    data=json_file() | st.text('[]{}",:\\a1 ', max_size=30).map(str.encode),
    cuts=st.lists(st.integers(0, 200), max_size=20),
    size=st.integers(1, 30),
    columns=st.sampled_from([None, ["a"]]),
)
@example(data=b"[[{}]", cuts=[], size=1, columns=None)
def test_parts_of_json_have_its_records(data, cuts, size, columns):
    source = Source("a.json", "a.json", ".json", None, len(data), (0, 0))
    params = parameters(columns=columns)
    whole = texts_or_refusal([Part([data])], source, params)
    for blocks in (in_blocks(data, cuts), in_blocks(data, list(range(len(data))))):
        found = texts_or_refusal(cut_json(blocks, source, params, size), source, params)
        # What a part before the one that is not JSON lacks is found first
        assert found == whole or ("is not valid JSON" in whole and isinstance(found, str))


@pytest.mark.parametrize("data", [b'["a", "b"] "c" ', b'"a" {"text": "b"} ["c"]'])
def test_a_mixture_of_lists_and_records_is_cut(data):
    data *= 20
    source = Source("a.json", "a.json", ".json", None, len(data), (0, 0))
    parts = list(cut_json(in_blocks(data, list(range(0, len(data), 7))), source, parameters(), 20))
    assert len(parts) > 10
    assert texts_or_refusal(parts, source, parameters()) == (["a", "b", "c"] * 20, Tally())


HEADERS = [
    *("text\n", "text,a\r\n", "a;text\r", '"a\nb",text\n', '"te""xt,"\n', "a,b,c\n", "\n", ""),
    *("\n\ntext,a\n", "\r\n\r\na;text\r\n", "\r\rtext\r", "a,text,text\n"),
    *("sep=;\na,b;text\n", '"sep=,"\r\na;b,text\r\n', "\nsep=,\r\r\nsep=|\na,b,c|text\n", "sep=;"),
]


@given(
    header=st.sampled_from(HEADERS),
    rest=st.text('a",;|\t\r\n é\0', max_size=40),
    cuts=st.lists(st.integers(0, 60), max_size=20),
    size=st.integers(1, 30),
    columns=st.sampled_from([None, ["a"]]),
)
@example(header="text\n", rest='"a\n\nb"\r\n"a""\n', cuts=[9, 17], size=1, columns=None)
@example(header="text,a\n", rest="\n\n,\na,b\n", cuts=[], size=1, columns=None)
def test_parts_of_csv_have_its_rows(header, rest, cuts, size, columns):
    data = (header + rest).encode()
    source = Source("a.csv", "a.csv", ".csv", None, len(data), (0, 0))
    params = parameters(columns=columns)
    whole = texts_or_refusal([Part([data])], source, params)
    for blocks in (in_blocks(data, cuts), in_blocks(data, list(range(len(data))))):
        assert texts_or_refusal(cut_csv(blocks, source, params, size), source, params) == whole


@pytest.mark.parametrize("delimiter", DELIMITERS)
def test_a_csv_file_is_cut_between_rows(delimiter: str):
    rows = [f'{number}{delimiter}"a\n""{number}"""\r\n' for number in range(100)]
    header = f"number{delimiter}text\r\n"
    data = (header + "".join(rows)).encode()
    source = Source("a.csv", "a.csv", ".csv", None, len(data), (0, 0))
    parts = list(cut_csv(in_blocks(data, list(range(0, len(data), 7))), source, parameters(), 50))
    assert len(parts) > 15
    assert {part.before for part in parts[1:]} == {header.encode()}
    wholes = [b"".join(part.blocks) for part in parts]
    assert all(whole.endswith(b'"\r\n') for whole in wholes if whole)
    assert b"".join(wholes) == data


def test_a_quote_without_end_is_refused_where_its_row_begins():
    row = b'a,"' + b"x" * (1 << 20)
    blocks = [b'a,b\n1,"2\n"\n', *itertools.repeat(row, (MAX_RECORD_BYTES >> 20) + 9)]
    source = Source("a.csv", "a.csv", ".csv", None, 1 << 30, (0, 0))
    with pytest.raises(UserError, match=r"^a\.csv, line 4: "):
        list(cut_csv(blocks, source, parameters(), 1))


def test_a_line_too_long_to_be_held_is_not_taken_for_rows():
    cells = itertools.repeat(b"x" * (1 << 20), 20), [b","], itertools.repeat(b"y" * (1 << 20), 20)
    rows = csv_rows([b"a,b\n", *itertools.chain(*cells), b"\n1,2\n"], "a.csv", Tally())
    with pytest.raises(UserError, match=r"^a\.csv, line 2: a line of 33,554,432 characters"):
        list(rows)


def test_a_later_part_of_a_table_knows_no_line():
    """It does not know how many come before it."""
    for first, place in ((True, ", line 2"), (False, "")):
        with pytest.raises(UserError, match=f"^a\\.csv{place}: "):
            list(csv_rows([b'a,b\n1,"2\n'], "a.csv", Tally(), first=first))


TOKEN = re.compile(r'"(?:\\["\\]|\\(?!["\\])|[^"\\])*("?)|\\["\\]|.', re.DOTALL)


@given(st.lists(st.sampled_from(["[", "{", "]", "}", '"', "\\", "a"])), st.integers(1, 9))
def test_values_end_where_the_tokens_say_it(parts, size):
    """Found by reading one token after the other, whatever is in a string."""
    data = "".join(parts)
    element = value = outermost = 0
    opened = ""
    for token in TOKEN.finditer(data):
        if token[0] in ("[", "{"):
            outermost = outermost if opened else token.end()
            opened += token[0]
        elif token[0] in ("]", "}"):
            assume(opened)
            opened = opened[:-1]
        if token[0] in ("]", "}") or token[1]:
            value = value if opened else token.end()
            element = token.end() if opened == "[" else element
    structure = _Structure("a.json")
    found_element = found_value = 0
    for begin in range(0, len(data), size):
        structure.add(data[begin : begin + size].encode())
        found_element = begin + structure.element_end if structure.element_end else found_element
        found_value = begin + structure.value_end if structure.value_end else found_value
    assert found_value == value
    # Of a list that is closed the last one may be left out
    if opened[:1] == "[" and element > outermost:
        assert found_element == element


@settings(max_examples=60)
@given(
    texts=TEXTS,
    ending=st.sampled_from(list(FORMATS)),
    compression=st.sampled_from(list(PACK)),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "gb18030"]),
    unit=st.sampled_from(["file", "paragraph", "line"]),
    block=st.integers(1, 40),
    size=st.integers(3, 60),  # a chunk holds a byte-order mark
)
@example(
    texts=["a"], ending=".jsonl", compression="", encoding="utf-8-sig", unit="file", block=1, size=3
)
def test_parts_give_what_the_whole_file_gives(
    tmp_path_factory, *, texts, ending, compression, encoding, unit, block, size
):
    path = tmp_path_factory.mktemp("raw") / f"a{ending}{compression}"
    rows = [{"text": text, "context": None} for text in texts]
    data = parquet(rows) if ending == ".parquet" else file_in(texts, ending).encode(encoding)
    path.write_bytes(PACK[compression](data))
    params = parameters(text_file=unit)
    (source,) = find_sources(path, FORMATS, "auto" if encoding != "gb18030" else encoding).sources
    tally = Tally()
    try:
        whole = list(whole_texts(source, params, tally))
    except UserError as error:
        whole = str(error)
    total = Tally()
    found = []
    try:
        with (
            patch.object(sources, "BLOCK_BYTES", block),
            patch.object(readers, "PARQUET_ROWS", 3),
            patch.object(chunks_module, "POLARS_BYTES", 2 * size),
        ):
            for chunk in Planner(params, lambda _: None, size).chunks([source]):
                counts = Tally()
                found += [text for text, _ in read_whole(chunk, params, counts)]
                total.merge(counts)
    except UserError as error:
        found = str(error)
    assert found == whole
    if isinstance(whole, list):
        assert total == tally


def test_files_of_every_kind_keep_their_order(tmp_path):
    (tmp_path / "a.txt").write_text("a1\na2\n")
    (tmp_path / "b.jsonl").write_bytes(json_lines([f"b{i}" for i in range(99)]))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(json_lines(["c1", "c2"])))
    (tmp_path / "d.csv").write_text("text\n" + "".join(f"d{i}\n" for i in range(99)))
    (tmp_path / "e.txt").write_text("e1\n")
    (tmp_path / "f.jsonl").write_text('"f1"\nnone\n"f2"\n', encoding="utf-16")
    (tmp_path / "g.parquet.zst").write_bytes(zstandard.compress(parquet([{"text": "g1"}])))
    expected, _, _ = read(tmp_path, 1 << 30)
    found, kinds, tally = read(tmp_path, 100)
    assert found == expected
    assert [text for text, _ in found][:3] == ["a1", "a2", "b0"]
    assert set(kinds) == {"_read_files", "_read_range", "_read_rows", "_read_part", "_read_parts"}
    assert tally.dropped == {"invalid_record": 1}
    assert tally.examples == {"invalid_record": [Example(text="none", source="")]}


def test_the_bytes_of_chunks_are_those_on_disk(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(json_lines([f"a{i}" for i in range(99)]))
    (tmp_path / "b.jsonl.zst").write_bytes(zstandard.compress(json_lines(["b1", "b2"])))
    (tmp_path / "c.txt").write_text("c")
    told = []
    chunks = planned(tmp_path, 100, advance=told.append)
    assert sum(chunk.size for chunk in chunks) + sum(told) == sum(
        s.size for s in find_sources(tmp_path, FORMATS).sources
    )


@pytest.mark.parametrize("compression", PACK)
def test_rows_of_a_large_table_are_divided(tmp_path, monkeypatch, compression):
    rows = [{"text": "x" * 10}] * 24
    (tmp_path / f"a.parquet{compression}").write_bytes(PACK[compression](parquet(rows)))

    def sizes() -> list[int]:
        return [len(chunk.read(parameters(), Tally())[0]) for chunk in planned(tmp_path, 100)]

    assert len(sizes()) > 1
    assert sum(sizes()) == 24
    monkeypatch.setattr(chunks_module, "CHUNK_ROWS", 3)
    assert sizes() == [3] * 8


def test_small_tables_with_much_text_are_read_in_turns(tmp_path, monkeypatch):
    """Of joined ones, too, only so much is read at once."""
    texts = [f"{number} {'x' * 900}" for number in range(60)]
    for number in range(3):
        rows = [{"text": text} for text in texts[20 * number :][:20]]
        (tmp_path / f"{number}.parquet").write_bytes(parquet(rows))
    monkeypatch.setattr(readers, "PARQUET_ROWS", 5)
    monkeypatch.setattr(chunks_module, "POLARS_BYTES", 6000)
    (chunk,) = planned(tmp_path, 1 << 20)
    assert [text for text, _ in read_whole(chunk, parameters(), Tally())] == texts
    sizes = []
    read: Read | None = chunk.read
    while read:
        found, _, read = read(parameters(), Tally())
        sizes.append(found.str.len_bytes().sum())
    assert len(sizes) > 5
    assert max(sizes) < 2 * 6000 + 5 * 910


def test_many_small_files_in_few_chunks(tmp_path):
    for i in range(3000):
        (tmp_path / f"{i:04}.txt").write_text(str(i))
    found, kinds, _ = read(tmp_path, 8 << 20)
    assert [text for text, _ in found] == [str(i) for i in range(3000)]
    assert kinds == ["_read_files"] * 3


def test_many_small_archives_in_few_chunks(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for i in range(1500):
            archive.writestr(f"{i:04}.txt", str(i))
    for i in range(1500, 2100):
        (tmp_path / f"{i}.jsonl.gz").write_bytes(gzip.compress(json_lines([str(i)])))
    (tmp_path / "empty.jsonl.gz").write_bytes(gzip.compress(b""))
    found, kinds, _ = read(tmp_path, 8 << 20)
    assert sorted(text for text, _ in found) == sorted(str(i) for i in range(2100))
    assert kinds == ["_read_parts"] * 3
    assert len(planned(tmp_path, 400)) == math.ceil((4890 + 4200) / 400), "their bytes fill chunks"


def test_small_files_of_several_kinds_are_joined(tmp_path):
    """Each chunk costs some milliseconds, and in a folder the kinds may alternate."""
    for i in range(0, 1500, 3):
        (tmp_path / f"{i:04}.txt").write_text(str(i))
        (tmp_path / f"{i + 1:04}.txt.gz").write_bytes(gzip.compress(b"%d" % (i + 1)))
        (tmp_path / f"{i + 2:04}.parquet").write_bytes(parquet([{"text": str(i + 2)}]))
    found, kinds, _ = read(tmp_path, 8 << 20)
    assert [text for text, _ in found] == [str(i) for i in range(1500)]
    assert kinds == ["_read_parts"] * 2


def test_an_empty_archive_of_lines_is_no_chunk(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b""))
    assert planned(tmp_path, 100) == []


def test_the_error_of_the_first_file_is_raised(tmp_path):
    """Whether it is found where the files are cut or where they are read."""
    raw = tmp_path / "raw"
    raw.mkdir()
    broken, no_json = gzip.compress(b'"a"\n' * 99)[:-9], gzip.compress(b"a\nb\n")
    for number, data in enumerate([broken, no_json, broken]):
        (raw / f"{number}.jsonl.gz").write_bytes(data)
    for first in range(3):
        with pytest.raises(UserError, match=rf"{first}\.jsonl\.gz"), ThreadExecutor() as executor:
            clean(raw=raw, out=tmp_path / "out", params=parameters(), executor=executor)
        (raw / f"{first}.jsonl.gz").unlink()


ENCODED = {
    "cp1252": LEGACY["fr"],
    "koi8-r": LEGACY["ru"],
    "shift_jis": LEGACY["ja"],
    "gb18030": LEGACY["zh"],
    "iso2022_jp": LEGACY["ja"],
    "iso2022_kr": LEGACY["ko"],
    "utf-16": LEGACY["pl"],
    "utf-8": LEGACY["cs"],
}


def file_in(texts: list[str], ending: str) -> str:
    """A file of these texts; JSON is not escaped, so that its encoding matters."""
    if ending in (".jsonl", ".ndjson"):
        return "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
    if ending == ".json":
        return json.dumps(texts, ensure_ascii=False)
    if ending == ".csv":
        return "text\n" + "".join(f'"{text}"\n' for text in texts)
    return "\n".join(texts)


BLOCK = 1 << 14
"""Bytes that are read at a time where a mebibyte would take long."""


@pytest.mark.parametrize("written", ENCODED)
@settings(max_examples=25)
@given(
    ascii_chars=st.just(0) | st.integers(BLOCK - 2000, BLOCK + 2000),
    before=st.integers(0, 300),
    after=st.integers(0, 99),
    size=st.integers(4, 5000) | st.just(BLOCK),
    ending=st.sampled_from([".jsonl", ".json", ".csv", ".txt"]),
    compression=st.sampled_from(["", "", *PACK]),
)
def test_one_decision_holds_for_the_whole_file(
    tmp_path_factory, *, written, ascii_chars, before, after, size, ending, compression
):
    """Wherever the first foreign character is, however the file is packed and divided."""
    texts = ["x" * (1 + ascii_chars), *(f"Plain text {n}" for n in range(before))]
    texts.append(ENCODED[written])
    texts += [*(f"Plain again {n}" for n in range(after)), ENCODED[written] + " bis"]
    path = tmp_path_factory.mktemp("raw") / f"a{ending}{compression}"
    path.write_bytes(PACK[compression](file_in(texts, ending).encode(written)))
    with contextlib.ExitStack() as patches:
        for module in (sources, detection, chunks_module, json_records):
            patches.enter_context(patch.object(module, "BLOCK_BYTES", BLOCK))
        found, _, tally = read(path, max(size, path.stat().st_size // 99))
    assert [text for text, _ in found] == texts
    assert not tally.invalid_utf8
    assert len(tally.encodings) == (written != "utf-8")


def test_letters_behind_the_first_mebibyte_stay(tmp_path):
    path = tmp_path / "a.jsonl"
    texts = ["An ASCII text. " * 9] * 20_000 + [
        f"café {n} bière naïve garçon" for n in range(17_000)
    ]
    path.write_bytes(file_in(texts, ".jsonl").encode("cp1252"))
    for size in (1 << 20, 1 << 30):
        found, kinds, tally = read(path, size)
        assert [text for text, _ in found] == texts
        assert tally.encodings == {"a.jsonl": "cp1252"}
        assert set(kinds) == {"_read_files" if size == 1 << 30 else "_read_range"}


def test_a_file_is_read_once_more_to_decide(tmp_path, monkeypatch):
    path, begun, whole = tmp_path / "a.jsonl", [], encoding.decide
    path.write_bytes(file_in(["café bière naïve garçon"] * 1000, ".jsonl").encode("cp1252"))
    chunks = planned(path, 100)

    def watched(read):
        begun.append(read)
        return whole(read)

    monkeypatch.setattr(encoding, "decide", watched)
    with ThreadPoolExecutor(8) as pool:
        tallies = [Tally() for _ in chunks]
        found = list(
            pool.map(lambda chunk, tally: chunk.read(parameters(), tally), chunks, tallies)
        )
    assert sum(len(one.texts) for one in found) == 1000
    assert len(begun) == 1


def test_a_named_encoding_goes_by_any_of_its_names(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines(["a", "b", "c"]))
    for name in ("utf8", "UTF-8", "utf_8", "U8"):
        (source,) = find_sources(path, FORMATS, name).sources
        (chunk, *_) = Planner(parameters(), lambda _: None, 4).chunks([source])
        assert source.encoding == "utf-8"
        assert chunk.size == 4


def test_a_long_line_is_read_once_where_it_begins(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines(["x" * 200_000, "after"]))
    found, kinds, tally = read(path, 1000)
    assert not tally.dropped
    assert [len(text) for text, _ in found] == [200_000, 5]
    assert len(kinds) == 201


def test_rows_larger_than_the_first_are_read_in_turns(tmp_path, monkeypatch):
    """A range of rows may hold any amount of text, of which some is read at once."""
    texts = [*map(str, range(51)), *(f"{number} {'x' * 900}" for number in range(200))]
    (tmp_path / "a.parquet").write_bytes(parquet([{"text": text} for text in texts]))
    monkeypatch.setattr(readers, "PARQUET_ROWS", 5)
    monkeypatch.setattr(chunks_module, "POLARS_BYTES", 20_000)
    ranges = planned(tmp_path, 100)
    assert len(ranges) > 2
    assert sum(chunk.size for chunk in ranges) == (tmp_path / "a.parquet").stat().st_size
    whole = [text for chunk in ranges for text, _ in read_whole(chunk, parameters(), Tally())]
    assert whole == texts
    first = [chunk.read(parameters(), Tally()) for chunk in ranges]
    assert any(found.rest for found in first)
    assert max(found.texts.str.len_bytes().sum() for found in first) < 20_000 + 5 * 910
    monkeypatch.setattr(ThreadExecutor, "task_bytes", 100)
    report = clean(
        raw=tmp_path / "a.parquet",
        out=tmp_path / "out",
        params=parameters(),
        executor=ThreadExecutor(threads=2),
    )
    assert report.documents.kept == len(texts)


def test_a_plain_file_that_changes_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines(["a", "b", "c"]))
    chunks = planned(path, 4)
    with path.open("ab") as file:
        file.write(b'"d"\n')
    with pytest.raises(UserError, match="changed while it was read"):
        chunks[-1].read(parameters(), Tally())
    path.unlink()
    with pytest.raises(UserError, match="disappeared"):
        chunks[0].read(parameters(), Tally())
