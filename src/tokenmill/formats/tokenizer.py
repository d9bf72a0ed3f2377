"""Text as a model reads it: tokenizer.json, which turns text into ids and back.

Everything about the tokenizer comes from its file, nothing from params.yaml. Text is text: one that
spells `<|endoftext|>` or `<|user_start|>` gets the tokens of these characters. Only the pipeline
writes the end-of-text id, after each document, and only the marks of a document become the special
tokens of turns (formats/chat.py).
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from tokenmill.core import paths
from tokenmill.core.errors import UserError, first_line
from tokenmill.core.files import read_bytes, sha256_of, write_json
from tokenmill.formats.chat import TURN_TOKENS, Document, split_turns
from tokenmill.formats.records import read_record
from tokenmill.formats.token_file import DTYPE, Sha256, TokenizerType

END_OF_TEXT = "<|endoftext|>"

SPECIAL_TOKENS = (END_OF_TEXT, *TURN_TOKENS.values())
"""The special tokens with which a new vocabulary begins: end-of-text and the boundaries of
turns."""

RECORD = "hash.json"
"""The file beside tokenizer.json that records its hash, so that a stage can check that the
tokenizer is the one that the stage `tokenizer` wrote."""

_PRINTABLE = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]

BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + number): byte
    for number, byte in enumerate(sorted(set(range(256)) - set(_PRINTABLE)))
}
"""The byte that a character stands for in a byte-level vocabulary: itself if Latin-1 can print it,
otherwise one of U+0100 … (Radford et al. 2019, GPT-2's encoder)."""


@dataclass(frozen=True)
class TextTokenizer:
    """A tokenizer read from its file.

    Example:
        >>> tokenizer = read_tokenizer(Path("data/tokenizer/tokenizer.json"))
        >>> tokenizer.decode(tokenizer.encode("Hello."))
        'Hello.'
    """

    type: TokenizerType
    vocab_size: int
    """Number of ids, special tokens included; ids are 0 … vocab_size - 1."""
    eot_id: int
    """The id of `<|endoftext|>`."""
    turn_ids: Mapping[str, int] = field(compare=False)
    """The id of the special token for each mark of a turn (formats/chat.py)."""
    sha256: str
    """The SHA-256 of the file's bytes."""
    backend: Tokenizer = field(repr=False, compare=False)
    """The Hugging Face tokenizer; it treats special tokens in text as text."""

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids that stand for no text. Any of them ends an answer."""
        return frozenset([self.eot_id, *self.turn_ids.values()])

    def encode(self, text: str) -> list[int]:
        """The ids of `text`. The spelling of a special token in it is encoded as ordinary text.

        Raises:
            UserError: a character tokenizer does not know a character.
        """
        if unknown := self.unknown(text):
            raise UserError(unknown_characters(unknown))
        return self.backend.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of several texts in one row (int32), and the offsets at which each text's ids
        begin; see `encode`."""
        if self.type == "char" and (unknown := self.unknown("".join(texts))):
            raise UserError(unknown_characters(unknown))
        found = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        rows = [one.ids for one in found]
        offsets = np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype="<i8")))
        return np.fromiter(itertools.chain.from_iterable(rows), DTYPE, offsets[-1]), offsets

    def encode_document(self, document: Document) -> list[int]:
        """The ids of a document, without end-of-text. Its marks become special tokens."""
        return [
            token
            for part in split_turns(document)
            for token in ([self.turn_ids[part]] if part in self.turn_ids else self.encode(part))
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`. Special tokens are spelled out; an incomplete UTF-8 sequence becomes
        U+FFFD."""
        return self.backend.decode(list(ids), skip_special_tokens=False)

    def decode_document(self, ids: Sequence[int]) -> Document:
        """The document of `ids`, with the marks of its turns."""
        marks = {token: mark for mark, token in self.turn_ids.items()}
        runs = itertools.groupby(ids, lambda token: marks.get(token, ""))
        return Document(
            "".join(mark * len(list(run)) if mark else self.decode(list(run)) for mark, run in runs)
        )

    def unknown(self, text: str) -> str:
        """The distinct characters of `text`, sorted, that have no token; for BPE always empty."""
        if self.type == "bpe":
            return ""
        return "".join(sorted(char for char in set(text) if self.backend.token_to_id(char) is None))

    def known(self, text: str) -> str:
        """`text` without the characters that have no token."""
        return text.translate(str.maketrans("", "", self.unknown(text)))


def unknown_characters(characters: str) -> str:
    """The error message about characters that a character tokenizer does not know."""
    shown = ", ".join(f"{char!r} (U+{ord(char):04X})" for char in characters[:5])
    more = f" and {len(characters) - 5} more" if len(characters) > 5 else ""
    return (
        f"The character tokenizer does not know {shown}{more}: its corpus has none; "
        "run `dvc repro` if the corpus changed, use other text, or set tokenizer.type to bpe."
    )


def record_tokenizer(file: Path) -> None:
    """Write the hash of tokenizer.json beside it."""
    write_json(file.with_name(RECORD), {"sha256": sha256_of(file)})


def read_tokenizer(file: Path, way_out: str = "") -> TextTokenizer:
    """Read tokenizer.json. If a stage recorded its hash beside it, the file must have that hash.

    `way_out` is what to do about a tokenizer of another kind; as `paths.way_out` says if it is not
    given.

    Raises:
        UserError: also if the file lacks a special token of the project.
    """
    try:
        content = read_bytes(file)
    except FileNotFoundError:
        raise UserError(f"{file} is missing; `dvc repro tokenizer` makes it.") from None
    tokenizer = parse_tokenizer(content, file, way_out)
    record = file.with_name(RECORD)
    if record.exists() and read_record(record, dict[str, Sha256]) != {"sha256": tokenizer.sha256}:
        raise paths.damaged(file, f"is not the one that {RECORD} beside it records (SHA-256)")
    return tokenizer


def parse_tokenizer(content: bytes, file: Path, way_out: str = "") -> TextTokenizer:
    """Parse `content`, which was read from `file`, as `read_tokenizer` does."""
    way_out = way_out or paths.way_out(file)
    try:
        backend = Tokenizer.from_buffer(content)
        merges = json.loads(content)["model"].get("merges")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # `tokenizers` raises bare Exception, and a panic is none
        raise UserError(f"{file} is not a tokenizer ({first_line(error)}); {way_out}.") from None
    vocabulary = backend.get_vocab(with_added_tokens=True)
    kind = _tokenizer_type(backend, merges=bool(merges))
    if kind is None:
        raise UserError(
            f"{file} does not cut text as GPT-2's byte-level BPE does, and is no character "
            f"tokenizer of this project; {way_out}."
        )
    if problem := _problem(backend, kind):
        raise UserError(f"{file} {problem}; {way_out}.")
    backend.encode_special_tokens = True
    return TextTokenizer(
        type=kind,
        vocab_size=len(vocabulary),
        eot_id=vocabulary[END_OF_TEXT],
        turn_ids={mark: vocabulary[token] for mark, token in TURN_TOKENS.items()},
        sha256=hashlib.sha256(content).hexdigest(),
        backend=backend,
    )


def _problem(backend: Tokenizer, kind: TokenizerType) -> str | None:
    """Why text would not come back from its ids, or not have the same ids for every reader of the
    file; None if all is well."""
    ids = backend.get_vocab(with_added_tokens=True).values()
    added = backend.get_added_tokens_decoder().values()
    special = {token.content for token in added if token.special}
    ordinary = backend.get_vocab(with_added_tokens=False).keys() - special
    if missing := [token for token in SPECIAL_TOKENS if token not in special]:
        return f"has no special token {missing[0]}"
    if set(ids) != set(range(len(ids))):
        return "has gaps in its ids"
    if others := sorted(token.content for token in added if not token.special):
        return f"adds {others[0]!r}, which is not special, so that not every reader would find it"
    if "" in ordinary or (kind == "bpe" and not set("".join(ordinary)) <= BYTE_OF.keys()):
        return "has a token that stands for no bytes"
    if kind == "bpe" and (lacking := BYTE_OF.keys() - ordinary):
        return f"has no token for {len(lacking)} of the 256 bytes"
    return None


def _tokenizer_type(backend: Tokenizer, *, merges: bool) -> TokenizerType | None:
    """The type, recognised by the parts that decide how text is cut; None for an unknown one."""
    model, before = backend.model, backend.pre_tokenizer
    changes_text = (backend.normalizer, backend.truncation, backend.padding) != (None, None, None)
    if not isinstance(model, BPE) or changes_text:
        return None
    if model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    if before is None and not merges and isinstance(backend.decoder, decoders.Fuse):
        return "char"
    if (
        isinstance(before, pre_tokenizers.ByteLevel)
        and before.use_regex
        and not before.add_prefix_space
        and isinstance(backend.decoder, decoders.ByteLevel)
    ):
        return "bpe"
    return None


def add_special_tokens(backend: Tokenizer, tokens: Iterable[str] = SPECIAL_TOKENS) -> None:
    """Make these tokens special. Those that a tokenizer lacks get ids after its others."""
    added = [AddedToken(token, special=True, normalized=False) for token in tokens]
    backend.add_special_tokens(added)


def token_lengths(tokenizer: TextTokenizer) -> np.ndarray:
    """The number of UTF-8 bytes of every token, in the order of the ids; int64."""
    return np.array([len(token) for token in token_bytes(tokenizer)])


def token_bytes(tokenizer: TextTokenizer) -> list[bytes]:
    """The UTF-8 bytes of every token, in the order of the ids; special tokens have none."""
    special, is_bpe = tokenizer.backend.get_added_tokens_decoder(), tokenizer.type == "bpe"
    found = [b""] * tokenizer.vocab_size
    for token, token_id in tokenizer.backend.get_vocab(with_added_tokens=False).items():
        if token_id not in special:
            found[token_id] = bytes(BYTE_OF[char] for char in token) if is_bpe else token.encode()
    return found
