"""Text as a model reads it: tokenizer.json, which turns text into ids and back, and the template of
conversations.

Everything about the tokenizer comes from its file, nothing from params.yaml. Text is text: a
document that spells `<|endoftext|>` gets the tokens of these thirteen characters. Only the pipeline
writes the end-of-text id, after each document.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tokenmill.core.errors import UserError, first_line
from tokenmill.core.files import sha256_of, write_json
from tokenmill.formats.records import read_record
from tokenmill.formats.token_file import Sha256, TokenizerType

END_OF_TEXT = "<|endoftext|>"

RECORD = "hash.json"
"""A file beside tokenizer.json with its hash: what a stage encodes with is what another stage
wrote."""

_PRINTABLE = (
    *range(ord("!"), ord("~") + 1),
    *range(ord("¡"), ord("¬") + 1),
    *range(ord("®"), ord("ÿ") + 1),
)

BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + number): byte
    for number, byte in enumerate(sorted(set(range(256)) - set(_PRINTABLE)))
}
"""The byte that a character stands for in a byte-level vocabulary: itself if Latin-1 can print it,
otherwise one of U+0100 … (Radford et al. 2019, GPT-2's encoder)."""


NEXT_TURN = "\nUser:"
"""Ends an answer: the model begins to write the next question itself."""

ROLE_NAMES = {
    "system": "System",
    "developer": "System",
    "user": "User",
    "human": "User",
    "prompter": "User",
    "assistant": "Assistant",
    "gpt": "Assistant",
    "chatgpt": "Assistant",
    "bot": "Assistant",
    "model": "Assistant",
}

TURN = re.compile(r"^(System|User|Assistant|Tool|Function):", re.MULTILINE)
"""Begins a turn in a conversation's text."""


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
    """Number of ids, end-of-text included; ids are 0 … vocab_size - 1."""
    eot_id: int
    """The id of `<|endoftext|>`."""
    sha256: str
    """Of the file's bytes."""
    backend: Tokenizer = field(repr=False, compare=False)
    """The Hugging Face tokenizer; it treats special tokens in text as text."""

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without end-of-text.

        Raises:
            UserError: a character tokenizer does not know a character.
        """
        if unknown := self.unknown(text):
            raise UserError(unknown_characters(unknown))
        return self.backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; end-of-text is `<|endoftext|>`, a cut UTF-8 sequence U+FFFD."""
        return self.backend.decode(list(ids), skip_special_tokens=False)

    def unknown(self, text: str) -> str:
        """The distinct characters of `text`, sorted, that have no token; for BPE always empty."""
        if self.type == "bpe":
            return ""
        return "".join(sorted(char for char in set(text) if self.backend.token_to_id(char) is None))


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


def read_tokenizer(file: Path) -> TextTokenizer:
    """Read tokenizer.json. Where a stage recorded its hash beside it, the file must have that hash.

    Raises:
        UserError: the file is missing, damaged, of another kind or not the recorded one, or has no
            `<|endoftext|>`.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{file} is missing; `dvc repro tokenizer` makes it.") from None
    tokenizer = parse_tokenizer(content, file)
    record = file.with_name(RECORD)
    way_out = "make both again with `dvc repro -f tokenizer`"
    if record.exists() and read_record(record, dict[str, Sha256], way_out=way_out) != {
        "sha256": tokenizer.sha256
    }:
        raise UserError(
            f"{file} is not the one that {RECORD} beside it records (SHA-256); {way_out}."
        )
    return tokenizer


def parse_tokenizer(
    content: bytes, file: Path, way_out: str = "delete it and run `dvc repro tokenizer`"
) -> TextTokenizer:
    """The tokenizer that `content`, read from `file`, describes; `way_out` is what to do about
    another one.

    Raises:
        UserError: it is damaged, of another kind, or has no `<|endoftext|>`.
    """
    try:
        backend = Tokenizer.from_buffer(content)
        layout = json.loads(content)
    except Exception as error:  # `tokenizers` raises bare Exception
        raise UserError(f"{file} is not a tokenizer ({first_line(error)}); {way_out}.") from None
    vocabulary = backend.get_vocab(with_added_tokens=True)
    eot_id = vocabulary.get(END_OF_TEXT)
    if eot_id is None or eot_id not in backend.get_added_tokens_decoder():
        raise UserError(f"{file} has no special token {END_OF_TEXT}; {way_out}.")
    if set(vocabulary.values()) != set(range(len(vocabulary))):
        raise UserError(f"{file} has gaps in its ids; {way_out}.")
    kind = _tokenizer_type(layout)
    if kind is None:
        raise UserError(
            f"{file} is neither byte-level BPE nor a character tokenizer of this project; "
            f"{way_out}."
        )
    backend.encode_special_tokens = True
    return TextTokenizer(
        type=kind,
        vocab_size=len(vocabulary),
        eot_id=eot_id,
        sha256=hashlib.sha256(content).hexdigest(),
        backend=backend,
    )


def _tokenizer_type(layout: dict[str, Any]) -> TokenizerType | None:
    """Recognise the type by the parts of the file that decide how text is cut; None for any
    other."""
    model = layout["model"]
    before = layout["pre_tokenizer"]
    plain = model["type"] == "BPE" and not any(
        layout[part] for part in ("normalizer", "truncation", "padding")
    )
    if (
        plain
        and before
        and before["type"] == "ByteLevel"
        and before["use_regex"]
        and not before["add_prefix_space"]
    ):
        return "bpe"
    if plain and not before and not model["merges"]:
        return "char"
    return None


def token_bytes(tokenizer: TextTokenizer) -> list[bytes]:
    """The UTF-8 bytes of every token, in the order of the ids; end-of-text has none."""
    found = [b""] * tokenizer.vocab_size
    for token, token_id in tokenizer.backend.get_vocab(with_added_tokens=False).items():
        if token_id != tokenizer.eot_id:
            is_bpe = tokenizer.type == "bpe"
            found[token_id] = bytes(BYTE_OF[char] for char in token) if is_bpe else token.encode()
    return found


def render_chat(messages: Iterable[tuple[str, str]]) -> str:
    r"""A conversation of (role, content) as text; empty if there is no turn or an assistant's turn
    is empty.

    Example:
        >>> render_chat([("human", "Hi!"), ("gpt", "Hello.")])
        'User: Hi!\nAssistant: Hello.'
    """
    turns = []
    for role, content in messages:
        name = ROLE_NAMES.get(role.lower(), role.capitalize())
        stripped = content.strip()
        if stripped:
            turns.append(f"{name}: {stripped}")
        elif name == "Assistant":
            return ""
    return "\n".join(turns)


def chat_prompt(user: str) -> str:
    r"""The text that a model continues with its answer to `user`.

    Example:
        >>> chat_prompt("What is the capital of France?")
        'User: What is the capital of France?\nAssistant:'
    """
    return f"User: {user}\nAssistant:"


def answer_spans(text: str) -> list[tuple[int, int]]:
    r"""The parts of a conversation that the assistant writes: behind `Assistant:` to the end of the
    next `User:`.

    What begins the next turn belongs to the answer, because a model must write it to end the
    answer. A line of a turn that begins like a turn counts as one: whoever reads the text cannot
    tell them apart.

    Example:
        >>> text = "User: Hi!\nAssistant: Hello.\nUser: Bye.\nAssistant: Bye!"
        >>> [text[start:end] for start, end in answer_spans(text)]
        [' Hello.\nUser:', ' Bye!']
    """
    turns = list(TURN.finditer(text))
    ends = [turn.end() for turn in turns[1:]] + [len(text)]
    return [
        (turn.end(), end) for turn, end in zip(turns, ends, strict=False) if turn[1] == "Assistant"
    ]
