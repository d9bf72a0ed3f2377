"""Text as an array of code points, and the way from code points to ids by one table.

Strings that tokenizers disagree about: what a fast encoder must get right before it is believed.

From texts to ids, as fast as is safe.

Three engines give the same ids: `tokenizers` (the reference), splintr (about twenty times as fast, and
young), and a table for characters. splintr is used only after it agreed with the reference, in this very
run, on texts of this very corpus and on strings made to be difficult.
"""

import functools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.tokenizer import END_OF_TEXT, TextTokenizer, parse_tokenizer, unknown_characters

CODE_POINTS = 0x110000
"""How many code points Unicode has."""


def code_points(texts: Sequence[str]) -> np.ndarray:
    """The code points of all texts in one row, uint32."""
    return np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<u4")


def id_table(tokenizer: TextTokenizer) -> np.ndarray:
    """The id of every code point, int32, -1 where the tokenizer has none."""
    table = np.full(CODE_POINTS, -1, dtype="<i4")
    for token, token_id in tokenizer.backend.get_vocab(with_added_tokens=False).items():
        if len(token) == 1:
            table[ord(token)] = token_id
    return table


def look_up(codes: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The ids of `codes`, int32.

    Raises:
        UserError: a code point has no id.
    """
    ids = table[codes]
    if ids.size and ids.min() < 0:
        raise UserError(unknown_characters("".join(map(chr, np.unique(codes[ids < 0])))))
    return ids


FRAGMENTS = (
    *(chr(code) for code in range(0x20)),  # control characters, NUL among them
    *("\x7f", "\x85", "\xa0", "\xad", "\u1680", "\u180e", "\u2003", "\u2028", "\u3000", "\ufeff", "\ufffd", "\uffff"),
    *("\u200b", "\u200c", "\u200d", "\u2060", "\u200e", "\u202e"),  # zero width, direction
    *("e\u0301", "\u0301", "a\u0308\u0323", "\u0e33", "क्षि", "한", "각"),  # combining marks
    *("'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "’s", "don't", "''", "'"),  # contractions
    *("0", "1234567890", "3.14", "١٢٣", "½", "Ⅷ", "²", "1,000", "0x1F", "𝟘"),
    *(
        "Hello",
        " world",
        "ÜBER",
        "straße",
        "İ",
        "ſ",
        "ﬁ",
        "Привет",
        "γεια",
        "שלום",
        "مرحبا",
        "你好",
        "こんにちは",
        "ไทย",
    ),
    *("🙂", "👩‍👩‍👧‍👦", "🇫🇷", "👍🏽", "☃️", "\U0001f9d1", "\U000e0001", "\U0010ffff"),
    *("!?", "...", "---", "=" * 9, "/*", "{}", "<|", "|>", "_", "__init__", "https://a.b/c?d=e&f#g", "a@b.c", "\\"),
    *(" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\u00a0 "),
    *(END_OF_TEXT, "<|endoftext", "endoftext|>", f" {END_OF_TEXT}", "<|im_start|>", "[CLS]", "<s>"),
)


def adversarial_texts(count: int = 400, seed: int = 0) -> list[str]:
    """Every fragment alone, long runs, and `count` random mixtures; always the same."""
    random_source = random.Random(seed)
    runs = [
        unit * length
        for unit in ("a", " ", "\n", "é", "你", "🙂", "\x00", "' ", "ab", "1", "!", "\u0301")
        for length in (2, 3, 33, 1000)
    ]
    mixed = ["".join(random_source.choices(FRAGMENTS, k=random_source.randint(2, 40))) for _ in range(count)]
    points = [
        "".join(chr(random_source.choice((code, code % 0x3000, code % 0x250))) for code in _scalars(random_source))
        for _ in range(count // 4)
    ]
    return ["", *FRAGMENTS, *runs, *mixed, *points]


def _scalars(random_source: random.Random) -> list[int]:
    """Forty random code points without surrogates."""
    drawn = (random_source.randrange(0x110000) for _ in range(40))
    return [code for code in drawn if not 0xD800 <= code < 0xE000]


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
