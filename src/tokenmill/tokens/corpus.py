"""Cut a long text where the tokenizer would cut it anyway, so that no document is too long for the memory.

Byte-level BPE never merges across the edges that its pre-tokenizer finds (the pattern of GPT-2: words with
the space before them, numbers, punctuation, white space). So a text may be encoded in segments, in parallel,
with the ids of the whole, if every cut lies on such an edge. The edges used here hold in any version of
Unicode; a text without one (a megabyte of one letter) stays whole.

The clean corpus as tokenizing reads it: batches of whole documents, and a very long document piece by piece.

A document of 200 MB is one cell of a table, and an expression of polars on a table of one row copies it several
times. So it is taken out of the table once, as bytes, and cut where the tokenizer cuts anyway.

Draw text evenly over a corpus of any size, the same text every time.

`sample` reads the whole corpus once and keeps every so many-th document: for learning. `probe` reads a few
documents at even places without reading the rest: for checking.

Which text goes to train and which to val.

`hash`: a document goes to val when its stored id, the xxh3 hash of its text, is below val_fraction · 2^64.
A duplicate has the same id and so lies on the same side; a new document moves no other.
`tail`: the corpus is cut at character floor(characters · (1 - val_fraction)), also within a document, which
then is one document on either side. For Tiny Shakespeare and 0.1 this is the split of nanoGPT.
"""

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from tokenmill.core import shards
from tokenmill.core.errors import UserError
from tokenmill.core.token_file import Split
from tokenmill.tokens.params import TokenizeParams

SEGMENT_CHARS = 1 << 17
"""Characters after which the next edge is looked for: large enough to cost nothing, small enough for all cores."""


_SOLID = r"[^\s\u180e]"


_LETTER = r"[A-Za-z\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]"


_EDGE = re.compile(
    rf"(?<={_SOLID})(?=[ \t\r\n])"  # where white space begins
    rf"|(?<={_LETTER})(?=[.,;:!?。，、；：！？])"  # between a letter and a mark, for scripts without spaces
)


def cut(text: str, size: int = SEGMENT_CHARS) -> Iterator[str]:
    """Yield pieces of at least `size` characters (the last one may be shorter) that join to `text`.

    Example:
        >>> list(cut("To be, or not", size=4))
        ['To be', ', or', ' not']
    """
    return cut_stream((text,), size)


def cut_stream(chunks: Iterable[str], size: int) -> Iterator[str]:
    """The pieces of a text that comes in chunks: the same, wherever these end."""
    rest = ""
    for chunk in chunks:
        start, searched = 0, max(size, len(rest))
        rest += chunk
        while edge := _EDGE.search(rest, searched):
            yield rest[start : edge.start()]
            start = edge.start()
            searched = start + size
        rest = rest[start:]
    yield rest


LONG_BYTES = 32 << 20
"""UTF-8 bytes from which on a document is read in pieces."""


PIECE_CHARS = 8 << 20
"""Characters after which the next edge is looked for."""


def batches(clean: Path, columns: Sequence[str] = ("text",)) -> Iterator[pl.DataFrame]:
    """The documents of a folder, in order, with `columns` and `ends`: whether a document ends with the row's text.

    The rows of one document join to its text, and encoded one by one they have its ids.
    """
    for frame in shards.batches(clean, columns):
        yield from (_whole(frame),) if frame.estimated_size() < LONG_BYTES else _pieces(frame)


def _whole(documents: pl.DataFrame) -> pl.DataFrame:
    return documents.with_columns(pl.lit(True).alias("ends"))


def _pieces(documents: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Documents over LONG_BYTES in pieces, each in a batch of its own; what lies between them as it is."""
    start = 0
    for row in _long_rows(documents["text"]):
        if start < row:
            yield _whole(documents[start:row])
        others = [column[row : row + 1] for column in documents if column.name != "text"]
        yield from _rows(documents["text"].cast(pl.Binary)[row], others)
        start = row + 1
    if start < len(documents):
        yield _whole(documents[start:])


def _long_rows(texts: pl.Series) -> list[int]:
    """Which texts are long. One alone is what makes its batch so large, and is not measured: that would copy it."""
    if len(texts) == 1:
        return [0]
    return np.flatnonzero(texts.str.len_bytes().to_numpy() >= LONG_BYTES).tolist()


def _rows(text: bytes, others: Sequence[pl.Series]) -> Iterator[pl.DataFrame]:
    """One row for each piece of `text`, beside the other columns of its document."""
    left = len(text)
    for piece in cut_stream(_decoded(text), PIECE_CHARS):
        left -= len(piece.encode())
        yield pl.DataFrame([pl.Series("text", [piece]), *others, pl.Series("ends", [left == 0])])


def _decoded(text: bytes) -> Iterable[str]:
    blocks = (text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS))
    return codecs.iterdecode(blocks, "utf-8")


UNIT_CHARS = 4096
"""Longer documents count as several, so that one long text is sampled over its whole length, too."""


PROBES = 16
"""Places in the corpus that `probe` looks at."""


PROBE_ROWS = 64
"""Documents that `probe` looks at in each place, at most."""


def sample(clean: Path, budget: int) -> Iterator[list[str]]:
    """Yield lists of texts, at most `budget` UTF-8 bytes in all, drawn evenly over the corpus.

    The share budget / corpus of all documents is taken, at even distances; documents over UNIT_CHARS are cut
    into several first. A corpus within the budget is yielded whole.
    """
    rate = min(1.0, budget / max(1, shards.totals(clean).bytes))
    seen, left = 0, budget
    for frame in batches(clean):
        units = _units(frame["text"])
        marks = np.floor(np.arange(seen - 1, seen + len(units)) * rate)  # the first document is always taken
        seen += len(units)
        chosen = _fitting(units.gather(np.flatnonzero(np.diff(marks))), left)
        left -= sum(len(text.encode()) for text in chosen)
        if chosen:
            yield chosen
        if left <= 0:
            return


def _units(texts: pl.Series) -> pl.Series:
    """The texts, those over UNIT_CHARS in pieces."""
    if (texts.str.len_chars() <= UNIT_CHARS).all():
        return texts
    return pl.Series([piece for text in texts.to_list() for piece in cut(text, UNIT_CHARS)], dtype=pl.String)


def _fitting(texts: pl.Series, budget: int) -> list[str]:
    """The first texts that fit into `budget` bytes; the one that crosses it is cut."""
    ends = texts.str.len_bytes().cum_sum().to_numpy()
    fitting = int(np.searchsorted(ends, budget, side="right"))
    kept = texts.head(fitting).to_list()
    rest = budget - (int(ends[fitting - 1]) if fitting else 0)
    if fitting < len(texts) and (last := texts[fitting].encode()[:rest].decode(errors="ignore")):
        kept.append(last)
    return kept


def probe(clean: Path, budget: int) -> list[str]:
    """Texts from even places of the corpus, about `budget` characters in all at most."""
    files = shards.shards(clean)
    places = sorted({i * len(files) // PROBES for i in range(PROBES)})
    texts: list[str] = []
    for place in places:
        documents = shards.count(files[place])
        starts = sorted({i * documents * len(places) // PROBES for i in range(PROBES // len(places))})
        for start in starts:
            excerpt = shards.excerpt(files[place], start, PROBE_ROWS)
            texts += _first(excerpt, budget // (len(places) * len(starts)))
    return texts


def _first(texts: Iterable[str], budget: int) -> list[str]:
    """The first `budget` characters of `texts`."""
    kept = []
    for text in texts:
        if budget <= 0:
            break
        kept.append(text[:budget])
        budget -= len(text)
    return kept


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
        return _by_hash(batches(clean, ("text", "id")), threshold)
    total = shards.totals(clean).chars
    edge = int(total * (1 - params.val_fraction))
    if not 0 < edge < total:
        raise UserError(
            f"tokenize.val_fraction ({params.val_fraction}) cuts {total:,} characters at {edge:,}, which leaves one "
            "side without any; change it, or give the pipeline more text."
        )
    return _by_position(batches(clean), edge)


def _by_hash(frames: Iterable[pl.DataFrame], threshold: int) -> Iterator[Texts]:
    for frame in frames:
        in_val, ends = _in_val(frame, threshold), frame["ends"].to_numpy()
        yield Texts("train", frame["text"].filter(pl.Series(~in_val)), ends[~in_val])
        yield Texts("val", frame["text"].filter(pl.Series(in_val)), ends[in_val])


def _in_val(frame: pl.DataFrame, threshold: int) -> np.ndarray:
    return frame["id"].to_numpy() < np.uint64(threshold)


def _refuse_empty_hash_side(clean: Path, threshold: int, params: TokenizeParams) -> None:
    documents = val = 0
    for frame in shards.batches(clean, ("id",)):
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
