"""One pass over the ids against the plain way: decode, split, count."""

from collections import Counter as Tally
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from tests.describe.material import DOCUMENTS
from tokenmill.core.errors import UserError
from tokenmill.core.token_file import SPLITS, open_tokens, read_metadata
from tokenmill.core.tokenizer import BYTE_OF, read_tokenizer, token_bytes
from tokenmill.reports import data_stats
from tokenmill.reports.data_stats import Counter, count_tokens

VOCABULARY = [b"", b" ", b"\n", b"a", b" b", b"c ", b"a b", b" ", b"\xe2\x80", b"\xa8", b"\t \n", b"de"]
EOT = 0
SPLIT = st.lists(st.lists(st.integers(1, len(VOCABULARY) - 1), max_size=8), min_size=1, max_size=6)


@given(splits=st.lists(SPLIT, min_size=1, max_size=2), cut=st.integers(1, 7))
def test_any_ids_in_any_blocks_are_counted_as_the_plain_way_counts(splits: list[list[list[int]]], cut: int) -> None:
    counter = Counter(VOCABULARY, EOT)
    for documents in splits:
        ids = np.array([token for document in documents for token in (*document, EOT)], dtype="<i4")
        for start in range(0, len(ids), cut):
            counter.add(ids[start : start + cut])
    counts = counter.finish()
    documents = [document for split in splits for document in split]
    seen = Tally(token for document in documents for token in document)
    seen[EOT] = len(documents)
    assert counts.by_id.tolist() == [seen[token] for token in range(len(VOCABULARY))]
    assert counts.words == sum(len(b"".join(VOCABULARY[t] for t in document).split()) for document in documents)
    lengths = Tally(map(len, documents))
    assert counts.by_length.tolist() == [lengths[n] for n in range(max(lengths) + 1)]


def test_longer_documents_than_fit_count_as_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_stats, "LONGEST", 4)
    counter = Counter(VOCABULARY, EOT)
    counter.add(np.array([3, 3, 3, 3, 3, 3, EOT, 3, EOT], dtype="<i4"))
    assert counter.finish().by_length.tolist() == [0, 1, 0, 0, 1]


def test_the_files_of_both_splits_are_counted(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_stats, "BLOCK", 97)
    folder, tokenizer = prepared / "data/tokens", read_tokenizer(prepared / "data/tokenizer/tokenizer.json")
    counts = count_tokens(folder, read_metadata(folder), tokenizer)
    ids = np.concatenate([open_tokens(folder, split) for split in SPLITS])
    assert counts.by_id.tolist() == [Tally(ids.tolist())[token] for token in range(tokenizer.vocab_size)]
    assert counts.words == sum(len(text.encode().split()) for text in DOCUMENTS)
    assert counts.by_length.sum() == len(DOCUMENTS)
    assert counts.by_length @ np.arange(len(counts.by_length)) == len(ids) - len(DOCUMENTS)


def test_another_tokenizers_tokens_are_refused(prepared: Path) -> None:
    folder, tokenizer = prepared / "data/tokens", read_tokenizer(prepared / "data/tokenizer/tokenizer.json")
    metadata = read_metadata(folder).model_copy(update={"tokenizer_sha256": "0" * 64})
    with pytest.raises(UserError, match="made by another tokenizer"):
        count_tokens(folder, metadata, tokenizer)


def test_tokens_spell_the_text_byte_by_byte(prepared: Path) -> None:
    tokenizer = read_tokenizer(prepared / "data/tokenizer/tokenizer.json")
    spelled = token_bytes(tokenizer)
    assert spelled[tokenizer.eot_id] == b""
    for text in DOCUMENTS:
        assert b"".join(spelled[token] for token in tokenizer.encode(text)) == text.encode()


def test_the_byte_alphabet_is_that_of_tokenizers() -> None:
    assert set(BYTE_OF) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(BYTE_OF.values()) == list(range(256))
