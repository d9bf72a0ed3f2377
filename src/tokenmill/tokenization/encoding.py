"""From texts to ids, as fast as is safe.

Three engines give the same ids: `tokenizers` (the reference), splintr (about twenty times as fast, and
young), and a table for characters. splintr is used only after it agreed with the reference, in this very
run, on texts of this very corpus and on strings made to be difficult.
"""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from tokenmill.tokenization.adversarial import adversarial_texts
from tokenmill.tokenization.characters import code_points, id_table, look_up
from tokenmill.tokenization.tokenizer import TextTokenizer, parse_tokenizer

Flat: TypeAlias = tuple[np.ndarray, np.ndarray]
"""All ids in one row (int32) and where each text's ids begin and the last ones end (int64, one more than texts)."""

Encode: TypeAlias = Callable[[list[str]], Flat]
"""Ids of texts, without end-of-text. Special tokens spelled in a text are text."""


EngineName: TypeAlias = Literal["splintr", "tokenizers", "table"]


@dataclass(frozen=True)
class Encoder:
    """An engine, and a sentence where a user should know why it is not the fast one.

    Pickled, it is its name and the tokenizer; a process that unpickles it, however often, builds its engine once.
    """

    name: EngineName
    encode: Encode
    layout: str = field(repr=False)
    """The tokenizer, as in tokenizer.json."""
    note: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.name, self.layout)


@functools.lru_cache(maxsize=1)
def _rebuilt(name: EngineName, layout: str) -> Encoder:
    tokenizer = parse_tokenizer(layout.encode(), Path("tokenizer.json"))
    return Encoder(name, _engine(name, tokenizer), layout)


def _engine(name: EngineName, tokenizer: TextTokenizer) -> Encode:
    match name:
        case "splintr":
            return splintr_engine(tokenizer)
        case "tokenizers":
            return reference_engine(tokenizer)
        case "table":
            return table_engine(tokenizer)


def choose_encoder(tokenizer: TextTokenizer, sample: list[str]) -> Encoder:
    """The fastest engine that gives the ids of the reference on `sample` and on difficult strings."""
    layout = tokenizer.backend.to_str()
    if tokenizer.type == "char":
        return Encoder("table", table_engine(tokenizer), layout)
    reference = reference_engine(tokenizer)
    try:
        fast = splintr_engine(tokenizer)
        difference = first_difference(fast, reference, sample + adversarial_texts())
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust arrives as a BaseException
        difference = f"it failed: {type(error).__name__}: {error}"
    else:
        if difference is None:
            return Encoder("splintr", fast, layout)
    note = f"encoding with `tokenizers`, slower than splintr, because {difference}"
    return Encoder("tokenizers", reference, layout, note)


def first_difference(fast: Encode, reference: Encode, texts: list[str]) -> str | None:
    """What two engines disagree about first, or None. The fast one is asked twice: cold, and from its cache."""
    expected_ids, expected_offsets = reference(texts)
    for _ in range(2):
        ids, offsets = fast(texts)
        if np.array_equal(ids, expected_ids) and np.array_equal(offsets, expected_offsets):
            continue
        for i, text in enumerate(texts):
            got, expected = ids[slice(*offsets[i : i + 2])], expected_ids[slice(*expected_offsets[i : i + 2])]
            if not np.array_equal(got, expected):
                return f"the two disagree about {text[:60]!r}"
        return "the two disagree"
    return None


def reference_engine(tokenizer: TextTokenizer) -> Encode:
    """Hugging Face `tokenizers`: right by definition, and what the others are measured by."""

    def encode(texts: list[str]) -> Flat:
        rows = [one.ids for one in tokenizer.backend.encode_batch_fast(texts, add_special_tokens=False)]
        offsets = _offsets([len(row) for row in rows])
        ids = np.empty(offsets[-1], dtype="<i4")
        for row, start in zip(rows, offsets[:-1], strict=True):
            ids[start : start + len(row)] = row
        return ids, offsets

    return encode


def splintr_engine(tokenizer: TextTokenizer) -> Encode:
    """splintr over the same tokenizer.json, without its special tokens, so that text is text."""
    import splintr  # noqa: PLC0415  (where it is missing, that is one more reason to fall back)

    layout = json.loads(tokenizer.backend.to_str())
    layout["added_tokens"] = []
    engine = splintr.from_json_bytes(json.dumps(layout).encode())

    def encode(texts: list[str]) -> Flat:
        ids, offsets = engine.encode_batch_flat(texts)
        return np.frombuffer(ids, dtype="<i4"), np.frombuffer(offsets, dtype="<i8")

    return encode


def table_engine(tokenizer: TextTokenizer) -> Encode:
    """Characters: one look-up for all of them."""
    table = id_table(tokenizer)

    def encode(texts: list[str]) -> Flat:
        return look_up(code_points(texts), table), _offsets([len(text) for text in texts])

    return encode


def _offsets(lengths: list[int]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(lengths, dtype="<i8")))
