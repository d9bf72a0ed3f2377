import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.material import in_blocks
from tokenmill.core.errors import UserError
from tokenmill.data.encoding import decode, mark_json_damage, mark_json_stream_damage, replace_damage, utf8


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@given(text=st.text("a\u00e9\U0001f600\n", min_size=1, max_size=30), cuts=st.lists(st.integers(0, 120)))
def test_byte_order_marks(encoding, text, cuts):
    data = text.encode(encoding)
    assert b"".join(utf8(in_blocks(data, cuts), "a.txt")) == text.encode()


@given(st.lists(st.sampled_from([b"a", b"\xff", b"\xe2\x82", "é".encode(), "\ufffd".encode()])).map(b"".join))
def test_damage_is_divided_as_python_divides_it(data):
    text, damaged = replace_damage(decode(data))
    assert text == data.decode("utf-8", "replace")
    assert damaged == (data.decode("utf-8", "ignore").encode() != data)


@given(
    st.lists(st.sampled_from([b"\\ud800", b"\\udc00", b"\\\\", b"\\u00e9", "é".encode(), b"\xff", b"a", b'"'])),
    st.data(),
)
def test_json_damage_does_not_depend_on_the_blocks(parts, data):
    whole = b"".join(parts)
    cuts = data.draw(st.lists(st.integers(0, len(whole))))
    assert b"".join(mark_json_stream_damage(in_blocks(whole, cuts))) == mark_json_damage(whole)


def test_utf16_without_a_mark_is_refused():
    with pytest.raises(UserError, match=r"a\.txt looks like UTF-16BE"):
        list(utf8(["plain words in sixteen bits".encode("utf-16-be")], "a.txt"))
