"""gigabpe learns what `tokenizers` learns, or does not learn."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gigabpe
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokens.clean_text import PROSE
from tokenmill.tokens import bpe
from tokenmill.tokens.bpe import cut_long_words, prepared, train_bpe, train_gigabpe, train_reference
from tokenmill.tokens.encoder import FRAGMENTS, adversarial_texts
from tokenmill.tokens.params import MIN_BPE_VOCAB, TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer

PARTS = [part for part in FRAGMENTS if part != "\v"]
WORDS = st.sampled_from(["the", " cat", " sat", "\n", "  ", "é", "ab", "1", "."])


def without_tab(texts: list[str]) -> list[str]:
    return [text.replace("\v", "") for text in texts]


@given(
    texts=st.lists(
        st.lists(WORDS | st.sampled_from(PARTS) | st.text(max_size=3), max_size=30)
        .map("".join)
        .map(lambda text: text.replace("\v", "")),
        max_size=8,
    ),
    vocab_size=st.integers(MIN_BPE_VOCAB, 420),
)
def test_both_learn_the_same(texts: list[str], vocab_size: int):
    expected = train_reference([texts], vocab_size)
    assert train_gigabpe([texts], vocab_size).to_str() == expected.to_str()


@pytest.mark.parametrize("vocab_size", [300, 4000])
def test_both_learn_the_same_from_difficult_texts(vocab_size: int):
    texts = without_tab([*PROSE, *adversarial_texts(count=2000, seed=3)])
    batches = [texts[:100], [], texts[100:]]
    expected = train_reference(batches, vocab_size)
    assert train_gigabpe(batches, vocab_size).to_str() == expected.to_str()


def test_both_learn_the_same_around_any_character():
    """The two know the same letters, digits and white space of Unicode."""
    characters = [chr(code) for code in range(0x3400) if chr(code) != "\v"]
    texts = [f"a{one}b 1{one}2 .{one}! {one}{one} {one} \n{one}" for one in characters]
    expected = train_reference([texts], 9000)
    assert train_gigabpe([texts], 9000).to_str() == expected.to_str()


def test_white_space_at_the_end_teaches_nothing():
    assert prepared(["a b \n\n", "", " \t"]).to_list() == ["a b", "", ""]


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["a", "你", " ", "\u3000", "\n"]),
                st.sampled_from([1, 3, 500, 1023, 1024, 1025, 2048]),
            ),
            max_size=6,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_runs_are_cut_after_every_1024_characters(runs: list[list[tuple[str, int]]]):
    texts = ["".join(char * count for char, count in text) for text in runs]
    found = cut_long_words(pl.Series(texts))
    assert "".join(found) == "".join(texts)
    expected = [
        len(part[0])
        for text in texts
        for run in re.finditer(r"\S+|\s+", text)
        for part in re.finditer(r".{1,1024}", run[0], re.DOTALL)
    ]
    lengths = [len(run[0]) for part in found for run in re.finditer(r"\S+|\s+", part)]
    assert lengths == expected


def test_a_large_sample_gives_the_bytes_of_the_reference(
    prose: Path, bpe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[int] = []
    real: Callable[..., Any] = gigabpe.train_bpe  # pyright: ignore[reportAttributeAccessIssue]

    def counted(files: list[str], **how: Any) -> Any:
        asked.append(Path(files[0]).stat().st_size)
        return real(files, **how)

    monkeypatch.setattr(gigabpe, "train_bpe", counted)
    monkeypatch.setattr(bpe, "FEW_BYTES", 0)
    params = TokenizerParams(type="bpe", vocab_size=400, sample_bytes=10**6)
    train_tokenizer(prose, tmp_path / "t.json", params)
    assert (tmp_path / "t.json").read_bytes() == bpe_file.read_bytes()
    assert len(asked) == 2, "a part first, then the whole"


@pytest.mark.parametrize("chars", [40, 10_000, 100_000])
def test_the_part_compared_first_is_small_whatever_the_texts(
    chars: int, monkeypatch: pytest.MonkeyPatch
):
    text = " ".join(map(str, range(2 * 10**5)))
    texts = [text[start : start + chars] for start in range(0, 600_000, chars)]
    compared: list[str] = []

    def is_the_same(texts: list[str], _: int) -> bool:
        compared.extend(texts)
        return True

    monkeypatch.setattr(bpe, "FEW_BYTES", 0)
    monkeypatch.setattr(bpe, "COMPARED_BYTES", 20_000)
    monkeypatch.setattr(bpe, "is_the_same", is_the_same)
    train_bpe(lambda: [texts[::3], texts[1::3], texts[2::3]], 600_000, 300)
    assert 10_000 < sum(map(len, compared)) <= 20_000
    assert all(part in text for part in compared)


def other_merges(*_: Any, **how: Any) -> tuple[dict[str, int], list[tuple[str, str]]]:
    return {}, [("a", "b")] * how["vocab_size"]


def fails(*_: Any, **__: Any) -> None:
    raise BaseException("a panic")


@pytest.mark.parametrize(
    ("trainer", "text"),
    [(other_merges, ""), (fails, ""), (None, "a\vb")],
)
def test_the_reference_learns_where_gigabpe_cannot(
    trainer: Callable[..., Any] | None, text: str, monkeypatch: pytest.MonkeyPatch
):
    if trainer:
        monkeypatch.setattr(gigabpe, "train_bpe", trainer)
    monkeypatch.setattr(bpe, "FEW_BYTES", 0)
    texts = [[*PROSE, text]]
    learned, note = train_bpe(lambda: texts, 10**6, 500)
    assert learned.to_str() == train_reference(texts, 500).to_str()
    assert "gigabpe" in note
