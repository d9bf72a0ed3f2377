import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.folders import contents
from tests.shards import write_shards
from tokenmill.core.errors import UserError
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats import shards


def documents(texts: Sequence[str]) -> pl.DataFrame:
    ids = [xxhash.xxh3_64_intdigest(text.encode()) for text in texts]
    return pl.DataFrame(
        {"text": texts, "source": ["a.txt"] * len(texts), "id": ids}, schema=shards.SCHEMA
    )


@given(
    texts=st.lists(st.text("ab é\n", max_size=40), min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    shard_bytes=st.integers(1, 300),
    row_group_bytes=st.integers(1, 100),
)
def test_what_is_written_is_read_back(tmp_path_factory, texts, cuts, shard_bytes, row_group_bytes):
    table = documents(texts)
    folder = tmp_path_factory.mktemp("one")
    other = tmp_path_factory.mktemp("other")
    edges = [0, *sorted(cuts), len(texts)]
    batches = [table[begin : max(begin, end)] for begin, end in itertools.pairwise(edges)]
    write_shards(folder, [table], shard_bytes=shard_bytes, row_group_bytes=row_group_bytes)
    write_shards(other, batches, shard_bytes=shard_bytes, row_group_bytes=row_group_bytes)
    assert contents(folder) == contents(other)
    assert pl.concat(shards.batches(folder, ("text", "source", "id"))).equals(table)
    size = sum(len(text.encode()) for text in texts)
    assert shards.totals(folder) == shards.Totals(len(texts), size, sum(map(len, texts)))


def test_shards_and_row_groups_end_at_their_sizes(tmp_path):
    write_shards(tmp_path, [documents(["x" * 9] * 1000)], shard_bytes=900, row_group_bytes=90)
    whole = [shards.documents(shard) for shard in shards.shards(tmp_path)]
    assert [sum(map(len, groups)) for groups in whole] == [100] * 10
    assert {len(batch) for batch in shards.batches(tmp_path)} == {10}


def test_no_name_of_a_folder_is_a_pattern(tmp_path):
    folder = tmp_path / "a[b]*"
    folder.mkdir()
    write_shards(folder, [documents(["x", "y"])])
    assert [batch["text"].to_list() for batch in shards.batches(folder)] == [["x", "y"]]


def test_few_shards_are_under_way(tmp_path, monkeypatch):
    """They hold their documents in memory."""
    in_order, started, under_way = ThreadExecutor.in_order, [], []

    def watched(executor: ThreadExecutor, starting: Iterable[Any], limit: Callable[[], int]):
        counted = (started.append(tasks) or tasks for tasks in starting)
        for number, tasks in enumerate(in_order(executor, counted, limit)):
            under_way.append(len(started) - number)
            yield tasks

    monkeypatch.setattr(ThreadExecutor, "in_order", watched)
    monkeypatch.setattr(ThreadExecutor, "task_bytes", 2)
    write_shards(tmp_path, [documents(["x"] * 20)], shard_bytes=1)
    assert len(under_way) == 20
    with ThreadExecutor(threads=1) as executor:
        assert max(under_way) == 2 * executor.limit() + 1


def test_a_shard_at_which_polars_panics_is_refused(tmp_path):
    write_shards(tmp_path, [documents(["hello", "world"])])
    shard = shards.shard_file(tmp_path, 0)
    data = bytearray(shard.read_bytes())
    data[70] = 0
    shard.write_bytes(data)
    with pytest.raises(UserError, match=r"part-00000\.parquet is not a shard"):
        list(shards.batches(tmp_path))


def test_a_shard_that_is_damaged_behind_its_footer_is_refused(tmp_path):
    write_shards(tmp_path, [documents(["x"] * 100)])
    shard = shards.shard_file(tmp_path, 0)
    data = bytearray(shard.read_bytes())
    data[4:36] = bytes(32)
    shard.write_bytes(data)
    with pytest.raises(UserError, match=r"part-00000\.parquet is not a shard"):
        list(shards.batches(tmp_path))


def overwrite(folder: Path, table: pl.DataFrame, **footer: int) -> None:
    """Put a table into the place of a shard of two documents."""
    shard = shards.shard_file(folder, 0)
    right = shards.write_shard(shard, documents(["one", "two"]))
    table.write_parquet(
        shard, metadata={key: str(value) for key, value in (right | footer).items()}
    )


@pytest.mark.parametrize(
    "column",
    [
        pl.lit(None, pl.String).alias("text"),
        pl.lit(5).alias("text"),
        pl.concat_list("text"),
        pl.lit(5).alias("source"),
        pl.lit("x").alias("id"),
    ],
)
def test_a_shard_with_other_columns_is_refused(tmp_path, column):
    overwrite(tmp_path, documents(["one", "two"]).with_columns(column))
    with pytest.raises(UserError, match="is not a shard"):
        list(shards.batches(tmp_path, tuple(shards.SCHEMA)))


@pytest.mark.parametrize(("rows", "many"), [(1, 3), (1, 10**12), (1 << 17, 10**30), (10**30, 2)])
def test_a_footer_that_promises_other_rows_is_refused(tmp_path, rows, many):
    overwrite(tmp_path, documents(["one", "two"]), documents=many, row_group_rows=rows)
    with pytest.raises(UserError, match="is not a shard"):
        list(shards.batches(tmp_path))


def test_a_shard_without_documents_is_refused(tmp_path):
    """`clean` writes none."""
    shards.write_shard(shards.shard_file(tmp_path, 0), documents([]))
    with pytest.raises(UserError, match=r"part-00000\.parquet is not a shard"):
        shards.totals(tmp_path)


def test_a_document_may_exceed_shard_and_row_group(tmp_path):
    texts = ["small", "word " * 10_000, "after"]
    write_shards(tmp_path, [documents(texts)], shard_bytes=1000, row_group_bytes=300)
    assert [batch["text"].to_list() for batch in shards.batches(tmp_path)] == [
        [text] for text in texts
    ]


def test_an_error_of_the_batches_comes_through(tmp_path):
    def batches():
        yield documents(["one"])
        raise UserError("broken")

    with pytest.raises(UserError, match="broken"):
        write_shards(tmp_path, batches(), shard_bytes=1)


def test_shards_are_in_the_order_of_their_numbers(tmp_path, monkeypatch):
    """A width of one digit stands for five, so that 12 shards are enough."""
    monkeypatch.setattr(shards, "DIGITS", 1)
    texts = [f"text {number}" for number in range(12)]
    write_shards(tmp_path, [documents(texts)], shard_bytes=1)
    assert [batch["text"][0] for batch in shards.batches(tmp_path)] == texts
    (tmp_path / "part-3.parquet").unlink()
    with pytest.raises(UserError, match=r"part-3\.parquet is missing"):
        shards.shards(tmp_path)


def test_a_shard_of_another_format_is_refused(tmp_path, monkeypatch):
    write_shards(tmp_path, [documents(["one"])])
    monkeypatch.setattr(shards, "CLEAN_FORMAT", shards.CLEAN_FORMAT + 1)
    for reader in (shards.totals, lambda folder: list(shards.batches(folder))):
        with pytest.raises(UserError, match="shard"):
            reader(tmp_path)


def test_a_folder_without_shards_or_with_foreign_ones(tmp_path):
    with pytest.raises(UserError, match=r"part-\*\.parquet.*`dvc repro clean`"):
        shards.shards(tmp_path)
    pl.DataFrame({"text": ["x"]}).write_parquet(tmp_path / "part-00000.parquet")
    with pytest.raises(UserError, match="shard"):
        shards.totals(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes with names")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path):
    os.mkfifo(shards.shard_file(tmp_path, 0))
    with pytest.raises(UserError, match="regular"):
        shards.totals(tmp_path)
