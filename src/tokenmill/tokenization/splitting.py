"""Which text goes to train and which to val.

`hash`: a document goes to val when its stored id, the xxh3 hash of its text, is below val_fraction · 2^64.
A duplicate has the same id and so lies on the same side; a new document moves no other.
`tail`: the corpus is cut at character floor(characters · (1 - val_fraction)), also within a document, which
then is one document on either side. For Tiny Shakespeare and 0.1 this is the split of nanoGPT.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from tokenmill.documents import dataset
from tokenmill.errors import UserError
from tokenmill.tokenization.metadata import Split
from tokenmill.tokenization.params import TokenizeParams


def split_texts(clean: Path, params: TokenizeParams) -> Iterator[tuple[Split, pl.Series]]:
    """Yield the corpus in its order as (side, texts).

    Raises:
        UserError: one side would be empty; found before any text is read.
    """
    if params.split == "hash":
        threshold = int(params.val_fraction * 2**64)
        _refuse_empty_hash_side(clean, threshold, params)
        return _by_hash(dataset.batches(clean, ("text", "id")), threshold)
    total = dataset.totals(clean).chars
    edge = int(total * (1 - params.val_fraction))
    if not 0 < edge < total:
        raise UserError(
            f"tokenize.val_fraction ({params.val_fraction}) cuts {total:,} characters at {edge:,}, which leaves one "
            "side without any; change it, or give the pipeline more text."
        )
    return _by_position(dataset.batches(clean, ("text",)), edge)


def _by_hash(frames: Iterable[pl.DataFrame], threshold: int) -> Iterator[tuple[Split, pl.Series]]:
    for frame in frames:
        in_val = _in_val(frame, threshold)
        yield "train", frame["text"].filter(~in_val)
        yield "val", frame["text"].filter(in_val)


def _in_val(frame: pl.DataFrame, threshold: int) -> pl.Series:
    return frame.select(pl.col("id") < pl.lit(threshold, dtype=pl.UInt64)).to_series()


def _refuse_empty_hash_side(clean: Path, threshold: int, params: TokenizeParams) -> None:
    documents = val = 0
    for frame in dataset.batches(clean, ("id",)):
        documents += frame.height
        val += int(_in_val(frame, threshold).sum())
    for side, count, way in (("validation", val, "raise"), ("training", documents - val, "lower")):
        if not count:
            raise UserError(
                f"tokenize.val_fraction ({params.val_fraction}) leaves no {side} document among {documents:,}; "
                f"{way} it, or set tokenize.split to tail."
            )


def _by_position(frames: Iterable[pl.DataFrame], edge: int) -> Iterator[tuple[Split, pl.Series]]:
    """Everything before character `edge` is train; only the document across it is cut."""
    position = 0
    for frame in frames:
        texts = frame["text"]
        ends = position + texts.str.len_chars().cast(pl.Int64).cum_sum()
        before = int((ends <= edge).sum())
        rest = texts.slice(before)
        start = int(ends[before - 1]) if before else position
        position = int(ends[-1]) if len(ends) else position
        yield "train", texts.head(before)
        if start < edge < position:
            yield "train", rest.head(1).str.slice(0, edge - start)
            yield "val", rest.head(1).str.slice(edge - start)
            rest = rest.slice(1)
        yield "val", rest
