"""Which text goes to train and which to val.

`hash`: a document goes to val when its stored id, the xxh3 hash of its text, is below val_fraction · 2^64.
A duplicate has the same id and so lies on the same side; a new document moves no other.
`tail`: the corpus is cut at character floor(characters · (1 - val_fraction)), also within a document, which
then is one document on either side. For Tiny Shakespeare and 0.1 this is the split of nanoGPT.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from tokenmill.documents import dataset
from tokenmill.errors import UserError
from tokenmill.tokenization import reading
from tokenmill.tokenization.metadata import Split
from tokenmill.tokenization.params import TokenizeParams


class Texts(NamedTuple):
    """Some of the corpus, all on one side."""

    split: Split
    texts: pl.Series
    ends: np.ndarray
    """Whether a document ends with this text; bool, one per text."""


def split_texts(clean: Path, params: TokenizeParams) -> Iterator[Texts]:
    """Yield the corpus in its order; a document in several texts is nowhere interrupted by another of its side.

    Raises:
        UserError: one side would be empty; found before any text is read.
    """
    if params.split == "hash":
        threshold = int(params.val_fraction * 2**64)
        _refuse_empty_hash_side(clean, threshold, params)
        return _by_hash(reading.batches(clean, ("text", "id")), threshold)
    total = dataset.totals(clean).chars
    edge = int(total * (1 - params.val_fraction))
    if not 0 < edge < total:
        raise UserError(
            f"tokenize.val_fraction ({params.val_fraction}) cuts {total:,} characters at {edge:,}, which leaves one "
            "side without any; change it, or give the pipeline more text."
        )
    return _by_position(reading.batches(clean), edge)


def _by_hash(frames: Iterable[pl.DataFrame], threshold: int) -> Iterator[Texts]:
    for frame in frames:
        in_val, ends = _in_val(frame, threshold), frame["ends"].to_numpy()
        yield Texts("train", frame["text"].filter(pl.Series(~in_val)), ends[~in_val])
        yield Texts("val", frame["text"].filter(pl.Series(in_val)), ends[in_val])


def _in_val(frame: pl.DataFrame, threshold: int) -> np.ndarray:
    return frame["id"].to_numpy() < np.uint64(threshold)


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


def _by_position(frames: Iterable[pl.DataFrame], edge: int) -> Iterator[Texts]:
    """Everything before character `edge` is train; only the document across it is cut."""
    position = 0
    for frame in frames:
        texts, ends = frame["text"], frame["ends"].to_numpy()
        stops = position + texts.str.len_chars().cast(pl.Int64).cum_sum().to_numpy()
        before = int((stops <= edge).sum())
        start = int(stops[before - 1]) if before else position
        position = int(stops[-1]) if len(stops) else position
        yield Texts("train", texts.head(before), ends[:before] | (stops[:before] == edge))
        if start < edge < position:
            across = texts.slice(before, 1)
            yield Texts("train", across.str.slice(0, edge - start), np.array([True]))
            yield Texts("val", across.str.slice(edge - start), ends[before : before + 1])
            before += 1
        yield Texts("val", texts.slice(before), ends[before:])
