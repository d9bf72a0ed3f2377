"""The tokenizer's file and report."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from tokenmill.core.errors import UserError
from tokenmill.core.tokenizer import read_tokenizer
from tokenmill.tokens import corpus as corpus_module
from tokenmill.tokens.params import TokenizerParams
from tokenmill.tokens.train_tokenizer import make_tokenizer

Corpus = Callable[..., Path]


def bpe(vocab_size: int = 400, sample_bytes: int = 10**6) -> TokenizerParams:
    return TokenizerParams(type="bpe", vocab_size=vocab_size, sample_bytes=sample_bytes)


def test_the_same_corpus_gives_the_same_bytes_in_another_process(prose: Path, bpe_file: Path, tmp_path: Path) -> None:
    make_tokenizer(prose, tmp_path / "again.json", bpe())
    assert (tmp_path / "again.json").read_bytes() == bpe_file.read_bytes()
    code = (
        "import sys; from pathlib import Path; from tokenmill.tokens.train_tokenizer import *;"
        "make_tokenizer(Path(sys.argv[1]), Path(sys.argv[2]), "
        "TokenizerParams(type='bpe', vocab_size=400, sample_bytes=10**6))"
    )
    source = Path(corpus_module.__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", code, prose, tmp_path / "other.json"],
        check=True,
        env={"PYTHONPATH": str(source), "PYTHONHASHSEED": "7", "RAYON_NUM_THREADS": "1"},
    )
    assert (tmp_path / "other.json").read_bytes() == bpe_file.read_bytes()


def test_the_report(prose: Path, tmp_path: Path) -> None:
    report = make_tokenizer(prose, tmp_path / "t.json", bpe())
    tokenizer = read_tokenizer(tmp_path / "t.json")
    texts = [text for part in corpus_module.sample(prose, 10**6) for text in part]
    tokens = sum(len(tokenizer.encode(text)) for text in texts)
    assert report.bytes_per_token == pytest.approx(sum(len(t.encode()) for t in texts) / tokens, abs=1e-4)
    assert (report.vocab_size, report.corpus_too_small) == (400, False)
    assert "400 tokens" in report.sentence()


def test_a_corpus_too_small_for_the_vocabulary_goes_on_and_says_so(corpus: Corpus, tmp_path: Path) -> None:
    report = make_tokenizer(corpus(["tiny tiny tiny"]), tmp_path / "t.json", bpe(5000))
    assert report.corpus_too_small
    assert 257 <= report.vocab_size < 300
    assert read_tokenizer(tmp_path / "t.json").vocab_size == report.vocab_size
    assert "tokenizer.vocab_size (5,000) is more than 14 bytes" in report.sentence()


def test_characters_of_the_whole_corpus_whatever_the_sample(corpus: Corpus, tmp_path: Path) -> None:
    clean = corpus(["ab\n", "c\x00", "🙂é"] * 50 + ["z"], shard_bytes=30)
    report = make_tokenizer(clean, tmp_path / "t.json", TokenizerParams(type="char", vocab_size=1, sample_bytes=1))
    tokenizer = read_tokenizer(tmp_path / "t.json")
    assert [tokenizer.decode([i]) for i in range(1, 9)] == sorted("ab\nc\x00🙂éz")
    assert (report.vocab_size, report.corpus_too_small) == (9, False)


def test_no_text_is_an_error(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no text"):
        make_tokenizer(corpus([""]), tmp_path / "t.json", bpe())


def test_a_vocabulary_without_room_for_bytes_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"tokenizer\.vocab_size \(256\) must be at least 257"):
        bpe(256)
    assert TokenizerParams(type="char", vocab_size=1, sample_bytes=1).vocab_size == 1


def test_the_sample_is_even_and_within_its_budget(corpus: Corpus) -> None:
    texts = [f"{i:05d}" for i in range(1000)]
    clean = corpus(texts, shard_bytes=2000, row_group_bytes=35)
    drawn = [int(text) for part in corpus_module.sample(clean, 500) for text in part]
    assert len(drawn) == 100
    assert all(b - a == 10 for a, b in itertools.pairwise(drawn))
    assert [text for part in corpus_module.sample(clean, 5000) for text in part] == texts


def test_one_long_text_is_sampled_over_its_whole_length(corpus: Corpus) -> None:
    text = " ".join(f"{i:06d}" for i in range(50_000))
    drawn = "".join(text for part in corpus_module.sample(corpus([text]), 35_000) for text in part)
    assert 20_000 < len(drawn) <= 35_000
    numbers = [int(word) for word in drawn.split() if len(word) == 6]
    assert numbers[0] < 10_000
    assert numbers[-1] > 40_000


def test_a_document_over_the_budget_is_cut_between_characters(corpus: Corpus) -> None:
    assert list(corpus_module.sample(corpus(["éé", "xyz"]), 3)) == [["é"]]


def test_the_budget_holds_where_the_chosen_documents_are_the_long_ones(corpus: Corpus) -> None:
    clean = corpus(["b" * 99, "a"] * 500, row_group_bytes=1000)
    assert sum(len(text) for part in corpus_module.sample(clean, 25_000) for text in part) == 25_000


def test_the_probe_looks_everywhere(corpus: Corpus) -> None:
    texts = [f"{i:05d}" for i in range(6400)]
    probed = [int(text) for text in corpus_module.probe(corpus(texts, shard_bytes=9000), corpus_module.PROBES * 5)]
    assert len(probed) == corpus_module.PROBES
    assert probed[0] < 400
    assert probed[-1] >= 5700
    assert corpus_module.probe(corpus(["one"]), 1000) == ["one"]
