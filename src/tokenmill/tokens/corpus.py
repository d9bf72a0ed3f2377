"""Read the clean corpus: in segments where a document is very long, as a sample, and split into train and val.

Byte-level BPE never merges across the boundaries that its pre-tokenizer finds (GPT-2's pattern: words with the space
before them, numbers, punctuation, white space). A text that is cut at such boundaries has the same ids as the whole, so
segments can be encoded in parallel and a document need not fit into memory several times.
"""

import codecs
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
"""Minimum length of a segment that is encoded: large enough to cost nothing, small enough to occupy all cores."""

LONG_BYTES = 32 << 20
"""Documents of at least this many UTF-8 bytes are read in segments."""

LONG_SEGMENT_CHARS = 8 << 20
"""Minimum length of a segment in which a long document is read."""

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


def segments(text: str, size: int = SEGMENT_CHARS) -> Iterator[str]:
    """Yield segments of at least `size` characters (the last one may be shorter) that join to `text`.

    A text without a boundary (a megabyte of one letter) stays whole.

    Example:
        >>> list(segments("To be, or not", size=4))
        ['To be', ', or', ' not']
    """
    return stream_segments((text,), size)


def stream_segments(chunks: Iterable[str], size: int) -> Iterator[str]:
    """Yield the segments of a text that arrives in chunks; they do not depend on where the chunks end."""
    rest = ""
    for chunk in chunks:
        start, searched = 0, max(size, len(rest))
        rest += chunk
        while boundary := _BOUNDARY.search(rest, searched):
            yield rest[start : boundary.start()]
            start = boundary.start()
            searched = start + size
        rest = rest[start:]
    yield rest


def frames(clean: Path, columns: Sequence[str] = ("text",)) -> Iterator[pl.DataFrame]:
    """Yield the corpus in order, with `columns` and `ends`: whether the document ends with the row's text.

    The rows of one document join to its text, and their ids join to its ids. A document of LONG_BYTES or more is one
    cell of a table, and polars copies a table of one row several times; so it is taken out as bytes and cut.
    """
    for frame in shards.batches(clean, columns):
        yield from (_whole(frame),) if frame.estimated_size() < LONG_BYTES else _cut_long_documents(frame)


def _whole(documents: pl.DataFrame) -> pl.DataFrame:
    return documents.with_columns(pl.lit(True).alias("ends"))


def _cut_long_documents(documents: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield each segment of a long document as a frame of its own, and the documents between them unchanged."""
    start = 0
    for row in _long_rows(documents["text"]):
        if start < row:
            yield _whole(documents[start:row])
        others = [column[row : row + 1] for column in documents if column.name != "text"]
        yield from _segment_rows(documents["text"].cast(pl.Binary)[row], others)
        start = row + 1
    if start < len(documents):
        yield _whole(documents[start:])


def _long_rows(texts: pl.Series) -> list[int]:
    """The rows of long texts. A single text must be the long one; measuring it would copy it."""
    if len(texts) == 1:
        return [0]
    return np.flatnonzero(texts.str.len_bytes().to_numpy() >= LONG_BYTES).tolist()


def _segment_rows(text: bytes, others: Sequence[pl.Series]) -> Iterator[pl.DataFrame]:
    """One row for each segment of `text`, beside the other columns of its document."""
    left = len(text)
    blocks = (text[start : start + LONG_SEGMENT_CHARS] for start in range(0, len(text), LONG_SEGMENT_CHARS))
    for segment in stream_segments(codecs.iterdecode(blocks, "utf-8"), LONG_SEGMENT_CHARS):
        left -= len(segment.encode())
        yield pl.DataFrame([pl.Series("text", [segment]), *others, pl.Series("ends", [left == 0])])


def sample(clean: Path, budget: int) -> Iterator[list[str]]:
    """Yield lists of texts, at most `budget` UTF-8 bytes in all, at even distances over the whole corpus.

    The corpus is read once. The same corpus and budget give the same texts; a corpus within the budget comes whole.
    """
    rate = min(1.0, budget / max(1, shards.totals(clean).bytes))
    seen, left = 0, budget
    for frame in frames(clean):
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
    for number in chosen:
        documents = shards.count(files[number])
        starts = sorted({i * documents * len(chosen) // PROBES for i in range(PROBES // len(chosen))})
        for start in starts:
            excerpt = shards.excerpt(files[number], start, PROBE_ROWS)
            texts += _take_chars(excerpt, budget // (len(chosen) * len(starts)))
    return texts


def _take_chars(texts: Iterable[str], budget: int) -> list[str]:
    """The first `budget` characters of `texts`."""
    kept = []
    for text in texts:
        if budget <= 0:
            break
        kept.append(text[:budget])
        budget -= len(text)
    return kept


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
