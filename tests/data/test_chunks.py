"""Chunks only divide the work: the texts do not depend on them."""

import json
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.material import PACK, json_lines, parameters
from tests.data.test_encoding import LEGACY
from tokenmill.core.errors import UserError
from tokenmill.data import encoding
from tokenmill.data.chunks import Planner
from tokenmill.data.encoding import DAMAGE
from tokenmill.data.json_records import lines, whole_lines
from tokenmill.data.readers import FORMATS
from tokenmill.data.report import Tally
from tokenmill.data.sources import find_sources
from tokenmill.formats.chat import TURN_TOKENS
from tokenmill.formats.metrics import Example

NOT_IN_FILES = [DAMAGE, *TURN_TOKENS]
"""Characters that readers remove, because they mean something in documents."""

TEXTS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters=NOT_IN_FILES), max_size=30),
    min_size=1,
    max_size=20,
)


def read(raw: Path, size: int) -> tuple[list[tuple[str, str]], list[str], Tally]:
    """All texts with their files, how each chunk is read, and the counts."""
    total = Tally()
    found = []
    kinds = []
    for chunk in Planner(parameters(text_file="line"), lambda _: None, size).chunks(
        find_sources(raw, FORMATS).sources
    ):
        tally = Tally()
        found += zip(*chunk.read(parameters(text_file="line"), tally), strict=True)
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
    assert set(kinds) == {"_read_block"}


@given(
    data=st.binary(max_size=60).map(lambda data: data.replace(b"\x00", b"\n")),
    size=st.integers(1, 20),
    cut=st.integers(1, 9),
)
def test_whole_lines_are_the_same_bytes_cut_at_line_ends(data, size, cut):
    blocks = [data[i : i + cut] for i in range(0, len(data), cut)]
    parts = list(whole_lines(blocks, size))
    assert b"".join(parts) == data
    assert all(part.endswith(b"\n") for part in parts[:-1])


def test_a_line_over_the_limit_takes_bounded_memory():
    limit = 16 << 20

    def stream():
        yield b'"before"\n'
        yield from (b"x" * (1 << 20) for _ in range(100))
        yield b'\n"after"\n'

    tracemalloc.start()
    parts = whole_lines(stream(), 1 << 20, limit)
    assert [line for part in parts for line in lines([part], limit)] == [
        b'"before"',
        None,
        b'"after"',
    ]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * limit


def test_files_of_every_kind_keep_their_order(tmp_path):
    (tmp_path / "a.txt").write_text("a1\na2\n")
    (tmp_path / "b.jsonl").write_bytes(json_lines([f"b{i}" for i in range(99)]))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(json_lines(["c1", "c2"])))
    (tmp_path / "d.csv").write_text("text\n" + "".join(f"d{i}\n" for i in range(99)))
    (tmp_path / "e.txt").write_text("e1\n")
    (tmp_path / "f.jsonl").write_text('"f1"\nnone\n"f2"\n', encoding="utf-16")
    expected, _, _ = read(tmp_path, 1 << 30)
    found, kinds, tally = read(tmp_path, 100)
    assert found == expected
    assert [text for text, _ in found][:3] == ["a1", "a2", "b0"]
    assert set(kinds) == {"_read_files", "_read_range", "_read_block", "_counted"}
    assert tally.dropped == {"invalid_record": 1}
    assert tally.examples == {"invalid_record": [Example(text="none", source="")]}


def test_the_bytes_of_chunks_are_those_on_disk(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(json_lines([f"a{i}" for i in range(99)]))
    (tmp_path / "b.jsonl.zst").write_bytes(zstandard.compress(json_lines(["b1", "b2"])))
    (tmp_path / "c.txt").write_text("c")
    told = []
    chunks = list(
        Planner(parameters(), told.append, 100).chunks(find_sources(tmp_path, FORMATS).sources)
    )
    assert sum(chunk.size for chunk in chunks) + sum(told) == sum(
        s.size for s in find_sources(tmp_path, FORMATS).sources
    )


def test_many_small_files_in_few_chunks(tmp_path):
    for i in range(3000):
        (tmp_path / f"{i:04}.txt").write_text(str(i))
    found, kinds, _ = read(tmp_path, 8 << 20)
    assert [text for text, _ in found] == [str(i) for i in range(3000)]
    assert kinds == ["_read_files"] * 3


ENCODED = {
    "cp1252": LEGACY["fr"],
    "koi8-r": LEGACY["ru"],
    "shift_jis": LEGACY["ja"],
    "gb18030": LEGACY["zh"],
    "utf-16": LEGACY["pl"],
    "utf-8": LEGACY["cs"],
}


def file_in(texts: list[str], ending: str) -> str:
    """A file of these texts; JSON is not escaped, so that its encoding matters."""
    if ending == ".jsonl":
        return "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
    if ending == ".json":
        return json.dumps(texts, ensure_ascii=False)
    if ending == ".csv":
        return "text\n" + "".join(f'"{text}"\n' for text in texts)
    return "\n".join(texts)


@pytest.mark.parametrize("written", ENCODED)
@settings(max_examples=40)
@given(
    ascii_chars=st.just(0) | st.integers((1 << 20) - 2000, (1 << 20) + 2000),
    before=st.integers(0, 300),
    after=st.integers(0, 99),
    size=st.integers(4, 5000) | st.just(1 << 20),
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
    found, _, tally = read(path, max(size, ascii_chars // 99))
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
    chunks = list(
        Planner(parameters(), lambda _: None, 100).chunks(find_sources(path, FORMATS).sources)
    )

    def watched(read):
        begun.append(read)
        return whole(read)

    monkeypatch.setattr(encoding, "decide", watched)
    with ThreadPoolExecutor(8) as pool:
        tallies = [Tally() for _ in chunks]
        found = list(
            pool.map(lambda chunk, tally: chunk.read(parameters(), tally), chunks, tallies)
        )
    assert sum(len(texts) for texts, _ in found) == 1000
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
    path.write_bytes(json_lines(["x" * 1_000_000, "after"]))
    found, kinds, _ = read(path, 1000)
    assert [len(text) for text, _ in found] == [1_000_000, 5]
    assert len(kinds) == 1_001


def test_a_plain_file_that_changes_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines(["a", "b", "c"]))
    chunks = list(
        Planner(parameters(), lambda _: None, 4).chunks(find_sources(path, FORMATS).sources)
    )
    with path.open("ab") as file:
        file.write(b'"d"\n')
    with pytest.raises(UserError, match="changed while it was read"):
        chunks[-1].read(parameters(), Tally())
    path.unlink()
    with pytest.raises(UserError, match="disappeared"):
        chunks[0].read(parameters(), Tally())
