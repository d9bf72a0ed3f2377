"""Columns of documents, some of which are conversations with marks at the boundaries of turns.

Every function works on a whole batch (polars, String, no nulls). A batch without marks costs one
search for them.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import polars as pl

from tokenmill.formats.chat import START, TURN_END, TURN_TOKENS

Encoded: TypeAlias = tuple[np.ndarray, np.ndarray]
"""The ids of all texts in one row (int32), and the offsets at which each text's ids begin (int64).
There is one offset more than texts; the last one is the end."""

Encode: TypeAlias = Callable[[list[str]], Encoded]
"""A function that encodes texts without special tokens. The spelling of a special token in a text
is encoded as ordinary text."""

_ANY = f"[{''.join(TURN_TOKENS)}]"

_PART = f"{_ANY}|[^{''.join(TURN_TOKENS)}]+"

_BEGIN = f"[{''.join(START.values())}]"

_MARK_BYTES = len(TURN_END.encode())


def has_marks(texts: pl.Series) -> pl.Series:
    """Whether each text has marks, a Boolean column."""
    return texts.str.contains(_ANY)


def plain_column(texts: pl.Series) -> pl.Series:
    """Texts from outside, without the code points of marks: `plain` for a batch."""
    return texts.str.replace_all(_ANY, "") if has_marks(texts).any() else texts


def as_lines(texts: pl.Series) -> pl.Series:
    """The texts without marks, each turn on a line of its own. Filters and measures use this
    form."""
    if not has_marks(texts).any():
        return texts
    texts = texts.str.replace_all(f"{TURN_END}$|{_BEGIN}", "")
    return texts.str.replace_all(TURN_END, "\n", literal=True)


def text_bytes(texts: pl.Series) -> int:
    """UTF-8 bytes of the texts without their marks."""
    return int(texts.str.len_bytes().cast(pl.Int64).sum()) - _MARK_BYTES * mark_count(texts)


def mark_count(texts: pl.Series) -> int:
    """The number of marks in all texts together."""
    return int(texts.str.count_matches(_ANY).sum()) if has_marks(texts).any() else 0


def parts(texts: pl.Series) -> pl.DataFrame:
    """All marks and the texts between them, in order, one each row; columns `row`, `part`,
    `is_mark`."""
    lists = pl.DataFrame({"part": texts.str.extract_all(_PART)}).with_row_index("row")
    found = lists.explode("part").drop_nulls()
    return found.with_columns(pl.col("part").str.contains(f"^{_ANY}").alias("is_mark"))


def texts_between(texts: pl.Series) -> pl.Series:
    """The texts between the marks of all documents, in order, one each row."""
    if not has_marks(texts).any():
        return texts
    found = parts(texts)
    return found["part"].filter(~found["is_mark"])


def change_text(texts: pl.Series, function: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Apply `function`, which works row by row, to the text between marks.

    A turn whose text becomes empty is removed. A document becomes empty if the text of an
    assistant's turn does, as in `render_chat`.
    """
    marked = has_marks(texts)
    if not marked.any():
        return function(texts)
    found = parts(texts.filter(marked))
    is_text = ~found["is_mark"]
    others = texts.filter(~marked)
    done = function(pl.concat([others, found["part"].filter(is_text)]))
    changed = found["part"].scatter(is_text.arg_true(), done.slice(len(others)))
    rows = found.with_columns(changed.alias("part")).group_by("row", maintain_order=True)
    chats = _without_empty_turns(rows.agg(pl.col("part").str.join())["part"])
    both = pl.concat([done.head(len(others)), chats], rechunk=True)
    place = np.empty(len(texts), np.int64)
    place[(~marked).arg_true().to_numpy()] = np.arange(len(others))
    place[marked.arg_true().to_numpy()] = len(others) + np.arange(len(chats))
    return both.gather(place).alias(texts.name)


def _without_empty_turns(chats: pl.Series) -> pl.Series:
    unanswered = chats.str.contains(START["assistant"] + TURN_END, literal=True)
    chats = chats.str.replace_all(f"{_BEGIN}{TURN_END}", "")
    return chats.zip_with(~unanswered, pl.Series([""], dtype=pl.String))


def encode_documents(texts: pl.Series, encode: Encode, turn_ids: Mapping[str, int]) -> Encoded:
    """Encode documents: the text between marks by `encode`, the marks by `turn_ids`.

    The text between two marks is encoded by itself, as `tokenizers` does it around special tokens.
    """
    if not has_marks(texts).any():
        return encode(texts.to_list())
    data = texts.str.join().cast(pl.Binary).item()
    ends = np.cumsum(texts.str.len_bytes().to_numpy(), dtype=np.int64)
    marks, special = _marks_in(np.frombuffer(data, np.uint8), turn_ids)
    edges = np.sort(np.concatenate([[0], ends, marks, marks + _MARK_BYTES]), kind="stable")
    edges = edges[np.diff(edges, prepend=-1) > 0]
    is_mark = np.isin(edges[:-1], marks, assume_unique=True)
    spans = np.stack([edges[:-1], edges[1:]])[:, ~is_mark].tolist()
    ids, offsets = encode([data[start:end].decode() for start, end in zip(*spans, strict=True)])
    whole = np.insert(ids, offsets[np.cumsum(~is_mark)[is_mark]], special)
    sizes = np.ones(len(is_mark), np.int64)
    sizes[~is_mark] = np.diff(offsets)
    tokens = np.concatenate([[0], np.cumsum(sizes)])
    return whole, np.concatenate([[0], tokens[np.searchsorted(edges, ends)]])


def _marks_in(data: np.ndarray, turn_ids: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """The byte offset of each mark in UTF-8 `data`, and its id. Marks differ only in their last
    byte."""
    first, second, _ = TURN_END.encode()
    ids = np.full(256, -1, np.int32)
    for mark, token in turn_ids.items():
        ids[mark.encode()[-1]] = token
    found = np.flatnonzero(data == first)
    found = found[data[found + 1] == second]
    special = ids[data[found + 2]]
    return found[special >= 0], special[special >= 0]
