"""What polars reads at once is what is read line by line, or it is not read at once."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.documents.material import parameters
from tokenmill.documents.quick_lines import quick_texts
from tokenmill.documents.readers import texts_of_lines
from tokenmill.documents.report import Tally
from tokenmill.documents.sources import Source, find

TEXT = st.text(max_size=12)  # with lone surrogates
VALUE = st.one_of(TEXT, st.none(), st.booleans(), st.integers(), st.floats(), st.lists(TEXT, max_size=2))
KEY = st.sampled_from(["text", "messages", "conversations", "body", "x"])
RECORD = st.lists(st.tuples(KEY, st.one_of(VALUE, st.dictionaries(KEY, VALUE, max_size=2))), max_size=3)
PLAIN = st.builds(lambda text, other: [("x", other), ("text", text)], TEXT, VALUE)


def written(pairs: list[tuple[str, Any]], *, ascii_only: bool) -> bytes:
    """A record in which a key may stand twice."""
    inside = ", ".join(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=ascii_only)}" for key, value in pairs)
    return f"{{{inside}}}".encode("utf-8", "surrogatepass")


LINE = st.one_of(
    st.builds(written, PLAIN, ascii_only=st.booleans()),
    st.builds(written, RECORD, ascii_only=st.booleans()),
    st.sampled_from([b"", b" ", b"{", b'"text"', b"[1]", b'{"text": "\xff"}', b'{"text":"a"} {"text":"b"}']),
    st.sampled_from([b'{"t\\u0065xt": "a"}', b'{"text" : "a"}', b'{"text": "\\ufdd0"}', b'{"text": "a\x01"}']),
    st.sampled_from([b'{"x": {"text": "in"}, "text": 5}', b'{"n": 1e999, "text": "a"}', b'{"text": "a"}\r']),
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    path = Path(tmp_path_factory.mktemp("raw")) / "a.jsonl"
    path.write_bytes(b"{}")
    return find(path).sources[0]


@given(lines=st.lists(LINE, max_size=4), ends=st.booleans(), columns=st.sampled_from([None, ["text"], ["x", "text"]]))
def test_at_once_gives_what_line_by_line_gives(
    source: Source, lines: list[bytes], ends: bool, columns: list[str] | None
):
    data, params, tally = b"\n".join(lines) + b"\n" * ends, parameters(columns=columns), Tally()
    at_once = quick_texts(data, params)
    if at_once is not None:
        slowly = list(texts_of_lines([data], source, params, tally, first=False))
        assert at_once.to_list() == slowly
        assert (tally.dropped.total(), tally.invalid_utf8) == (0, 0)


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=1), key=st.sampled_from(["text", "é"])
)
def test_plain_records_are_read_at_once(texts: list[str], key: str):
    kept = [text.replace("text", "").replace("é", "").replace("\ufdd0", "").replace("\0", "") for text in texts]
    data = "".join(json.dumps({"n": 1, key: text}, ensure_ascii=False) + "\n" for text in kept).encode()
    at_once = quick_texts(data, parameters(columns=None if key == "text" else [key]))
    assert at_once is not None
    assert at_once.to_list() == kept
