"""Long documents come in pieces, and nothing is lost between them."""

from pathlib import Path

import polars as pl
import pytest
from conftest import write_clean
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.core import shards
from tokenmill.tokens import corpus

words = st.sampled_from(["word", " ", "\n", "é", "你好，", "🙂", "a" * 50, "."])
texts = st.lists(st.lists(words, max_size=40).map("".join), min_size=1, max_size=10)


@given(texts=texts, long=st.integers(1, 200), piece=st.integers(1, 60), group=st.integers(1, 300))
def test_the_pieces_join_to_the_documents(texts, long, piece, group, tmp_path_factory: pytest.TempPathFactory) -> None:
    clean = write_clean(tmp_path_factory.mktemp("clean"), texts, row_group_bytes=group)
    expected = pl.concat(shards.batches(clean, ("text", "id")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "LONG_BYTES", long)
        patch.setattr(corpus, "PIECE_CHARS", piece)
        rows = pl.concat(corpus.batches(clean, ("text", "id"))).select("text", "id", "ends")
    number = rows["ends"].cast(pl.Int64).cum_sum() - rows["ends"].cast(pl.Int64)
    whole = rows.group_by(number.alias("number"), maintain_order=True).agg(pl.col("text").str.join(), pl.col("id"))
    assert whole["text"].to_list() == expected["text"].to_list()
    assert [set(ids) for ids in whole["id"]] == [{one} for one in expected["id"]]


def test_only_long_documents_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "LONG_BYTES", 1000)
    monkeypatch.setattr(corpus, "PIECE_CHARS", 100)
    texts = ["short " * 10, "long " * 400, "short", "longer " * 500, "x " * 400]
    batches = list(corpus.batches(write_clean(tmp_path / "clean", texts)))
    whole = [text for batch in batches for text in batch["text"] if text in texts]
    assert whole == [texts[0], texts[2], texts[4]]
    assert max(len(text) for batch in batches for text in batch["text"] if text not in texts) < 110
    assert sum(int(batch["ends"].sum()) for batch in batches) == len(texts)
