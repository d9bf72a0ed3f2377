"""Turn texts into token ids with the fastest implementation that gives the right ids.

The reference is `tokenizers` by Hugging Face. gigatoken is far faster, but young. It is used only
after it agreed with the reference, in this run, on texts of this corpus and on texts made to be
difficult. A character tokenizer looks characters up in a table.
"""

import functools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl

from tokenmill.core.errors import UserError
from tokenmill.formats.chat_columns import Encode, Encoded, encode_documents
from tokenmill.formats.token_file import DTYPE
from tokenmill.formats.tokenizer import (
    SPECIAL_TOKENS,
    TextTokenizer,
    parse_tokenizer,
    unknown_characters,
)

CODE_POINTS = 0x110000
"""The number of code points in Unicode."""

Implementation: TypeAlias = Literal["gigatoken", "tokenizers", "table"]


@dataclass(frozen=True)
class Encoder:
    """The chosen implementation, ready to use in this process or to be sent to another one.

    It is pickled as its name and the tokenizer. A process builds it once, however often it is
    unpickled, and compares gigatoken with the reference again, for the processor may be another.
    """

    name: Implementation
    encode: Encode
    tokenizer: TextTokenizer = field(repr=False)
    note: str = ""
    """Why this is not the fast implementation, in a sentence for the user; empty if it is."""

    def encode_documents(self, texts: pl.Series) -> Encoded:
        """The ids of documents. Their marks become the special tokens of turns."""
        return encode_documents(texts, self.encode, self.tokenizer.turn_ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.name, self.tokenizer.backend.to_str(), self.tokenizer.sha256)


@functools.lru_cache(maxsize=1)
def _rebuild(name: Implementation, layout: str, sha256: str) -> Encoder:
    tokenizer = parse_tokenizer(layout.encode(), Path("tokenizer.json"))
    tokenizer = replace(tokenizer, sha256=sha256)  # of the file, which may be laid out otherwise
    if name == "tokenizers":
        return Encoder(name, tokenizer.encode_batch, tokenizer)
    return choose_encoder(tokenizer, [])


def choose_encoder(tokenizer: TextTokenizer, sample: list[str]) -> Encoder:
    """The fastest encoder that gives the reference's ids on `sample` and difficult texts."""
    if tokenizer.type == "char":
        return Encoder("table", build_table(tokenizer), tokenizer)
    reference = tokenizer.encode_batch
    try:
        fast = build_gigatoken(tokenizer)
        difference = first_disagreement(fast, reference, sample + adversarial_texts())
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust arrives as a BaseException
        difference = f"it failed: {type(error).__name__}: {error}"
    else:
        if difference is None:
            return Encoder("gigatoken", fast, tokenizer)
    note = f"encoding with `tokenizers`, slower than gigatoken, because {difference}"
    return Encoder("tokenizers", reference, tokenizer, note)


def first_disagreement(fast: Encode, reference: Encode, texts: list[str]) -> str | None:
    """A sentence about a text whose ids differ, or None. `fast` runs twice: with a cold cache and a
    warm one."""
    expected = reference(texts)
    if all(_is_same(fast(texts), expected) for _ in range(2)):
        return None
    example = next((text for text in texts if not _is_same(fast([text]), reference([text]))), None)
    return "the two disagree" if example is None else f"the two disagree about {example[:60]!r}"


def _is_same(one: Encoded, other: Encoded) -> bool:
    return all(map(np.array_equal, one, other))


def build_gigatoken(tokenizer: TextTokenizer) -> Encode:
    """Encode with gigatoken from the same tokenizer.json, without its special tokens, so that their
    spellings are ordinary text."""
    import gigatoken  # noqa: PLC0415  (where it cannot be imported, `choose_encoder` falls back)

    layout = json.loads(tokenizer.backend.to_str())
    layout["added_tokens"] = []
    backend = gigatoken.Tokenizer.from_json(json.dumps(layout))

    def encode(texts: list[str]) -> Encoded:
        # In the caller's thread: shards are encoded beside each other already, and each further
        # thread would keep the words that it has seen
        rows: Any = backend.encode_batch(texts, parallel=False).layout
        return rows.content.data.view(DTYPE), rows.offsets.data.astype("<i8", copy=False)

    return encode


def build_table(tokenizer: TextTokenizer) -> Encode:
    """Encode characters: look up all of them in a table from code points to ids.

    Raises:
        UserError: raised by the returned function for a character without an id.
    """
    table = np.full(CODE_POINTS, -1, dtype=DTYPE)
    for token, token_id in tokenizer.backend.get_vocab(with_added_tokens=False).items():
        if len(token) == 1:
            table[ord(token)] = token_id

    def encode(texts: list[str]) -> Encoded:
        codes = code_points(texts)
        ids = table[codes]
        if ids.size and ids.min() < 0:
            raise UserError(unknown_characters("".join(map(chr, np.unique(codes[ids < 0])))))
        return ids, np.concatenate(([0], np.cumsum([len(text) for text in texts], dtype="<i8")))

    return encode


def code_points(texts: Sequence[str]) -> np.ndarray:
    """The code points of all texts in one row, uint32."""
    return np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<u4")


FRAGMENTS = (
    *(chr(code) for code in range(0x20)),  # control characters, NUL among them
    *("\x7f", "\x85", "\xa0", "\xad", "\u1680", "\u180e", "\u2003", "\u2028", "\u3000"),
    *("\ufeff", "\ufffd", "\uffff"),
    *("\u200b", "\u200c", "\u200d", "\u2060", "\u200e", "\u202e"),  # zero width, direction
    *("e\u0301", "\u0301", "a\u0308\u0323", "\u0e33", "क्षि", "한", "각"),  # combining marks
    *("'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "’s", "don't", "''", "'"),  # contractions
    *("0", "1234567890", "3.14", "١٢٣", "½", "Ⅷ", "²", "1,000", "0x1F", "𝟘"),
    *("Hello", " world", "ÜBER", "straße", "İ", "ſ", "ﬁ"),
    *("Привет", "γεια", "שלום", "مرحبا", "你好", "こんにちは", "ไทย"),
    *("🙂", "👩‍👩‍👧‍👦", "🇫🇷", "👍🏽", "☃️", "\U0001f9d1", "\U000e0001", "\U0010ffff"),
    *("!?", "...", "---", "=" * 9, "/*", "{}", "<|", "|>", "_", "__init__"),
    *("https://a.b/c?d=e&f#g", "a@b.c", "\\"),
    *(" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\u00a0 "),
    *SPECIAL_TOKENS,
    *("<|endoftext", "endoftext|>", f" {SPECIAL_TOKENS[0]}", "<|im_start|>", "[CLS]", "<s>"),
)
"""The parts from which difficult texts are made."""


def adversarial_texts(count: int = 400, seed: int = 0) -> list[str]:
    """Texts about which tokenizers disagree: all fragments, long runs, and `count` random mixtures.
    They are always the same."""
    random_source = random.Random(seed)
    runs = [
        unit * length
        for unit in ("a", " ", "\n", "é", "你", "🙂", "\x00", "' ", "ab", "1", "!", "\u0301")
        for length in (2, 3, 33, 1000)
    ]
    mixed = [
        "".join(random_source.choices(FRAGMENTS, k=random_source.randint(2, 40)))
        for _ in range(count)
    ]
    points = [
        "".join(
            chr(random_source.choice((code, code % 0x3000, code % 0x250)))
            for code in _scalars(random_source)
        )
        for _ in range(count // 4)
    ]
    return ["", *FRAGMENTS, *runs, *mixed, *points]


def _scalars(random_source: random.Random) -> list[int]:
    """Forty random code points, surrogates left out."""
    drawn = (random_source.randrange(CODE_POINTS) for _ in range(40))
    return [code for code in drawn if not 0xD800 <= code < 0xE000]
