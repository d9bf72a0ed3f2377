"""Cutting a long text changes nothing about its ids."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tokenmill.core.tokenizer import read_tokenizer
from tokenmill.tokens.corpus import cut, cut_stream
from tokenmill.tokens.encoder import FRAGMENTS, adversarial_texts

nasty = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), max_size=60).map("".join)


@given(text=nasty, size=st.integers(1, 20))
def test_segments_join_to_the_text(text: str, size: int) -> None:
    pieces = list(cut(text, size))
    assert "".join(pieces) == text
    assert all(len(piece) >= size for piece in pieces[:-1])


@given(text=nasty, size=st.integers(1, 20))
def test_segments_have_the_ids_of_the_whole(text: str, size: int, bpe_file: Path) -> None:
    tokenizer = read_tokenizer(bpe_file)
    assert [i for piece in cut(text, size) for i in tokenizer.encode(piece)] == tokenizer.encode(text)


@given(chunks=st.lists(nasty, max_size=6), size=st.integers(1, 20))
def test_segments_are_the_same_wherever_chunks_end(chunks: list[str], size: int) -> None:
    assert list(cut_stream(chunks, size)) == list(cut("".join(chunks), size))


def test_difficult_strings_have_the_ids_of_the_whole(bpe_file: Path) -> None:
    tokenizer = read_tokenizer(bpe_file)
    for text in adversarial_texts(count=1000, seed=2):
        assert [i for piece in cut(text, 1) for i in tokenizer.encode(piece)] == tokenizer.encode(text)


def test_the_example() -> None:
    assert list(cut("To be, or not", size=4)) == ["To be", ", or", " not"]
    assert list(cut("")) == [""]
    assert list(cut("a" * 100, size=3)) == ["a" * 100]


def test_ordinary_text_is_cut_soon() -> None:
    for text in ("word " * 1000, "one\ntwo\n" * 1000, "你好，世界。" * 1000):
        assert max(map(len, cut(text, 50))) < 60
