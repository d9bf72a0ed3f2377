"""Long documents are read in segments with the ids of the whole; samples are even and within their
budget."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats import shards
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.tokens import corpus as corpus_module
from tokenmill.tokens.corpus import PROBES, probe, sample, segmented, segments
from tokenmill.tokens.encoder import FRAGMENTS, adversarial_texts

Corpus = Callable[..., Path]
difficult = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), max_size=60).map("".join)
words = st.sampled_from(["word", " ", "\n", "é", "你好，", "🙂", "a" * 50, "."])
documents = st.lists(st.lists(words, max_size=40).map("".join), min_size=1, max_size=10)


@given(text=difficult, size=st.integers(1, 20))
def test_segments_join_to_the_text(text: str, size: int) -> None:
    found = list(segments(text, size))
    assert "".join(found) == text
    assert all(len(segment) >= size for segment in found[:-1])


@given(text=difficult, size=st.integers(1, 20))
def test_segments_have_the_ids_of_the_whole_text(text: str, size: int, bpe_file: Path) -> None:
    tokenizer = read_tokenizer(bpe_file)
    assert [
        i for segment in segments(text, size) for i in tokenizer.encode(segment)
    ] == tokenizer.encode(text)


def test_segments_of_difficult_texts_have_their_ids(bpe_file: Path) -> None:
    tokenizer = read_tokenizer(bpe_file)
    for text in adversarial_texts(count=1000, seed=2):
        assert [
            i for segment in segments(text, 1) for i in tokenizer.encode(segment)
        ] == tokenizer.encode(text)


def test_segment_examples() -> None:
    assert list(segments("To be, or not", size=4)) == ["To be", ", or", " not"]
    assert list(segments("", 1)) == [""]
    assert list(segments("a" * 100, size=3)) == ["a" * 100]


@pytest.mark.parametrize("text", ["word " * 1000, "one\ntwo\n" * 1000, "你好，世界。" * 1000])
def test_segments_of_ordinary_text_are_short(text: str) -> None:
    assert max(map(len, segments(text, 50))) < 60


@given(texts=documents, size=st.integers(1, 60))
def test_segmented_texts_hold_every_document(texts: list[str], size: int) -> None:
    with patch.object(corpus_module, "SEGMENT_CHARS", size):
        cut, ends = segmented(pl.Series(texts))
    number = np.cumsum(ends) - ends
    assert ["".join(cut.filter(pl.Series(number == i))) for i in range(len(texts))] == texts


def test_only_long_documents_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "SEGMENT_CHARS", 100)
    texts = ["short " * 10, "long " * 400, "short", "longer " * 500, "x" * 400]
    cut, ends = segmented(pl.Series(texts))
    assert [text for text in cut if text in texts] == [texts[0], texts[2], texts[4]]
    assert max(len(text) for text in cut if text not in texts) < 110
    assert ends.sum() == len(texts)


def test_sample_is_even_and_within_its_budget(corpus: Corpus) -> None:
    texts = [f"{i:05d}" for i in range(1000)]
    clean = corpus(texts, shard_bytes=2000, row_group_bytes=35)
    drawn = [text for batch in sample(clean, 500) for text in batch]
    assert 400 < sum(map(len, drawn)) <= 500
    numbers = [int(text) for text in drawn if len(text) == 5]
    assert all(5 <= sum(n // 100 == tenth for n in numbers) <= 12 for tenth in range(10))
    assert numbers == sorted(set(numbers))
    assert [text for batch in sample(clean, 5000) for text in batch] == texts


def test_sample_reads_a_part_of_a_large_corpus_once(corpus: Corpus, monkeypatch) -> None:
    texts = [f"{i:05d}" + " word" * 1999 for i in range(1000)]  # 10 MB in 500 row groups
    clean = corpus(texts, shard_bytes=100_000, row_group_bytes=20_000)
    read: list[shards.RowGroup] = []
    read_groups = shards.read_groups

    def watched(groups: Sequence[shards.RowGroup]) -> Iterator[pl.DataFrame]:
        read.extend(groups)
        return read_groups(groups)

    monkeypatch.setattr(shards, "read_groups", watched)
    drawn = [text for batch in sample(clean, 1_000_000) for text in batch]
    assert 900_000 < sum(map(len, drawn)) <= 1_000_000
    assert len(read) == len(set(read)) == 100
    assert drawn == [text for batch in sample(clean, 1_000_000) for text in batch]
    assert all(any(text.startswith(f"{n:05d}") for text in drawn) for n in (0, 500, 990))


@given(text=st.lists(words, max_size=99).map("".join), size=st.integers(1, 60))
def test_units_join_to_the_text(text: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_module, "SAMPLE_UNIT_CHARS", size)
        units = max(1, -(-len(text) // size))
        assert "".join(corpus_module._unit(text, number) for number in range(units)) == text


@pytest.mark.parametrize("between", [" ", ""], ids=["words", "one-word"])
def test_sample_covers_the_whole_of_a_long_text(corpus: Corpus, between: str) -> None:
    text = between.join(f"{i:06d}" for i in range(50_000))
    drawn = [unit for batch in sample(corpus([text]), 35_000) for unit in batch]
    assert 20_000 < sum(map(len, drawn)) <= 35_000
    places = [text.index(unit) / len(text) for unit in drawn]
    assert min(places) < 0.2
    assert max(places) > 0.8


def test_sample_cuts_between_characters(corpus: Corpus) -> None:
    assert [text for batch in sample(corpus(["éé", "xyz"]), 3) for text in batch] == ["é"]


def test_sample_keeps_its_budget_among_long_documents(corpus: Corpus) -> None:
    clean = corpus(["b" * 99, "a"] * 500, row_group_bytes=1000)
    assert sum(len(text) for batch in sample(clean, 25_000) for text in batch) == 25_000


def test_probe_reads_at_even_places(corpus: Corpus) -> None:
    texts = [f"{i:05d}" for i in range(64_000)]
    clean = corpus(texts, shard_bytes=9000)
    probed = probe(clean, 500 * PROBES, ThreadExecutor(threads=2))
    assert 400 * PROBES < sum(map(len, probed)) <= 500 * PROBES
    assert set(map(len, probed)) == {5}
    assert [int(text) for text in probed] == sorted(map(int, probed))
    assert (probed[0], probed[-1] > "55000") == ("00000", True)
    assert probe(corpus(["one"]), 1000, ThreadExecutor(threads=1)) == ["one"]


def test_probe_reads_all_of_a_long_text(corpus: Corpus) -> None:
    text = " ".join(f"{i:06d}" for i in range(50_000))
    probed = probe(corpus([text]), 35_000, ThreadExecutor(threads=1))
    assert 30_000 < sum(map(len, probed)) <= 35_000
    assert text.index(probed[-1]) > 0.8 * len(text)
