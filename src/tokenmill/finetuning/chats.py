"""Chats as training sequences: several whole chats in each, with targets on the answers only.

Axes: N sequences, L = 3 layers (inputs, targets, starts), T positions.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from tokenmill.core.errors import UserError
from tokenmill.formats import shards
from tokenmill.formats.chat import START, TURN_END, Document
from tokenmill.formats.chat_columns import encode_documents
from tokenmill.formats.measured import evenly_spread
from tokenmill.formats.records import rounded
from tokenmill.formats.tokenizer import TextTokenizer, token_lengths
from tokenmill.model.ops import IGNORED

BATCH = 4096
"""The number of chats that are encoded at a time."""

EXAMPLES = 5
"""The most held-out chats whose questions the report shows."""


@dataclass(frozen=True)
class EncodedChat:
    """The tokens of a chat, and which of them the assistant writes: the answers and the ends of
    their turns."""

    ids: np.ndarray
    answers: np.ndarray
    """Whether the assistant writes each token; (tokens,) bool."""

    def cut(self, tokens: int) -> "EncodedChat":
        """The chat's first `tokens` tokens."""
        return EncodedChat(self.ids[:tokens], self.answers[:tokens])


@dataclass(frozen=True)
class ChatSplit:
    """The chats to train on, or the chats to validate with."""

    layers: np.ndarray
    """The sequences for `PackedTexts`, (N, L, T) int32."""
    chats: int
    cut: int
    """The number of chats longer than the context; what exceeds it is left out."""
    left_out: int
    """The number of texts without an answer within the context; none of them is among `chats`."""
    answer_tokens: int
    answer_bytes: int
    """UTF-8 bytes of the answers, without the ends of turns, by which bits per byte are
    computed."""
    bytes_per_token: float
    """UTF-8 bytes of the answers for each token of their text."""
    examples: list[Document]
    """At most EXAMPLES of the chats, evenly spread, up to where they are cut."""

    def counts(self) -> dict[str, int | float]:
        """The numbers that metrics show."""
        return {
            "chats": self.chats,
            "cut": self.cut,
            "left_out": self.left_out,
            "answer_tokens": self.answer_tokens,
            "answer_bytes_per_token": rounded(self.bytes_per_token),
        }


def read_chats(
    clean: Path, tokenizer: TextTokenizer, *, context_length: int, held_out: float
) -> dict[str, ChatSplit]:
    """Read the chats in a folder that `clean` wrote, and divide them into `train` and `val` by the
    hash of a chat's text.

    A text without an answer within the context is left out, and counted.

    Raises:
        UserError: there is no chat for one of the two, or the tokenizer does not know a character.
    """
    chats: dict[str, list[EncodedChat]] = {"train": [], "val": []}
    left_out = dict.fromkeys(chats, 0)
    for batch in shards.batches(clean, ("text", "id")):
        for part in batch.iter_slices(BATCH):
            is_val = part["id"].to_numpy() < int(held_out * 2**64)
            for encoded, val in zip(encode(part["text"], tokenizer), is_val, strict=True):
                name = "val" if val else "train"
                if encoded.answers[1 : context_length + 1].any():
                    chats[name].append(encoded)
                else:
                    left_out[name] += 1
    for name, found in chats.items():
        if not found:
            raise UserError(
                "finetune.data has no chat with an answer within model.context_length "
                f"({context_length}) for {name}; give more or shorter chats, in one of the shapes "
                f"that README names, or another finetune.val_fraction ({held_out})."
            )
    return {
        name: _split(found, left_out[name], tokenizer, context_length)
        for name, found in chats.items()
    }


def _split(
    chats: list[EncodedChat], left_out: int, tokenizer: TextTokenizer, context_length: int
) -> ChatSplit:
    whole = [each.cut(context_length + 1) for each in chats]
    answers = np.concatenate([each.ids[each.answers] for each in whole])
    text_tokens = int((answers != tokenizer.turn_ids[TURN_END]).sum())
    answer_bytes = int(token_lengths(tokenizer)[answers].sum())
    return ChatSplit(
        layers=pack_chats(whole, context_length),
        chats=len(whole),
        cut=sum(len(each.ids) > context_length + 1 for each in chats),
        left_out=left_out,
        answer_tokens=len(answers),
        answer_bytes=answer_bytes,
        bytes_per_token=answer_bytes / max(1, text_tokens),
        examples=[
            tokenizer.decode_document(whole[number].ids.tolist())
            for number in evenly_spread(len(whole), EXAMPLES)
        ],
    )


def encode(texts: pl.Series, tokenizer: TextTokenizer) -> list[EncodedChat]:
    """Encode each chat up to the end of its last answer: no token of a text without an answer.

    The assistant writes what follows `<|assistant_start|>`, up to and with `<|turn_end|>`.
    """
    ids, offsets = encode_documents(texts, tokenizer.encode_batch, tokenizer.turn_ids)
    return [
        _up_to_last_answer(chat, tokenizer) for chat in np.split(ids, offsets[1:-1])[: len(texts)]
    ]


def _up_to_last_answer(ids: np.ndarray, tokenizer: TextTokenizer) -> EncodedChat:
    """A chat up to the end of its last answer. The boundary before a token tells who writes it."""
    boundaries = np.flatnonzero(np.isin(ids, list(tokenizer.turn_ids.values())))
    last = np.searchsorted(boundaries, np.arange(len(ids)))  # boundaries before each token
    behind = np.concatenate([[-1], ids[boundaries]])[last]
    answers = behind == tokenizer.turn_ids[START["assistant"]]
    written = np.flatnonzero(answers)
    end = int(written[-1]) + 1 if len(written) else 0
    return EncodedChat(ids, answers).cut(end)


def pack_chats(chats: Sequence[EncodedChat], context_length: int) -> np.ndarray:
    """Pack whole chats into sequences (N, L, T) int32: the longest first, each where the least room
    remains after it.

    This is best-fit decreasing (Ding et al. 2024, "Fewer Truncations Improve Language Modeling"). A
    chat has at most `context_length` + 1 tokens, because the last token of a text is only a target.
    Empty positions have no target.
    """
    order = sorted(range(len(chats)), key=lambda chat: -len(chats[chat].ids))
    places = [(0, 0)] * len(chats)
    rooms = list[tuple[int, int]]()
    rows = 0
    for number in order:
        need = len(chats[number].ids) - 1
        at = bisect.bisect_left(rooms, (need, -1))
        room, row = rooms.pop(at) if at < len(rooms) else (context_length, rows)
        rows += row == rows
        places[number] = row, context_length - room
        if room > need:
            bisect.insort(rooms, (room - need, row))
    layers = np.zeros((rows, 3, context_length), np.int32)
    layers[:, 1] = IGNORED
    for room, row in rooms:
        layers[row, 2, context_length - room :] = context_length - room
    for each, (row, start) in zip(chats, places, strict=True):
        here = layers[row, :, start : start + len(each.ids) - 1]
        here[0] = each.ids[:-1]
        here[1] = np.where(each.answers[1:], each.ids[1:], IGNORED)
        here[2] = start
    return layers
