"""Counts of one pass against decode, split and count; figures against their definitions."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from tests.reports.data_material import DOCUMENTS, REPORT
from tests.tokens.packing import part_of, shard_of
from tokenmill.core.errors import UserError
from tokenmill.formats import token_row
from tokenmill.formats.metrics import CleanReport
from tokenmill.formats.token_file import SPLITS, TokenMetadata, read_metadata
from tokenmill.formats.token_row import open_tokens
from tokenmill.formats.tokenizer import BYTE_OF, read_tokenizer, token_bytes
from tokenmill.reports.data_stats import DataStats, TokenCounts, count_tokens, read_stats

VOCABULARY = [
    b"",
    b" ",
    b"\n",
    b"a",
    b" b",
    b"c ",
    b"a b",
    b" ",
    b"\xe2\x80",
    b"\xa8",
    b"\t \n",
    b"de",
]
EOT = 0
SPLIT = st.lists(st.lists(st.integers(1, len(VOCABULARY) - 1), max_size=8), min_size=1, max_size=6)


def report_of(documents: int) -> CleanReport:
    return CleanReport.model_validate(
        REPORT | {"documents": {"read": documents, "kept": documents}}
    )


@given(
    splits=st.lists(SPLIT, min_size=1, max_size=2),
    cut=st.integers(1, 7),
    measured=st.integers(0, 12),
)
def test_any_blocks_give_the_counts_of_the_plain_way(
    splits: list[list[list[int]]], cut: int, measured: int
) -> None:
    blocks = []
    for documents in splits:
        ids = np.array([token for document in documents for token in (*document, EOT)], dtype="<i4")
        blocks += [ids[start : start + cut] for start in range(0, len(ids), cut)]
    counts = count_tokens(blocks, VOCABULARY, EOT, measured=measured)
    documents = [document for split in splits for document in split]
    seen = Counter(token for document in documents for token in document)
    seen[EOT] = len(documents)
    assert counts.by_id.tolist() == [seen[token] for token in range(len(VOCABULARY))]
    assert counts.words == sum(
        len(b"".join(VOCABULARY[t] for t in document).split()) for document in documents
    )
    assert counts.lengths == Counter(len(document) for document in documents[:measured])


def test_the_longest_document_may_have_any_length() -> None:
    ids = np.full((1 << 20) + 1, 3, dtype="<i4")
    blocks = [ids, np.array([EOT, 3, EOT], dtype="<i4")]
    assert count_tokens(blocks, VOCABULARY, EOT, measured=2).lengths == {len(ids): 1, 1: 1}


def test_files_of_both_splits_are_counted(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_row, "BLOCK_IDS", 97)
    folder = prepared / "data/tokens"
    tokenizer = read_tokenizer(prepared / "data/tokenizer/tokenizer.json")
    counts = read_stats(folder, tokenizer, report_of(len(DOCUMENTS))).counts
    ids = np.concatenate([open_tokens(folder, split)[:] for split in SPLITS])
    assert counts.by_id.tolist() == [
        Counter(ids.tolist())[token] for token in range(tokenizer.vocab_size)
    ]
    assert counts.words == sum(len(text.encode().split()) for text in DOCUMENTS)
    assert sum(counts.lengths.values()) == len(DOCUMENTS)
    assert sum(map(math.prod, counts.lengths.items())) == len(ids) - len(DOCUMENTS)


def test_characters_of_a_token_are_those_of_the_text(prepared: Path) -> None:
    tokenizer = read_tokenizer(prepared / "data/tokenizer/tokenizer.json")
    stats = read_stats(prepared / "data/tokens", tokenizer, report_of(len(DOCUMENTS)))
    tokens = sum(len(tokenizer.encode(text)) for text in DOCUMENTS)
    expected = sum(map(len, DOCUMENTS)) / tokens
    assert stats.metrics()["characters_per_token"] == pytest.approx(expected, rel=1e-5)
    assert stats.characters_per_token < stats.bytes_per_token, "a character may have several bytes"


def test_of_divided_documents_the_first_parts_are_measured(prepared: Path) -> None:
    folder = prepared / "data/tokens"
    tokenizer = read_tokenizer(prepared / "data/tokenizer/tokenizer.json")
    metadata = read_metadata(folder)
    assert not read_stats(folder, tokenizer, report_of(len(DOCUMENTS))).is_divided
    stats = read_stats(folder, tokenizer, report_of(metadata.train.documents))
    assert stats.is_divided
    lengths = stats.counts.lengths
    assert sum(lengths.values()) == metadata.train.documents
    assert sum(map(math.prod, lengths.items())) == metadata.train.text_tokens
    assert stats.counts.by_id.sum() == metadata.train.tokens + metadata.val.tokens
    val = np.fromfile(folder / "val.bin", dtype=np.int32)
    assert stats.validation.tolist() == np.bincount(val, minlength=tokenizer.vocab_size).tolist()


def test_tokens_of_another_tokenizer_are_refused(prepared: Path) -> None:
    tokenizer = replace(read_tokenizer(prepared / "data/tokenizer/tokenizer.json"), sha256="0" * 64)
    with pytest.raises(UserError, match="another tokenizer"):
        read_stats(prepared / "data/tokens", tokenizer, report_of(len(DOCUMENTS)))


def test_tokens_spell_the_text_byte_by_byte(prepared: Path) -> None:
    tokenizer = read_tokenizer(prepared / "data/tokenizer/tokenizer.json")
    spelled = token_bytes(tokenizer)
    assert spelled[tokenizer.eot_id] == b""
    for text in DOCUMENTS:
        assert b"".join(spelled[token] for token in tokenizer.encode(text)) == text.encode()


def test_byte_alphabet_is_that_of_tokenizers() -> None:
    assert set(BYTE_OF) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(BYTE_OF.values()) == list(range(256))


def stats(
    by_id: list[int],
    lengths: Sequence[int],
    validation: Sequence[int] | None = None,
    words: int = 8,
) -> DataStats:
    part = part_of(np.zeros(10), text_bytes=16)
    metadata = TokenMetadata.of(
        [shard_of(train=part, val=part)],
        vocab_size=len(by_id),
        eot_id=0,
        tokenizer_type="bpe",
        tokenizer_sha256="0" * 64,
    )
    counts = TokenCounts(np.array(by_id), words, Counter(lengths))
    vocabulary = [b"", *[b"x"] * (len(by_id) - 1)]
    held_out = np.array(validation or by_id)
    return DataStats(CleanReport.model_validate(REPORT), counts, held_out, metadata, vocabulary)


def test_metrics_by_hand() -> None:
    made = stats([16, 8, 4, 4, 0], [4, 2, 2, 1, 2, 2, 2, 2, 2, 2], validation=[1, 1, 0, 3, 0])
    expected = {
        "raw_bytes": 123_456,
        "kept_share": 0.7,
        "words": 8,
        "tokens_per_word": 2.0,
        "characters_per_token": 1.0,
        "document_tokens_p10": 1,
        "document_tokens_median": 2,
        "document_tokens_p90": 2,
        "document_tokens_max": 4,
        "vocabulary_used": 0.75,
        "vocabulary_rare": 3,
        "unigram_entropy_bits": 1.5,
        # 1, 2 and thrice 4 bits: in training 16, 8, 5, 2 and 1, once each more than they occur
        "unigram_bits_per_byte": 15 / 16,
        "sampled_language_en": 100,
        "sampled_language_de": 30,
        "sampled_language_<hr>": 10,
    }
    assert made.metrics() == expected


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.floats(0.01, 1))
def test_quantile_is_the_nearest_rank_of_sorted_lengths(
    lengths: list[int], fraction: float
) -> None:
    expected = sorted(lengths)[max(1, math.ceil(fraction * len(lengths))) - 1]
    assert stats([0, 1], lengths).length_quantile(fraction) == expected


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50).filter(any))
def test_entropy_is_shannons(counts: list[int]) -> None:
    total = sum(counts)
    expected = -sum(n / total * math.log2(n / total) for n in counts if n)
    made = stats([5, *counts], [0])
    assert made.entropy == pytest.approx(expected, abs=1e-9)
    assert made.uniform_entropy == math.log2(len(counts)), "special tokens are in neither"
