import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.material import in_blocks
from tokenmill.data.plain_text import documents

UNITS = ("file", "paragraph", "line")
NASTY = st.text(st.sampled_from("ab é\U0001f600\n\r\t \x00\u2028"), max_size=80).map(str.encode)


@given(NASTY, st.lists(st.integers(0, 120)), st.sampled_from(UNITS))
def test_cutting_the_input_anywhere_gives_the_same_documents(data, cuts, unit):
    whole = list(documents([data], unit, shortest=8, longest=16))
    assert list(documents(in_blocks(data, cuts), unit, shortest=8, longest=16)) == whole
    assert list(documents(in_blocks(data, list(range(len(data)))), unit, shortest=8, longest=16)) == whole


@given(NASTY)
def test_parts_of_a_file_are_the_file(data):
    pieces = list(documents([data], "file", shortest=8, longest=16))
    assert b"".join(pieces) == data
    for piece in pieces:
        piece.decode()
        assert len(piece) <= 18
    assert all(len(piece) >= 8 for piece in pieces[:-1])


@given(st.lists(st.text("ab .é", min_size=1).filter(str.strip), min_size=1), st.sampled_from(["\n", "\r\n", "\r"]))
def test_lines_and_paragraphs_whatever_the_line_end(texts, end):
    data = [text.strip().encode() for text in texts]
    assert list(documents([end.encode().join(data)], "line")) == data
    assert list(documents([(end * 2).encode().join(data)], "paragraph")) == data


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (b"0123456789\n  x\nrest of the text", [b"0123456789\n  x\n", b"rest of the text"]),  # not before a blank
        (b"01234567890 2345678901234567890", [b"01234567890 ", b"2345678901234567890"[:16], b"890"]),
        (b"x" * 40, [b"x" * 16, b"x" * 16, b"x" * 8]),
        (b"x" * 18, [b"x" * 18]),
    ],
)
def test_where_a_long_document_is_cut(text, pieces):
    assert list(documents([text], "file", shortest=8, longest=16)) == pieces


def test_a_long_line_is_cut_too():
    assert list(documents([b"ab " * 10 + b"\nnext"], "line", shortest=8, longest=16)) == [
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
