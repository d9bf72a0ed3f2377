"""What polars reads at once is what is read line by line, or it is not read at once."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.material import parameters
from tokenmill.data.encoding import without_damage
from tokenmill.data.json_records import polars_texts, read_json_lines
from tokenmill.data.readers import FORMATS
from tokenmill.data.report import Tally
from tokenmill.data.sources import Part, Source, find_sources
from tokenmill.formats.chat import plain

TEXT = st.text(max_size=12)  # with lone surrogates
VALUE = st.one_of(
    TEXT, st.none(), st.booleans(), st.integers(), st.floats(), st.lists(TEXT, max_size=2)
)
KEY = st.sampled_from(["text", "messages", "conversations", "body", "x"])
RECORD = st.lists(
    st.tuples(KEY, st.one_of(VALUE, st.dictionaries(KEY, VALUE, max_size=2))), max_size=3
)
PLAIN = st.builds(lambda text, other: [("x", other), ("text", text)], TEXT, VALUE)


def written(pairs: list[tuple[str, Any]], *, ascii_only: bool) -> bytes:
    """A record in which a key may stand twice."""
    inside = ", ".join(
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=ascii_only)}" for key, value in pairs
    )
    return f"{{{inside}}}".encode("utf-8", "surrogatepass")


DOUBTFUL = [
    rb'{"text": "\ud800"}',
    rb'{"text": "a\udc00"}',
    rb'{"text": "\ud83d\ude00"}',
    rb'{"text": "\ud83d\uff0c"}',
    rb'{"text": "\uDBFF\uE000"}',
    rb'{"text": "\ufdd0"}',
    rb'{"text": "\u0000"}',
    rb'{"t\u0065xt": "a"}',
    b'{"text" : "a"}',
    b'{"text":\t"a"}',
    b'{"text": 1.50}',
    b'{"text": true}',
    b'{"text": null}',
    b'{"text": ["a"]}',
    b'{"text": {"text": "a"}}',
    b'{"body": "a"}',
    b'{"text": "a", "text": "b"}',
    b'{"text": "a", "text": 1.50}',
    b'{"text": true, "x": {"text": "a"}}',
    rb'{"t\u0065xt": null, "x": {"text": "a"}}',
    b'{"text": "a", "messages": [{"role": "user", "content": "b"}]}',
    b'{"text": "a", "conversations": [{"from": "human", "value": "b"}]}',
    b'{"text": "a", "conversation": []}',
    b'{"text": "a"} {"text": "b"}',
    b'{"text": "a\x01"}',
    b'{"text": "\xff"}',
    b'{"text": "a", "n": 1e999}',
    b'{"text": "a", "n": NaN}',
    b'{"text": "a"}\r',
    b'"text"',
    b"[1]",
    b"{",
    b" ",
    b"",
]
LINE = st.one_of(
    st.builds(written, PLAIN, ascii_only=st.booleans()),
    st.builds(written, RECORD, ascii_only=st.booleans()),
    st.sampled_from(DOUBTFUL),
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    path = Path(tmp_path_factory.mktemp("raw")) / "a.jsonl"
    path.write_bytes(b"{}")
    return find_sources(path, FORMATS).sources[0]


def compare(
    lines: list[bytes], source: Source, columns: list[str] | None, *, ends: bool = True
) -> None:
    data = b"\n".join(lines) + b"\n" * ends
    params = parameters(columns=columns)
    tally = Tally()
    at_once = polars_texts(data, params)
    if at_once is not None:
        assert at_once.to_list() == list(
            without_damage(read_json_lines(Part([data], first=False), source, params, tally), tally)
        )
        assert (tally.dropped.total(), tally.invalid_utf8) == (0, 0)


@pytest.mark.parametrize("columns", [None, ["text"]])
@pytest.mark.parametrize("line", DOUBTFUL)
def test_a_doubtful_line_is_read_correctly(source: Source, line: bytes, columns: list[str] | None):
    plain = b'{"text": "plain"}'
    compare([line], source, columns)
    compare([plain, line], source, columns)
    compare([line, plain], source, columns)


@given(
    lines=st.lists(LINE, max_size=4),
    ends=st.booleans(),
    columns=st.sampled_from([None, ["text"], ["x", "text"]]),
)
def test_polars_agrees_with_line_by_line(
    source: Source, lines: list[bytes], ends: bool, columns: list[str] | None
):
    compare(lines, source, columns, ends=ends)


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=1),
    key=st.sampled_from(["text", "é"]),
)
def test_polars_reads_plain_records(texts: list[str], key: str):
    kept = [
        plain(text).replace("text", "").replace("é", "").replace("\ufdd0", "").replace("\0", "")
        for text in texts
    ]
    data = "".join(
        json.dumps({"n": 1, key: text}, ensure_ascii=False) + "\n" for text in kept
    ).encode()
    at_once = polars_texts(data, parameters(columns=None if key == "text" else [key]))
    assert at_once is not None
    assert at_once.to_list() == kept
