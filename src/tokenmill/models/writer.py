"""Text as it comes: whole characters only, up to the words that stop it, without the white space around it.

A loaded checkpoint that writes: text continued, questions answered, conversations carried on.
"""

import codecs
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tokenmill.core.chat import render
from tokenmill.core.errors import UserError
from tokenmill.core.tokenizer import TextTokenizer, read_tokenizer, token_bytes
from tokenmill.model.device import choose_device
from tokenmill.model.generate import generate, generate_batch, transpose_in_memory
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import MANIFEST, read_manifest
from tokenmill.model.sampler import Sampling
from tokenmill.models.revision import Checkpoint


def decoded(parts: Iterable[bytes]) -> Iterator[str]:
    """UTF-8 as text, a piece as soon as its characters are whole; what never becomes one is U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for part in parts:
        if piece := decoder.decode(part):
            yield piece
    if piece := decoder.decode(b"", final=True):
        yield piece


def until(pieces: Iterable[str], stop: str) -> Iterator[str]:
    """The pieces up to the first `stop`; what may be its beginning is held back."""
    held = ""
    for piece in pieces:
        held += piece
        if stop in held:
            held = held[: held.index(stop)]
            break
        kept = next((n for n in range(min(len(stop) - 1, len(held)), 0, -1) if stop.startswith(held[-n:])), 0)
        whole, held = held[: len(held) - kept], held[len(held) - kept :]
        if whole:
            yield whole
    if held:
        yield held


def stripped(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces without the white space at the beginning and the end of all."""
    held, begun = "", False
    for piece in pieces:
        held += piece
        whole = held.rstrip() if begun else held.strip()
        if whole:
            held = held[len(held.rstrip()) :]
            begun = True
            yield whole


NEXT_TURN = "\nUser:"
"""Where an answer ends that goes on to the next question by itself."""


@dataclass
class Stream:
    """A text while it is written: iterate to get its pieces."""

    pieces: Iterator[str] = field(repr=False)
    notes: list[str]
    """Sentences about what was left out of the prompt."""
    tokens: int = 0
    """Written so far."""
    seconds: float = 0.0
    """From the first look to the last token."""

    def __iter__(self) -> Iterator[str]:
        """The pieces."""
        return self.pieces

    @property
    def tokens_per_second(self) -> float:
        """So far; 0 before the first token."""
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Writer:
    """A model with its tokenizer. Nothing in it changes while it writes: threads may share it."""

    model: GPT = field(repr=False)
    tokenizer: TextTokenizer
    table: Sequence[bytes] = field(repr=False)
    """What each id writes."""

    @classmethod
    def load(cls, checkpoint: Checkpoint, device: Literal["auto", "cpu", "cuda", "mps"] = "auto") -> "Writer":
        """Read a checkpoint.

        Raises:
            UserError: a file is missing or damaged, or the tokenizer is not that of the model.
        """
        tokenizer = read_tokenizer(checkpoint.tokenizer)
        model = load_model(checkpoint.folder, str(choose_device(device)))
        _refuse_mismatch(checkpoint, model, tokenizer)
        transpose_in_memory(model)
        return cls(model, tokenizer, token_bytes(tokenizer))

    def stream(self, prompt: str, sampling: Sampling, *, chat: bool) -> Stream:
        """Answer the question `prompt`, or continue it as it stands."""
        if chat:
            return self.reply([{"role": "user", "content": prompt}], sampling)
        ids, notes = self._encode(prompt)
        return self._stream(ids, notes, sampling)

    def reply(self, messages: Iterable[Mapping[str, str]], sampling: Sampling) -> Stream:
        """The next turn of a conversation of `role` and `content`, the oldest turns left out where they do not fit."""
        ids, notes = self._conversation(messages)
        stream = self._stream(ids, notes, sampling)
        stream.pieces = stripped(until(stream.pieces, NEXT_TURN))
        return stream

    def several(self, prompt: str, sampling: Sampling, count: int, *, chat: bool) -> list[Stream]:
        """`count` answers or continuations, written side by side; whole when they are given back."""
        ids, notes = self._conversation([{"role": "user", "content": prompt}]) if chat else self._encode(prompt)
        began = time.perf_counter()
        texts = generate_batch(self.model, [ids] * count, end=self.tokenizer.eot_id, sampling=sampling)
        seconds = time.perf_counter() - began
        streams = []
        for text in texts:
            pieces = decoded(map(self.table.__getitem__, text))
            pieces = stripped(until(pieces, NEXT_TURN)) if chat else pieces
            streams.append(Stream(pieces, notes, len(text), seconds))
        return streams

    def _stream(self, ids: list[int], notes: list[str], sampling: Sampling) -> Stream:
        stream = Stream(iter(()), notes)

        def counted() -> Iterator[bytes]:
            began = time.perf_counter()
            for token in generate(self.model, ids, end=self.tokenizer.eot_id, sampling=sampling):
                stream.tokens += 1
                stream.seconds = time.perf_counter() - began
                yield self.table[token]

        stream.pieces = decoded(counted())
        return stream

    def _conversation(self, messages: Iterable[Mapping[str, str]]) -> tuple[list[int], list[str]]:
        """The ids of a conversation that waits for its answer; half the context is left for it, if turns can go."""
        turns = [(message["role"], message["content"]) for message in messages if message["content"].strip()]
        room, dropped = self.model.config.context_length // 2, 0
        while True:
            ids, notes = self._encode(f"{render(turns[dropped:])}\nAssistant:" if turns else "")
            if len(ids) <= room or dropped >= len(turns) - 1:
                break
            dropped += 1
        if dropped:
            notes.append(
                f"The {dropped} oldest of {len(turns)} turns were left out: the model sees {room} tokens of them."
            )
        return ids, notes

    def _encode(self, text: str) -> tuple[list[int], list[str]]:
        """The ids of a prompt, and sentences about what is missing; end-of-text where there is none."""
        text, notes = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), []
        if unknown := self.tokenizer.unknown(text):
            text = "".join(char for char in text if char not in unknown)
            notes.append(f"The tokenizer does not know {unknown!r}; left out.")
        ids, context = self.tokenizer.encode(text), self.model.config.context_length
        if len(ids) > context:
            notes.append(f"The prompt has {len(ids):,} tokens; the model sees the last {context:,}.")
        return ids[-context:] or [self.tokenizer.eot_id], notes


def _refuse_mismatch(checkpoint: Checkpoint, model: GPT, tokenizer: TextTokenizer) -> None:
    """The tokenizer must be the one that the model was trained with."""
    way = "give the one that it was trained with, or run `dvc repro`."
    if (checkpoint.folder.parent / MANIFEST).exists():
        trained_with = read_manifest(checkpoint.folder.parent).tokenizer_sha256
        if trained_with != tokenizer.sha256:
            raise UserError(
                f"{checkpoint.folder} was trained with another tokenizer (sha256 {trained_with[:12]}) than "
                f"{checkpoint.tokenizer} ({tokenizer.sha256[:12]}); {way}"
            )
    if model.config.vocab_size != tokenizer.vocab_size:
        raise UserError(
            f"{checkpoint.folder} knows {model.config.vocab_size:,} tokens, {checkpoint.tokenizer} has "
            f"{tokenizer.vocab_size:,}; {way}"
        )
