"""What follows from the counts, by hand and against sorted lists."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.describe.material import REPORT
from tokenmill.core.token_file import SplitMetadata, TokenMetadata
from tokenmill.reports.data_stats import CleanReport, Measures, TokenCounts


def measures(by_id: list[int], by_length: list[int], words: int = 8) -> Measures:
    split = SplitMetadata(tokens=10, documents=1, bytes=16, sha256="0" * 64)
    metadata = TokenMetadata(
        format_version=1,
        dtype="<i4",
        train=split,
        val=split,
        vocab_size=len(by_id),
        eot_id=0,
        tokenizer_type="bpe",
        tokenizer_sha256="0" * 64,
    )
    return Measures(
        CleanReport.model_validate(REPORT), TokenCounts(np.array(by_id), words, np.array(by_length)), metadata
    )


def test_the_metrics_by_hand_and_flat() -> None:
    made = measures([99, 8, 4, 4, 0], [0, 10, 80, 0, 10])
    expected = {
        "raw_bytes": 123_456,
        "kept_share": 0.7,
        "words": 8,
        "tokens_per_word": 2.0,
        "characters_per_token": 937.5,
        "document_tokens_p10": 1,
        "document_tokens_median": 2,
        "document_tokens_p90": 2,
        "document_tokens_max": 4,
        "vocabulary_used": 0.75,
        "vocabulary_rare": 3,
        "unigram_entropy_bits": 1.5,
        "unigram_bits_per_byte": 0.75,
        "sampled_language_en": 100,
        "sampled_language_de": 30,
        "sampled_language_<hr>": 10,
    }
    assert made.metrics() == expected


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.floats(0.01, 1))
def test_a_percentile_is_the_nearest_rank_of_the_sorted_lengths(lengths: list[int], share: float) -> None:
    expected = sorted(lengths)[max(1, math.ceil(share * len(lengths))) - 1]
    assert measures([0, 1], np.bincount(lengths).tolist()).length_at(share) == expected


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50).filter(any))
def test_the_entropy_is_shannons(counts: list[int]) -> None:
    total = sum(counts)
    expected = -sum(n / total * math.log2(n / total) for n in counts if n)
    assert measures([5, *counts], [1]).entropy == pytest.approx(expected, abs=1e-9)
