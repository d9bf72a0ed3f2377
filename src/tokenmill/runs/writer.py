"""A loaded model that continues a text, answers a question, or carries on a conversation.

Text is streamed as it is generated, whole characters only. An answer ends with its turn, and has no
white space around it.
"""

import codecs
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tokenmill.core.errors import UserError
from tokenmill.core.params import DeviceName
from tokenmill.evaluation.generate import generate, generate_batch, transpose_in_memory
from tokenmill.evaluation.sampling import Sampling
from tokenmill.formats.chat import SHOWN, Document, chat_prompt, plain, render_chat
from tokenmill.formats.tokenizer import TextTokenizer, read_tokenizer, token_bytes
from tokenmill.model.device import choose_device
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import MANIFEST, read_manifest
from tokenmill.runs.find import FoundModel


@dataclass
class Stream:
    """A text that is being generated. Iteration yields its chunks."""

    chunks: Iterator[str] = field(repr=False)
    notes: list[str]
    """Sentences about what was left out of the prompt."""
    text: str = ""
    """The text of all chunks so far."""
    tokens: int = 0
    """The number of tokens generated so far."""
    seconds: float = 0.0
    """Seconds from the first iteration to the last token."""

    def __iter__(self) -> Iterator[str]:
        for chunk in self.chunks:
            self.text += chunk
            yield chunk


@dataclass(frozen=True)
class Writer:
    """A model with its tokenizer. Writing does not change it, so threads may share it."""

    model: GPT = field(repr=False)
    tokenizer: TextTokenizer
    spellings: Sequence[bytes] = field(repr=False)
    """The UTF-8 bytes of each id, as people see them."""

    @classmethod
    def load(cls, checkpoint: FoundModel, device: DeviceName = "auto") -> "Writer":
        """Load a model and its tokenizer."""
        model, tokenizer = load_pair(checkpoint, str(choose_device(device)))
        transpose_in_memory(model)
        return cls(model, tokenizer, _spellings(tokenizer))

    def stream(self, prompt: str, sampling: Sampling, *, chat: bool) -> Stream:
        """Answer the question `prompt`, or continue it as it stands."""
        return self._stream(*self._asked(prompt, chat=chat), sampling, chat=chat)

    def reply(self, messages: Iterable[Mapping[str, str]], sampling: Sampling) -> Stream:
        """Write the next turn of a conversation, whose messages have a `role` and a `content`.

        If the conversation does not fit into half of the context, its oldest turns are left out.
        """
        return self._stream(*self._conversation(messages), sampling, chat=True)

    def several(self, prompt: str, sampling: Sampling, count: int, *, chat: bool) -> list[Stream]:
        """Write `count` answers or continuations at the same time, and return them when all are
        complete."""
        ids, notes = self._asked(prompt, chat=chat)
        began = time.perf_counter()
        ends = self._ends(chat=chat)
        texts = generate_batch(self.model, [ids] * count, ends=ends, sampling=sampling)
        seconds = time.perf_counter() - began
        streams = []
        for text in texts:
            chunks = decode_utf8(map(self.spellings.__getitem__, text))
            chunks = strip(chunks) if chat else chunks
            streams.append(Stream(chunks, notes, tokens=len(text), seconds=seconds))
        return streams

    def _asked(self, prompt: str, *, chat: bool) -> tuple[list[int], list[str]]:
        """The ids of a question up to its answer, or of a text to continue, and notes."""
        if chat:
            return self._conversation([{"role": "user", "content": prompt}])
        return self._encode(Document(plain(prompt)))

    def _ends(self, *, chat: bool) -> Collection[int]:
        """The ids that end an answer, or the continuation of a text."""
        return self.tokenizer.special_ids if chat else {self.tokenizer.eot_id}

    def _stream(
        self, ids: list[int], notes: list[str], sampling: Sampling, *, chat: bool
    ) -> Stream:
        stream = Stream(iter(()), notes)
        ends = self._ends(chat=chat)

        def spell() -> Iterator[bytes]:
            began = time.perf_counter()
            for token in generate(self.model, ids, ends=ends, sampling=sampling):
                stream.tokens += 1
                stream.seconds = time.perf_counter() - began
                yield self.spellings[token]

        chunks = decode_utf8(spell())
        stream.chunks = strip(chunks) if chat else chunks
        return stream

    def _conversation(self, messages: Iterable[Mapping[str, str]]) -> tuple[list[int], list[str]]:
        """The ids of a conversation up to its answer, and notes. They take at most half of the
        context, unless one turn is longer."""
        said = ((message["role"], message["content"]) for message in messages)
        turns = [(role, text) for role, text in said if text.strip()]
        limit = self.model.config.context_length // 2
        dropped = len(turns) - self._newest(turns, limit - 1)  # the mark of the answer takes one
        ids, notes = self._encode(chat_prompt(turns[dropped:]) if turns else Document(""))
        if dropped:
            notes.append(
                f"Left out: the oldest {dropped} of {len(turns)} turns; the model sees {limit} "
                "tokens of them."
            )
        return ids, notes

    def _newest(self, turns: Sequence[tuple[str, str]], room: int) -> int:
        """How many of the newest turns have at most `room` tokens together; at least one, if there
        is one. Marks divide a text for the tokenizer, so each turn is counted by itself."""
        for count, turn in enumerate(reversed(turns)):
            room -= len(self._encode(render_chat([turn]))[0])
            if room < 0:
                return max(count, 1)
        return len(turns)

    def _encode(self, prompt: Document) -> tuple[list[int], list[str]]:
        """The ids of a prompt, and notes about what was left out. An empty prompt becomes
        end-of-text."""
        text = prompt.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        notes = []
        if unknown := self.tokenizer.unknown(plain(text)):
            text = "".join(char for char in text if char not in unknown)
            notes.append(f"The tokenizer does not know {unknown!r}; left out.")
        ids = self.tokenizer.encode_document(Document(text))
        context = self.model.config.context_length
        if len(ids) > context:
            notes.append(
                f"The prompt has {len(ids):,} tokens; the model sees the last {context:,}."
            )
        return ids[-context:] or [self.tokenizer.eot_id], notes


def load_pair(checkpoint: FoundModel, device: str = "cpu") -> tuple[GPT, TextTokenizer]:
    """A model and the tokenizer that it was trained with.

    A folder outside a run has no manifest. There only the size of the vocabulary can be compared.

    Raises:
        UserError: one of them is missing or damaged, or the tokenizer is another one.
    """
    tokenizer = read_tokenizer(checkpoint.tokenizer)
    model = load_model(checkpoint.folder, device)
    run = checkpoint.folder.parent
    if (run / MANIFEST).exists():
        read_manifest(run).check_tokenizer(tokenizer.sha256, str(checkpoint.tokenizer))
    if model.config.vocab_size != tokenizer.vocab_size:
        raise UserError(
            f"{checkpoint.folder} knows {model.config.vocab_size:,} tokens, "
            f"{checkpoint.tokenizer} has {tokenizer.vocab_size:,}; use the tokenizer that it was "
            "trained with, or run `dvc repro`."
        )
    return model, tokenizer


def _spellings(tokenizer: TextTokenizer) -> list[bytes]:
    """The UTF-8 bytes of each id. A boundary of turns is spelled as `readable` spells it."""
    found = token_bytes(tokenizer)
    for mark, shown in SHOWN.items():
        found[tokenizer.turn_ids[mark]] = shown.encode()
    return found


def decode_utf8(parts: Iterable[bytes]) -> Iterator[str]:
    """Decode UTF-8 as it arrives, by whole characters. Invalid bytes become U+FFFD."""
    return codecs.iterdecode(parts, "utf-8", "replace")


def strip(chunks: Iterable[str]) -> Iterator[str]:
    """Yield the text without the white space at its beginning and its end."""
    held = ""
    begun = False
    for chunk in chunks:
        held += chunk
        ready = held.rstrip() if begun else held.strip()
        if ready:
            held = held[len(held.rstrip()) :]
            begun = True
            yield ready
