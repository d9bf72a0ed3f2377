"""Read the clean corpus: in segments where a document is very long, as a sample, and split into train and val.

Byte-level BPE never merges across the boundaries that its pre-tokenizer finds (GPT-2's pattern: words with the space
before them, numbers, punctuation, white space). A text that is cut at such boundaries has the same ids as the whole, so
segments can be encoded in parallel.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from tokenmill.core import shards
from tokenmill.core.errors import UserError
from tokenmill.core.token_file import Split
from tokenmill.tokens.params import TokenizeParams

SEGMENT_CHARS = 1 << 17
"""Minimum length of a segment: large enough to cost nothing, small enough to occupy all cores."""

SAMPLE_UNIT_CHARS = 4096
"""Longer documents are sampled as several units, so that one long text is sampled over its whole length."""

VALIDATION_NAME = r"(?i)(^|[-_./ ])(val|valid|validation)($|[-_./ ])"
"""The path of a file that holds validation text, as data sets are published: `TinyStories-valid.txt`,
`validation-00000-of-00001.parquet`, `val/7.txt`."""

PROBES = 16
"""Places in the corpus at which `probe` reads."""

PROBE_ROWS = 64
"""Maximum number of documents that `probe` reads at one place."""

# The boundaries below hold in every version of Unicode; other boundaries of the pre-tokenizer are not needed.
_SOLID = r"[^\s\u180e]"
_LETTER = r"[A-Za-z\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]"
_BOUNDARY = re.compile(
    rf"(?<={_SOLID})(?=[ \t\r\n])"  # where white space begins
    rf"|(?<={_LETTER})(?=[.,;:!?。，、；：！？])"  # between a letter and a mark, for scripts without spaces
)


def segments(text: str, size: int) -> Iterator[str]:
    """Yield segments of at least `size` characters (the last one may be shorter) that join to `text`.

    A text without a boundary (a megabyte of one letter) stays whole.

    Example:
        >>> list(segments("To be, or not", size=4))
        ['To be', ', or', ' not']
    """
    start = 0
    while boundary := _BOUNDARY.search(text, start + size):
        yield text[start : boundary.start()]
        start = boundary.start()
    yield text[start:]


def frames(clean: Path, columns: Sequence[str] = ("text",)) -> Iterator[pl.DataFrame]:
    """Yield the corpus in order, with `columns` and `ends`: whether the document ends with the row's text.

    A document over SEGMENT_CHARS comes in several rows; they join to its text, and their ids join to its ids.
    """
    for frame in shards.batches(clean, columns):
        if (frame["text"].str.len_chars() <= SEGMENT_CHARS).all():
            yield frame.with_columns(pl.lit(True).alias("ends"))
            continue
        parts = [list(segments(text, SEGMENT_CHARS)) for text in frame["text"].to_list()]
        ends = np.zeros(sum(map(len, parts)), dtype=np.bool_)
        ends[np.cumsum([len(part) for part in parts]) - 1] = True
        cut = frame.with_columns(pl.Series("text", parts, dtype=pl.List(pl.String))).explode("text")
        yield cut.with_columns(pl.Series("ends", ends))


def sample(clean: Path, budget: int) -> Iterator[list[str]]:
    """Yield lists of texts, at most `budget` UTF-8 bytes in all, at even distances over the whole corpus.

    The corpus is read once. The same corpus and budget give the same texts; a corpus within the budget comes whole.
    """
    rate = min(1.0, budget / max(1, shards.totals(clean).bytes))
    seen, left = 0, budget
    for frame in shards.batches(clean):
        units = _sample_units(frame["text"])
        marks = np.floor(np.arange(seen - 1, seen + len(units)) * rate)  # the first unit is always taken
        seen += len(units)
        chosen = _take_bytes(units.gather(np.flatnonzero(np.diff(marks))), left)
        left -= sum(len(text.encode()) for text in chosen)
        if chosen:
            yield chosen
        if left <= 0:
            return


def _sample_units(texts: pl.Series) -> pl.Series:
    """The texts; longer ones are cut into segments."""
    if (texts.str.len_chars() <= SAMPLE_UNIT_CHARS).all():
        return texts
    return pl.Series([unit for text in texts.to_list() for unit in segments(text, SAMPLE_UNIT_CHARS)], dtype=pl.String)


def _take_bytes(texts: pl.Series, budget: int) -> list[str]:
    """The first texts that fit into `budget` bytes; the text that crosses the budget is cut."""
    ends = texts.str.len_bytes().cum_sum().to_numpy()
    fitting = int(np.searchsorted(ends, budget, side="right"))
    kept = texts.head(fitting).to_list()
    rest = budget - (int(ends[fitting - 1]) if fitting else 0)
    if fitting < len(texts) and (last := texts[fitting].encode()[:rest].decode(errors="ignore")):
        kept.append(last)
    return kept


def probe(clean: Path, budget: int) -> list[str]:
    """Read at most about `budget` characters at evenly spaced places, without reading the rest of the corpus."""
    files = shards.shards(clean)
    chosen = sorted({i * len(files) // PROBES for i in range(PROBES)})
    texts: list[str] = []
    for file in (files[number] for number in chosen):
        documents = shards.count(file)
        starts = sorted({i * documents * len(chosen) // PROBES for i in range(PROBES // len(chosen))})
        share = budget // (len(chosen) * len(starts))
        for start in starts:
            found = shards.excerpt(file, start, PROBE_ROWS)
            left = share - found.str.len_chars().cast(pl.Int64).cum_sum().shift(1, fill_value=0)
            texts += found.filter(left > 0).str.head(left.filter(left > 0)).to_list()
    return texts


class TextSpan(NamedTuple):
    """Consecutive texts of the corpus that belong to one split."""

    split: Split
    texts: pl.Series
    ends: np.ndarray
    """Whether a document ends with this text; bool, one per text."""


def split_corpus(clean: Path, params: TokenizeParams) -> Iterator[TextSpan]:
    """Yield the corpus in order; the texts of a document follow each other directly within their split.

    `auto` sends the documents of files that are named so (VALIDATION_NAME) to val; without any it is `hash`. `hash`
    sends a document to val if its stored id, the XXH3 hash of its text, is below val_fraction · 2^64. `tail` cuts the
    corpus at character floor(characters · (1 - val_fraction)); a document across that character becomes one document in
    each split. For Tiny Shakespeare and 0.1 this is nanoGPT's split.

    Raises:
        UserError: train or val would be empty. The check precedes any reading of text.
    """
    if params.split == "auto" and _has_both_names(clean):
        return _split_documents(frames(clean, ("text", "source")), _is_named_val)
    if params.split in ("auto", "hash"):
        threshold = int(params.val_fraction * 2**64)
        _refuse_empty_split(clean, threshold, params)
        return _split_documents(frames(clean, ("text", "id")), partial(_is_hashed_val, threshold=threshold))
    total = shards.totals(clean).chars
    edge = int(total * (1 - params.val_fraction))
    if not 0 < edge < total:
        raise UserError(
            f"tokenize.val_fraction ({params.val_fraction}) cuts {total:,} characters at {edge:,} and leaves one "
            "split empty; change it, or give the pipeline more text."
        )
    return _split_at(frames(clean), edge)


def _split_documents(
    documents: Iterable[pl.DataFrame], is_val: Callable[[pl.DataFrame], np.ndarray]
) -> Iterator[TextSpan]:
    for frame in documents:
        in_val, ends = is_val(frame), frame["ends"].to_numpy()
        yield TextSpan("train", frame["text"].filter(pl.Series(~in_val)), ends[~in_val])
        yield TextSpan("val", frame["text"].filter(pl.Series(in_val)), ends[in_val])


def _is_hashed_val(frame: pl.DataFrame, threshold: int) -> np.ndarray:
    return frame["id"].to_numpy() < np.uint64(threshold)


def _is_named_val(frame: pl.DataFrame) -> np.ndarray:
    return frame["source"].str.contains(VALIDATION_NAME).to_numpy()


def _has_both_names(clean: Path) -> bool:
    """Whether the corpus has files that are named as validation text, and others."""
    found: set[bool] = set()
    for frame in shards.batches(clean, ("source",)):
        found |= set(_is_named_val(frame).tolist())
    return len(found) > 1


def _refuse_empty_split(clean: Path, threshold: int, params: TokenizeParams) -> None:
    documents = val = 0
    for frame in shards.batches(clean, ("id",)):
        documents += frame.height
        val += int(_is_hashed_val(frame, threshold).sum())
    for name, count, change in (("validation", val, "raise"), ("training", documents - val, "lower")):
        if not count:
            raise UserError(
                f"tokenize.val_fraction ({params.val_fraction}) leaves no {name} document among {documents:,}; "
                f"{change} it, or set tokenize.split to tail."
            )


def _split_at(documents: Iterable[pl.DataFrame], edge: int) -> Iterator[TextSpan]:
    """Everything before character `edge` is train; only the document across it is cut."""
    position = 0
    for frame in documents:
        texts, ends = frame["text"], frame["ends"].to_numpy()
        stops = position + texts.str.len_chars().cast(pl.Int64).cum_sum().to_numpy()
        before = int((stops <= edge).sum())
        start = int(stops[before - 1]) if before else position
        position = int(stops[-1]) if len(stops) else position
        yield TextSpan("train", texts.head(before), ends[:before] | (stops[:before] == edge))
        if start < edge < position:
            across = texts.slice(before, 1)
            yield TextSpan("train", across.str.slice(0, edge - start), np.array([True]))
            yield TextSpan("val", across.str.slice(edge - start), ends[before : before + 1])
            before += 1
        yield TextSpan("val", texts.slice(before), ends[before:])
