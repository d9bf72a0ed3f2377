import codecs
import datetime as dt
import itertools
import json
import sys
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.material import PACK, in_blocks, json_lines, parameters, parquet
from tokenmill.core.errors import UserError
from tokenmill.data import json_records, readers
from tokenmill.data.csv_records import csv_rows
from tokenmill.data.json_records import json_lines as read_lines
from tokenmill.data.json_records import json_values, lines
from tokenmill.data.readers import (
    SHORTEST,
    Rows,
    Table,
    cut_plain_text,
    documents,
    plain_texts,
)
from tokenmill.data.record_text import record_texts
from tokenmill.data.report import Tally
from tokenmill.data.sources import Source, find_sources
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats.chat import render_chat
from tokenmill.words.cleaning import cleaning_in_words
from tokenmill.words.units import counted

ROWS = [
    {"instruction": f"Question {i}?", "input": None, "output": f"Änswer\n{i}, “{i}”"}
    for i in range(50)
]


def csv_bytes(rows) -> bytes:
    quoted = [
        ",".join('"' + str(value or "").replace('"', '""') + '"' for value in row.values())
        for row in rows
    ]
    return "\r\n".join([",".join(rows[0]), *quoted]).encode()


FORMATS = {
    ".jsonl": json_lines(ROWS),
    ".ndjson": json_lines(ROWS),
    ".json": json.dumps(ROWS, indent=1).encode(),
    ".csv": csv_bytes(ROWS),
    ".parquet": parquet(ROWS),
}


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_and_compression_gives_the_same_texts(tmp_path, run, kind, ending):
    path = tmp_path / f"mes données{kind}{ending}"
    path.write_bytes(PACK[ending](FORMATS[kind]))
    documents, report = run(path, mode="none")
    assert documents == [
        render_chat([("user", f"Question {i}?"), ("assistant", f"Änswer\n{i}, “{i}”")])
        for i in range(50)
    ]
    assert report.documents.read == report.documents.kept == 50


@pytest.mark.parametrize("kind", FORMATS)
def test_cells_of_one_source_hide_no_text_of_another(tmp_path, run, kind):
    """In a table of both they are null, in a CSV empty, and NaN in what pandas' records become."""
    rows = [
        {"text": "one", "prompt": None, "completion": None},
        {"text": None, "prompt": "Hi", "completion": "Ho"},
    ]
    data = {
        ".jsonl": json_lines(rows).replace(b"null", b"NaN"),
        ".ndjson": json_lines(rows),
        ".json": json.dumps(rows).replace("null", "NaN").encode(),
        ".csv": csv_bytes(rows),
        ".parquet": parquet(rows),
    }
    (tmp_path / f"a{kind}").write_bytes(data[kind])
    chat = render_chat([("user", "Hi"), ("assistant", "Ho")])
    assert run(tmp_path, mode="none")[0] == ["one", chat]


def test_a_mark_where_files_were_joined_costs_no_record(tmp_path, run):
    data = codecs.BOM_UTF8 + json_lines([{"text": "one"}])
    (tmp_path / "a.jsonl").write_bytes(data + data.replace(b"one", b"two"))
    documents, report = run(tmp_path)
    assert (documents, report.dropped["invalid_record"]) == (["one", "two"], 0)


RECORDS = st.lists(
    st.fixed_dictionaries({"text": st.text('ab"\\\n\u00e9\U0001f600[]{}\ufdd1', max_size=20)}),
    max_size=6,
)
CUTS = st.lists(st.integers(0, 400))
SIZES = st.sampled_from([1, 30, 1 << 20])
"""Bytes of a JSON file that are parsed at once."""


@given(RECORDS, CUTS, SIZES, st.booleans())
def test_blocks_do_not_matter_to_json(records, cuts, size, ascii_only):
    data = json.dumps(records, ensure_ascii=ascii_only).encode()
    with patch.object(json_records, "BLOCK_BYTES", size):
        assert list(json_values(in_blocks(data, cuts), "a.json")) == records
        assert list(json_values(in_blocks(data, list(range(len(data)))), "a.json")) == records


TOKENS = (
    *("[", "]", "{", "}", '"', ",", ":", "\\", "a", "1", " ", "\n", "-", "é", "true", "null"),
    *('"a"', '"b":', '{"item": 1}', "[]", "{}", ', "y"', '["a"]', '\\"', "\\\\", "\\u00e9"),
)
"""Of these a file of JSON is made, as often as not a broken one."""


def values_of_python(text: str) -> list[Any] | None:
    """The elements of the lists in a text and the values between them; None if it is not JSON."""
    found = []
    while text := text.lstrip(" \t\n\r"):
        try:
            value, end = json.JSONDecoder(parse_float=Decimal).raw_decode(text)
        except ValueError:
            return None
        found += value if isinstance(value, list) else [value]
        text = text[end:]
    return found


@given(
    st.lists(
        st.lists(st.sampled_from(TOKENS), max_size=6).map("".join)
        | RECORDS.map(json.dumps)
        | st.sampled_from(TOKENS),
        max_size=6,
    ).map("".join),
    CUTS,
    SIZES,
)
def test_json_of_any_mixture_is_what_python_reads(text, cuts, size):
    """Lists, records and other values follow one another, in blocks that end anywhere."""
    try:
        with patch.object(json_records, "BLOCK_BYTES", size):
            found = list(json_values(in_blocks(text.encode(), cuts), "a.json"))
    except UserError:
        found = None
    assert found == values_of_python(text)


@given(RECORDS, CUTS, st.booleans())
def test_blocks_do_not_matter_to_json_lines(records, cuts, ascii_only):
    data = "\r\n".join(json.dumps(record, ensure_ascii=ascii_only) for record in records).encode()
    source = Source("a.jsonl", "a.jsonl", ".jsonl", None, len(data), (0, 0), "utf-8")
    assert list(read_lines(in_blocks(data, cuts), source, Tally())) == records
    assert list(json_values(in_blocks(data, cuts), "a.json")) == records


@given(RECORDS, CUTS)
def test_blocks_do_not_matter_to_csv(records, cuts):
    rows = [{"text": record["text"] or None, "n": "1"} for record in records]
    data = csv_bytes(rows) if rows else b"text,n\r\n"
    assert list(csv_rows(in_blocks(data, cuts), "a.csv", Tally())) == rows


@pytest.mark.parametrize("kind", [".jsonl", ".json"])
@pytest.mark.parametrize(
    ("raw", "text", "damaged"),
    [
        (rb'"a\ud800b"', "a\ufffdb", 1),
        (rb'"\udc80\ud83d\ude00\\ud800"', "\ufffd\U0001f600\\ud800", 1),
        (rb'"a\ufffdb"', "a\ufffdb", 0),
        (b'"a\xffb\xe2\x82c' + "über".encode() + b'\xc3\xbc"', "a\ufffdb\ufffdcüberü", 1),
        (rb'"nul\u0000"', "nul\0", 0),
        (b"18446744073709551617", "18446744073709551617", 0),
    ],
)
def test_damage_in_json_is_replaced_and_counted(tmp_path, run, kind, raw, text, damaged):  # noqa: PLR0917
    path = tmp_path / f"a{kind}"
    path.write_bytes(b'{"text": ' + raw + b"}")
    documents, report = run(path, mode="none")
    assert (documents, report.invalid_utf8) == ([text], damaged)


@given(
    st.lists(st.integers() | st.floats(allow_nan=False, allow_infinity=False), min_size=1),
    st.sampled_from(["id", "text"]),
)
def test_numbers_in_json_are_those_of_python(numbers, key):
    data = json.dumps([{"text": "x"} | {key: number} for number in numbers]).encode()
    found = list(record_texts(json_values([data], "a.json"), "a.json", None, Tally()))
    assert found == [str(number) if key == "text" else "x" for number in numbers]


@given(st.text('\\ud8c0"', max_size=30), CUTS)
def test_escapes_may_be_cut_anywhere(text, cuts):
    data = b'["' + text.replace('"', '", "').encode() + b' x"]'

    @patch.object(json_records, "BLOCK_BYTES", 1)
    def outcome(blocks):
        try:
            return list(json_values(blocks, "a.json"))
        except UserError:
            return None

    assert outcome(in_blocks(data, cuts)) == outcome([data])


@pytest.mark.parametrize(("columns", "refused"), [(None, True), (["id"], False)])
def test_a_table_with_a_column_of_text_twice_is_refused(tmp_path, run, columns, refused):
    (tmp_path / "a.csv").write_text("text,id,text\nfoo,1,bar\n")
    if not refused:
        assert run(tmp_path, columns=columns)[0] == ["1"]
        return
    with pytest.raises(UserError, match=r"a\.csv .*'text'"):
        run(tmp_path, columns=columns)


def test_damage_in_text_and_csv(tmp_path, run):
    (tmp_path / "a.txt").write_bytes("Noël, où".encode() + b" \xff\xff au lait")
    (tmp_path / "b.txt").write_bytes("genuine \ufffd".encode())
    (tmp_path / "c.csv").write_bytes("id;text\n1;Noël, où, ".encode() + b"\xff x\n2;fine\n")
    documents, report = run(tmp_path, mode="none")
    assert documents == [
        "Noël, où \ufffd\ufffd au lait",
        "genuine \ufffd",
        "Noël, où, \ufffd x",
        "fine",
    ]
    assert report.invalid_utf8 == 2


def test_byte_order_marks_and_utf16_everywhere(tmp_path, run):
    for kind in (".jsonl", ".json", ".csv"):
        (tmp_path / f"u16{kind}").write_bytes(FORMATS[kind].decode().encode("utf-16"))
        (tmp_path / f"u8{kind}").write_bytes(b"\xef\xbb\xbf" + FORMATS[kind])
    documents, report = run(tmp_path)
    assert len(documents) == 50
    assert report.dropped["duplicate"] == 250
    (tmp_path / "bare.txt").write_bytes("plain words in sixteen bits".encode("utf-16-le"))
    documents, report = run(tmp_path)
    assert documents[0] == "plain words in sixteen bits"
    assert report.encoded["bare.txt"] == "utf-16-le"


def test_encodings_are_named_by_file(tmp_path, run):
    (tmp_path / "a.txt").write_bytes("Все люди рождаются свободными и равными".encode("koi8-r"))
    (tmp_path / "b.csv").write_bytes("text;n\nGröße und Straße;1\n".encode("cp1252"))
    (tmp_path / "c.txt").write_bytes("Größe".encode())
    documents, report = run(tmp_path)
    assert documents == ["Все люди рождаются свободными и равными", "Größe und Straße", "Größe"]
    assert report.encoded == {"a.txt": "koi8-r", "b.csv": "cp1252"}
    assert report.encodings == {"koi8-r": 1, "cp1252": 1}
    assert report.invalid_utf8 == 0


@pytest.mark.parametrize(
    "data",
    [
        b'{"text": "one"}',
        b' \n[{"text": "one"}]\n',
        b'{"text": "one"}{"text": "one"}',
        b'["one"]',
        b'"one"',
    ],
)
def test_json_files_of_every_shape(tmp_path, run, data):
    (tmp_path / "a.json").write_bytes(data)
    assert run(tmp_path / "a.json")[0] == ["one"]


@pytest.mark.parametrize("kind", [".jsonl", ".json", ".parquet"])
def test_the_report_counts_what_is_no_text(tmp_path, run, kind):
    parts = [{"type": "text", "text": "Hi"}, {"type": "image_url", "text": None}]
    rows = [
        {"messages": [{"role": "user", "content": parts[:count]}], "system": "Be brief."}
        for count in (1, 2, 2)
    ]
    forms = {".jsonl": json_lines, ".json": lambda rows: json.dumps(rows).encode()}
    (tmp_path / f"a{kind}").write_bytes(forms.get(kind, parquet)(rows[:1]))
    documents, report = run(tmp_path)
    assert documents == [render_chat([("system", "Be brief."), ("user", "Hi")])]
    assert "unread" not in report.model_dump()
    (tmp_path / f"b{kind}").write_bytes(forms.get(kind, parquet)(rows))
    assert run(tmp_path)[1].model_dump()["unread"] == {"image_url": 2}
    assert "2 image_url" in cleaning_in_words(run(tmp_path)[1])


@pytest.mark.parametrize(
    "data", [b'["one"] {"text": "two"}["three"]', b'{"text": "one"}["two", {"text": "three"}]']
)
def test_lists_and_records_follow_one_another(tmp_path, run, data):
    (tmp_path / "a.json").write_bytes(data)
    documents, report = run(tmp_path / "a.json", mode="none")
    assert (documents, report.documents.read) == (["one", "two", "three"], 3)


@pytest.mark.parametrize(
    "data",
    [
        *(b'[{"text": "one"},', b'[{"text": "one"}', b"not json", b'{"text": "one"} x'),
        *(b'["one"] "two, which does not end', b'[{"text": "one", "n": Nan}]'),
    ],
)
def test_broken_json_is_refused_by_name(tmp_path, run, data):
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(UserError, match=r"a\.json is not valid JSON"):
        run(tmp_path / "a.json")
    assert not run.out.exists()


LONG = b"1" * (sys.int_info.default_max_str_digits + 1)


@pytest.mark.parametrize("number", [LONG, b"-" + LONG, b"1e" + b"9" * 20])
@pytest.mark.parametrize("step", [1000, 10_000])
def test_a_number_beyond_python_is_refused(number, step):
    """In blocks that end within it, and in one."""
    data = b'[{"text": "one", "n": ' + number + b"}]"
    with pytest.raises(UserError, match=r"^a\.json holds a number with too many digits; write"):
        list(json_values(in_blocks(data, list(range(step, len(data), step))), "a.json"))


@pytest.mark.parametrize("step", [7, 1000, 100_000])
def test_digits_in_text_and_shorter_numbers_are_read(step):
    values = [LONG.decode(), int(LONG[1:]), f'\\"{int(LONG[1:])}\\" "\\', int(LONG[1:]), 5]
    data = json.dumps(values).encode()
    blocks = in_blocks(data, list(range(step, len(data), step)))
    assert list(json_values(blocks, "a.json")) == values


def test_bad_lines_and_rows_are_counted(tmp_path, run):
    (tmp_path / "a.jsonl").write_bytes(
        b'{"text": "one"}\n{bad\n\n{"text": "two"\n{"other": 1}\n{"text": "two", "x": NaN}\n5'
    )
    (tmp_path / "b.csv").write_bytes(b"text,n\nthree,1\n\nfour, five,2\nsix\n")
    documents, report = run(tmp_path)
    assert documents == ["one", "two", "three", "six"]
    assert report.metrics() == {
        "documents_read": 9,
        "documents_kept": 4,
        "dropped_empty": 0,
        "dropped_too_short": 0,
        "dropped_too_long": 0,
        "dropped_duplicate": 0,
        "dropped_invalid_record": 3,
        "dropped_no_text": 2,
        "characters_in": 14,
        "characters_out": 14,
        "invalid_utf8": 0,
        "files_read": 2,
        "files_skipped": 0,
        "files_held_out": 0,
    }


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("lines", [1, 2])
def test_a_file_without_a_valid_line_is_refused(tmp_path, run, ending, lines):
    (tmp_path / f"a.jsonl{ending}").write_bytes(PACK[ending](b"plain\n" * lines))
    (tmp_path / "b.txt").write_text("good")
    with pytest.raises(UserError, match=f"a.jsonl.* {counted(lines, 'line')} "):
        run(tmp_path)


@pytest.mark.parametrize("ending", PACK)
def test_a_first_line_as_long_as_a_chunk_may_be_invalid(tmp_path, run, monkeypatch, ending):
    monkeypatch.setattr(ThreadExecutor, "task_bytes", 100)
    data = b'{"text": "' + b"x" * 200 + b"\n" + json_lines([{"text": "good"}])
    (tmp_path / f"a.jsonl{ending}").write_bytes(PACK[ending](data))
    documents, report = run(tmp_path)
    assert documents == ["good"]
    assert report.dropped["invalid_record"] == 1


def test_a_list_of_records_and_other_messages_are_told(tmp_path, run):
    (tmp_path / "a.jsonl").write_bytes(json_lines([[{"text": "one"}]]))
    with pytest.raises(UserError, match=r"a\.jsonl: its first record is a list; name it \.json"):
        run(tmp_path)
    (tmp_path / "a.jsonl").write_bytes(json_lines([{"messages": {"role": ["user"]}}]))
    with pytest.raises(UserError, match=r"\(it has: messages\).* make messages a list of messages"):
        run(tmp_path)


@pytest.mark.parametrize("kind", FORMATS)
def test_unknown_shapes_and_columns_are_named(tmp_path, run, kind):
    rows = [{"title": "T", "story": "S"}]
    data = dict.fromkeys((".jsonl", ".ndjson"), json_lines(rows))
    data |= {".json": json.dumps(rows).encode(), ".csv": csv_bytes(rows)}
    path = tmp_path / f"a{kind}"
    path.write_bytes(data.get(kind) or parquet(rows))
    with pytest.raises(UserError, match=r"title, story.*clean.columns"):
        run(path)
    with pytest.raises(UserError, match=r"clean.columns \(plot\).* title, story"):
        run(path, columns=["plot"])
    with pytest.raises(UserError, match=r"lacks clean.columns"):
        run(path, columns=["title", "plot"])
    assert run(path, columns=["title", "story"])[0] == ["T\nS"]


def test_blank_lines_may_stand_before_a_header(tmp_path, run):
    (tmp_path / "a.csv").write_bytes(b"\r\n\r\nn;text\r\n1;one\r\n2;two\r\n")
    assert run(tmp_path)[0] == ["one", "two"]
    (tmp_path / "a.csv").write_bytes(b'\n\ntext\n"open')
    with pytest.raises(UserError, match=r"a\.csv, line 4: "):
        run(tmp_path)


def test_a_line_before_a_header_names_the_delimiter(tmp_path, run):
    """As Excel writes it; by the header's own signs it would be another one."""
    (tmp_path / "a.csv").write_bytes(b'sep=;\r\n"a,b,c";text\r\n1;one\r\n2;two\r\n')
    (tmp_path / "b.csv").write_bytes(b'"sep=\t"\ntext\tn\nthree\t1')
    assert run(tmp_path)[0] == ["one", "two", "three"]


def test_a_field_of_megabytes_and_an_open_quote(tmp_path, run):
    """Behind an open quote, every other row would be text of one field."""
    (tmp_path / "a.csv").write_bytes(b'text\n"' + b"word " * 500_000 + b'"\n')
    assert len(run(tmp_path / "a.csv")[0][0]) == 2_499_999
    (tmp_path / "a.csv").write_bytes(b'text\nx\n"open\nand so on')
    with pytest.raises(UserError, match=r"a\.csv, line 3: "):
        run(tmp_path / "a.csv")


def test_a_cell_beyond_the_bound_is_no_text(tmp_path, run, monkeypatch):
    monkeypatch.setattr("tokenmill.data.readers.MAX_RECORD_BYTES", 10)
    cells = [
        ("é" * 6, "first"),
        ("é" * 5, None),
        ("é" * 6, None),
        (None, None),
        ("short", "b" * 11),
    ]
    rows = [{"text": text, "context": context} for text, context in cells]
    (tmp_path / "a.parquet").write_bytes(parquet(rows))
    documents, report = run(tmp_path / "a.parquet")
    assert documents == ["é" * 5]
    assert {reason: n for reason, n in report.dropped.items() if n} == {"no_text": 3, "empty": 1}


def test_binary_columns_and_times_of_a_table_are_text(tmp_path, run, monkeypatch):
    time = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
    rows = [
        {"text": "Größe".encode(), "parts": [b"a", b"b"], "day": time.date(), "time": time},
        {"text": b"\xff!", "parts": [], "day": None, "time": None},
        {"text": b"a" * 20, "parts": [], "day": None, "time": None},
    ]
    (tmp_path / "a.parquet").write_bytes(parquet(rows))
    monkeypatch.setattr("tokenmill.data.readers.MAX_RECORD_BYTES", 10)
    documents, report = run(tmp_path, mode="none")
    assert (documents, report.invalid_utf8) == (["Größe", "\ufffd!"], 1)
    assert report.dropped["no_text"] == 1
    columns = ["text", "parts", "day", "time"]
    assert run(tmp_path, mode="none", columns=columns)[0] == [
        "Größe\na\nb\n2024-05-06\n2024-05-06 07:08:09+00:00",
        "\ufffd!",
    ]


def test_times_beyond_the_years_of_python_are_no_text(tmp_path, run):
    first, behind = -719_162, 2_932_897
    day = pl.Series([[behind] * 2, [first] * 2], dtype=pl.Array(pl.Int32, 2))
    messages = pl.DataFrame({"role": ["user"] * 2, "content": ["a", "b"]})
    message = messages.with_columns(day.cast(pl.Array(pl.Date, 2)).alias("at")).to_struct()
    times = pl.Series([behind, first]).cast(pl.Int64) * 86_400_000
    columns = {
        "day": pl.Series([first - 1, behind - 1], dtype=pl.Int32).cast(pl.Date),
        "messages": message.reshape((2, 1)).arr.to_list(),
        "time": times.cast(pl.Datetime("ms")),
        "there": times.cast(pl.Datetime("ms", "America/New_York")),
        "left": pl.Series([1 << 60, 0]).cast(pl.Duration("ms")),
    }
    pl.DataFrame(columns).write_parquet(tmp_path / "a.parquet")
    chats = [render_chat([("user", one)]) for one in "ab"]
    assert run(tmp_path, mode="none")[0] == chats
    assert run(tmp_path, mode="none", columns=list(columns))[0] == [
        chats[0],
        f"9999-12-31\n{chats[1]}\n0001-01-01 00:00:00\n0:00:00",
    ]


def test_a_table_at_which_polars_panics_is_refused(tmp_path, run):
    data = bytearray(parquet([{"text": "hello"}, {"text": "world"}]))
    data[88] = 0
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(UserError, match=r"a\.parquet is not a readable parquet file"):
        run(tmp_path)


def test_a_line_beyond_the_bound_is_not_held(monkeypatch):
    monkeypatch.setattr("tokenmill.data.json_records.MAX_RECORD_BYTES", 1000)
    data = [b"short\n", b"x" * 600, b"x" * 600, b"\nlast"]
    assert list(lines(data)) == [b"short", None, b"last"]
    assert list(lines([b"a\n\nb\n"])) == [b"a", b"b"]


# --- text files

UNITS = ("file", "paragraph", "line")
SHORT_PARTS = patch.multiple(readers, SHORTEST=8, LONGEST=16)
NASTY = st.text(st.sampled_from("ab é\U0001f600\n\r\t \x00\u2028"), max_size=80).map(str.encode)


@SHORT_PARTS
@given(NASTY, st.lists(st.integers(0, 120)), st.sampled_from(UNITS))
def test_cutting_the_input_anywhere_gives_the_same_documents(data, cuts, unit):
    whole = list(documents([data], unit))
    assert list(documents(in_blocks(data, cuts), unit)) == whole
    assert list(documents(in_blocks(data, list(range(len(data)))), unit)) == whole


@patch.multiple(readers, SHORTEST=5, LONGEST=10)
@given(NASTY, st.lists(st.integers(0, 120)), st.sampled_from(UNITS), st.integers(1, 60))
def test_parts_of_text_have_its_documents(data, cuts, unit, size):
    source = Source("a.txt", "a.txt", ".txt", None, len(data), (0, 0))
    whole = list(documents([data], unit))
    for blocks in (in_blocks(data, cuts), in_blocks(data, list(range(len(data))))):
        parts = list(cut_plain_text(blocks, source, parameters(text_file=unit), size))
        assert b"".join(itertools.chain(*(part.blocks for part in parts))) == data
        found = (documents(part.blocks, unit, is_cut=part.is_cut) for part in parts)
        assert list(itertools.chain(*found)) == whole


@given(
    st.text(st.sampled_from("ab é\n\n\n\t\x0b\u2028\u00a0\ufdd1"), max_size=60),
    st.sampled_from(["", "", "\r", "\0", "\ufdd0"]),
    st.sampled_from(UNITS),
)
def test_all_at_once_are_the_same_documents(text, odd, unit):
    data = (text + odd + text).encode()
    params = parameters(text_file=unit)
    at_once = plain_texts(data, params)
    if at_once is not None:
        assert at_once.to_list() == [document.decode() for document in documents([data], unit)]
    assert (at_once is None) == (odd == "\ufdd0" or "\ufdd1" in text)


@pytest.mark.parametrize("unit", UNITS)
def test_all_at_once_cuts_long_documents_where_the_reader_does(unit):
    long = SHORTEST + 1
    blank = b" " * long
    for data in (
        b"x" * long + b"\n\ny",
        b"x " * long + b"\n\ny",
        b"x\n" + 2 * blank + b"\ny",
        b"x\n" + blank + b"\ny" + blank + b"z",
    ):
        found = plain_texts(data, parameters(text_file=unit))
        assert found is not None
        assert found.to_list() == [one.decode() for one in documents([data], unit)]


@pytest.mark.parametrize("unit", UNITS)
def test_all_at_once_leaves_invalid_bytes_to_the_reader(unit):
    for data in (b"x\xff\n\ny", b"x\r\xff", b"\xff"):
        assert plain_texts(data, parameters(text_file=unit)) is None


@SHORT_PARTS
@given(NASTY)
def test_parts_of_a_file_are_the_file(data):
    pieces = list(documents([data], "file"))
    assert b"".join(pieces) == data
    for piece in pieces:
        piece.decode()
        assert len(piece) <= 18
    assert all(len(piece) >= 8 for piece in pieces[:-1])


@given(
    st.lists(st.text("ab .é", min_size=1).filter(str.strip), min_size=1),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_lines_and_paragraphs_whatever_the_line_end(texts, end):
    data = [text.strip().encode() for text in texts]
    assert list(documents([end.encode().join(data)], "line")) == data
    assert list(documents([(end * 2).encode().join(data)], "paragraph")) == data


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        # Not before a blank
        (
            b"0123456789\n  x\nrest of the text",
            [b"0123456789\n  x\n", b"rest of the text"],
        ),
        (
            b"01234567890 2345678901234567890",
            [b"01234567890 ", b"2345678901234567890"[:16], b"890"],
        ),
        (b"x" * 40, [b"x" * 16, b"x" * 16, b"x" * 8]),
        (b"x" * 18, [b"x" * 18]),
    ],
)
@SHORT_PARTS
def test_where_a_long_document_is_cut(text, pieces):
    assert list(documents([text], "file")) == pieces


@SHORT_PARTS
def test_a_long_line_is_cut_too():
    assert list(documents([b"ab " * 10 + b"\nnext"], "line")) == [
        b"ab " * 3,
        b"ab " * 3,
        b"ab " * 4,
        b"next",
    ]


def test_blank_lines_are_no_documents_but_an_empty_file_is():
    assert list(documents([b"\n\na\n\n\n \n\nb\n\n"], "paragraph")) == [b"a", b"b"]
    assert list(documents([b"a\r\nb\r\n\r\nc"], "paragraph")) == [b"a\r\nb", b"c"]
    assert list(documents([b"\n\na\n\n"], "line")) == [b"a"]
    assert list(documents([b""], "file")) == [b""]
    assert list(documents([], "file")) == [b""]
    assert list(documents([b"a"], "file")) == [b"a"]


@pytest.fixture
def decoded(monkeypatch) -> list[int]:
    """The bytes of each table that polars makes of rows of a file, as they come."""
    sizes = []
    whole = pl.LazyFrame.collect

    def collect(table: pl.LazyFrame) -> pl.DataFrame:
        found = whole(table)
        sizes.append(int(found.estimated_size()))
        return found

    monkeypatch.setattr(pl.LazyFrame, "collect", collect)
    return sizes


def test_of_books_few_are_decoded_at_a_time(tmp_path, monkeypatch, decoded):
    books = [Random(number).randbytes(5_000).hex() for number in range(200)]
    (tmp_path / "a.parquet").write_bytes(parquet([{"text": book} for book in books]))
    monkeypatch.setattr(readers, "FIRST_BYTES", 40_000)
    monkeypatch.setattr(readers, "PARQUET_BYTES", 80_000)
    (source,) = find_sources(tmp_path / "a.parquet", [".parquet"]).sources
    places = list(readers.cut_parquet(Table(source), parameters(), 80_000, 1 << 16))
    tables = [Rows(Table(source), place) for place in (*places, range(200))]
    found = [list(table.texts(parameters(), Tally())) for table in tables]
    assert [*itertools.chain(*found)] == books * 2
    assert max(decoded) <= 100_000


def test_a_table_is_decoded_some_bytes_at_a_time(tmp_path, monkeypatch, decoded):
    texts_ = [f"{number} {'x' * 500}" for number in range(1005)]
    (tmp_path / "a.parquet").write_bytes(parquet([{"text": text, "n": 1} for text in texts_]))
    monkeypatch.setattr(readers, "PARQUET_ROWS", 10)
    monkeypatch.setattr(readers, "PARQUET_BYTES", 20_000)
    (source,) = find_sources(tmp_path / "a.parquet", [".parquet"]).sources
    for place in (range(1005), range(5, 1005)):
        decoded.clear()
        found = list(Rows(Table(source), place).texts(parameters(), Tally()))
        assert found == texts_[place.start :]
        assert max(decoded) <= 20_000
        assert len(decoded) < 40, "more than PARQUET_ROWS where they fit"


def test_a_range_of_chats_is_decoded_once(tmp_path, monkeypatch, decoded):
    """Of lists polars decodes a whole row group, however few of its rows are wanted."""
    rows = [{"messages": [{"role": "user", "content": f"{number}"}]} for number in range(100)]
    (tmp_path / "a.parquet").write_bytes(parquet(rows))
    monkeypatch.setattr(readers, "PARQUET_ROWS", 10)
    (source,) = find_sources(tmp_path / "a.parquet", [".parquet"]).sources
    found = list(Rows(Table(source), range(5, 95)).texts(parameters(), Tally()))
    assert found == [render_chat([("user", f"{number}")]) for number in range(5, 95)]
    assert len(decoded) == 2, "the number of rows, and the rows"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is full")
def test_a_copy_that_finds_no_room_is_named(tmp_path: Path, monkeypatch) -> None:
    """In the folder of temporary files, not where the clean text is written."""
    (tmp_path / "a.parquet.gz").write_bytes(PACK[".gz"](parquet([{"text": "one"}])))
    (tmp_path / "table.parquet").symlink_to("/dev/full")
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(tmp_path))
    (source,) = find_sources(tmp_path / "a.parquet.gz", {".parquet"}).sources
    with pytest.raises(OSError, match="No space") as error:
        list(readers.texts(source, parameters(), Tally()))
    assert error.value.filename == str(tmp_path / "table.parquet")
