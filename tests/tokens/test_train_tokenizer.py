"""The same corpus trains the same tokenizer, and the report describes it."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.imports import ROOT
from tokenmill.core.errors import UserError
from tokenmill.formats.tokenizer import SPECIAL_TOKENS, read_tokenizer
from tokenmill.tokens.corpus import sample
from tokenmill.tokens.params import TokenizerParams
from tokenmill.tokens.train_tokenizer import (
    bytes_per_token,
    take_tokenizer,
    tokenizer_in_words,
    train_tokenizer,
)

Corpus = Callable[..., Path]


def bpe(vocab_size: int = 400, sample_bytes: int = 10**6) -> TokenizerParams:
    return TokenizerParams(type="bpe", vocab_size=vocab_size, sample_bytes=sample_bytes)


def test_one_run_of_a_letter_is_learned_in_seconds(corpus: Corpus, tmp_path: Path) -> None:
    clean = corpus(["a" * 400_000, " " * 400_000, "The word. " * 100])
    before = time.process_time()
    train_tokenizer(
        clean, tmp_path / "t.json", TokenizerParams(type="bpe", vocab_size=300, sample_bytes=10**6)
    )
    assert time.process_time() - before < 20, "of the processor, in all threads"


def test_same_corpus_same_bytes_in_another_process(
    prose: Path, bpe_file: Path, tmp_path: Path
) -> None:
    train_tokenizer(prose, tmp_path / "again.json", bpe())
    assert (tmp_path / "again.json").read_bytes() == bpe_file.read_bytes()
    code = (
        "import sys; from pathlib import Path; from tokenmill.tokens.train_tokenizer import *;"
        "train_tokenizer(Path(sys.argv[1]), Path(sys.argv[2]), "
        "TokenizerParams(type='bpe', vocab_size=400, sample_bytes=10**6))"
    )
    subprocess.run(
        [sys.executable, "-c", code, prose, tmp_path / "other.json"],
        check=True,
        env={"PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "7", "RAYON_NUM_THREADS": "1"},
    )
    assert (tmp_path / "other.json").read_bytes() == bpe_file.read_bytes()


def test_report_describes_the_tokenizer(prose: Path, tmp_path: Path) -> None:
    report = train_tokenizer(prose, tmp_path / "t.json", bpe())
    tokenizer = read_tokenizer(tmp_path / "t.json")
    texts = [text for batch in sample(prose, 10**6) for text in batch]
    tokens = sum(len(tokenizer.encode(text)) for text in texts)
    assert report.bytes_per_token == pytest.approx(
        sum(len(t.encode()) for t in texts) / tokens, abs=1e-4
    )
    assert (report.vocab_size, report.corpus_too_small) == (400, False)


def test_texts_without_tokens_have_no_bytes_per_token(corpus: Corpus, bpe_file: Path) -> None:
    assert bytes_per_token(read_tokenizer(bpe_file), corpus(["", ""])) == 0


def test_small_corpus_gives_a_smaller_vocabulary(corpus: Corpus, tmp_path: Path) -> None:
    report = train_tokenizer(corpus(["tiny tiny tiny"]), tmp_path / "t.json", bpe(5000))
    assert report.corpus_too_small
    assert 257 <= report.vocab_size < 300
    assert read_tokenizer(tmp_path / "t.json").vocab_size == report.vocab_size
    assert report.requested_vocab_size == 5000
    assert "tokenizer.vocab_size (5,000) is more than 14 bytes" in tokenizer_in_words(report)


def test_char_tokenizer_reads_the_whole_corpus(corpus: Corpus, tmp_path: Path) -> None:
    clean = corpus(["ab\n", "c\x00", "🙂é"] * 50 + ["z"], shard_bytes=30)
    report = train_tokenizer(
        clean, tmp_path / "t.json", TokenizerParams(type="char", vocab_size=1, sample_bytes=1)
    )
    tokenizer = read_tokenizer(tmp_path / "t.json")
    assert [tokenizer.decode([i]) for i in range(14)] == [
        *SPECIAL_TOKENS,
        *sorted("ab\nc\x00🙂éz"),
    ]
    assert (report.vocab_size, report.corpus_too_small) == (14, False)


def test_a_tokenizer_that_lacks_characters_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs/tokenizer.json"
    theirs.parent.mkdir()
    train_tokenizer(
        corpus(["hello"]), theirs, TokenizerParams(type="char", vocab_size=1, sample_bytes=1)
    )
    with pytest.raises(UserError, match=r"U\+4F60"):
        take_tokenizer(corpus(["hello 你"]), tmp_path / "t.json", theirs)


def test_only_bpe_needs_room_for_every_byte() -> None:
    with pytest.raises(ValidationError, match="vocab_size"):
        bpe(256)
    assert TokenizerParams(type="char", vocab_size=1, sample_bytes=1).vocab_size == 1
