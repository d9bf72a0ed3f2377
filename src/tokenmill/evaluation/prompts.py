"""The section `evaluate` of params.yaml, and the prompts that it chooses for every epoch.

Prompts come from params.yaml, from a file beside the raw text, or from held-out documents: their
beginnings, with the text that really follows. The model continues the text or, if the document is a
conversation, answers its first question.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from tokenmill.core.errors import UserError
from tokenmill.core.files import refuse_special
from tokenmill.core.params import Section, load
from tokenmill.core.paths import PROMPTS_FILE
from tokenmill.evaluation.results import Mark, Question
from tokenmill.formats.chat import (
    START,
    TURN_END,
    Document,
    chat_prompt,
    plain,
    readable,
)
from tokenmill.formats.token_file import open_tokens
from tokenmill.formats.tokenizer import TextTokenizer

MOST_BYTES = 1 << 16
"""The most bytes of a file of prompts; a larger one is refused."""

MOST_PROMPTS = 100
"""The most prompts of a file; a file with more is refused."""

MOST_OPENINGS = 10
"""The most prompts that are taken from held-out text."""

OPENING_TOKENS = 32
"""The most tokens of a beginning. It is also at most half of the context, and half of the
document."""

SHORTEST = 4
"""The fewest tokens of a document from which a prompt is taken. A shorter one cannot be divided
into a beginning and its continuation."""

WINDOW = 1 << 20
"""The number of tokens in which the beginning of a document is searched. A prompt from a longer
document begins in its middle."""

EXCHANGE = re.compile(
    "(?P<before>(?:{system}|{assistant})[^{end}]+{end})?"
    "{user}(?P<question>[^{end}]+){end}{assistant}(?P<answer>[^{end}]+)".format(
        end=TURN_END, **START
    )
)
"""Matches the first turns of a conversation, as `render_chat` writes them."""


class PromptParams(Section):
    """One prompt: `user` (a question, put into the conversation template) or `text` (continued as
    it stands)."""

    user: str | None = Field(default=None, min_length=1)
    """A user's message; the model writes the assistant's answer."""

    text: str | None = Field(default=None, min_length=1)
    """A beginning that the model continues as it stands."""

    expect: str | None = Field(default=None, min_length=1)
    """What a right answer contains; the report says whether it does."""

    mark: Mark | None = None
    """`seen`: the training text has the question and its answer. `held_out`: it has neither the
    question nor one that differs only in its marks or capitals. Right answers are counted apart, as
    recall and as generalisation."""

    @model_validator(mode="after")
    def _one_of_two(self) -> "PromptParams":
        if (self.user is None) == (self.text is None):
            raise ValueError(
                "each entry of evaluate.prompts needs either `user` or `text`, and not both."
            )
        return self


_PROMPTS = TypeAdapter(list[PromptParams])


def _auto_or_prompts(value: Any) -> Any:
    if value == "auto" or isinstance(value, list):
        return value if value == "auto" else _PROMPTS.validate_python(value)
    raise ValueError(f"evaluate.prompts ({value!r}) must be 'auto' or a list of prompts.")


class EvaluateParams(Section):
    """What the stage `evaluate` asks the model of each epoch, and how the model answers."""

    prompts: Annotated[Literal["auto"] | list[PromptParams], BeforeValidator(_auto_or_prompts)]
    """The prompts, the same at every epoch. A list holds your own ones; see `user`, `text`,
    `expect` and `mark`. `auto`: the list in `prompts.yaml` in the folder `data.raw`, as the
    built-in corpus has one; where there is none, the beginnings of held-out documents, or the
    questions of held-out conversations. The report then shows beside each answer what really
    follows, and nothing is right or wrong."""

    max_new_tokens: int = Field(ge=1, le=100_000)
    """Maximum length of an answer, which ends earlier with its turn, or at end-of-text."""

    temperature: float = Field(gt=0.0)
    """Temperature of the sampled answer: below 1 more cautious, above 1 more daring. The greedy
    answer has none."""

    top_k: int = Field(ge=1)
    """The sampled answer draws each token from the `top_k` likeliest ones."""

    seed: int = Field(ge=0, le=2**32 - 1)
    """Seed of the sampled answer, the same at every epoch."""


class RawText(Section, extra="ignore"):
    """The part of the section `data` that evaluation reads."""

    raw: str
    """The file or folder of raw text. A folder may hold prompts."""


class EvaluateRuntime(Section, extra="ignore"):
    """The part of the section `runtime` that evaluation reads."""

    device: Literal["auto", "cpu", "cuda", "mps"]
    """The device on which the models run."""


class EvaluateSections(Section):
    """The sections of params.yaml that the stages `evaluate` and `evaluate_finetuned` read."""

    data: RawText
    evaluate: EvaluateParams
    runtime: EvaluateRuntime


class PromptsFile(Section):
    """The contents of `prompts.yaml`."""

    prompts: list[PromptParams]


class Opening(PromptParams):
    """A prompt from held-out text."""

    truth: str
    """The text that follows in the document, as far as the model may write."""

    document: Document | None = None
    """A conversation up to the point where the model writes. `text` has it in a form for people."""


@dataclass(frozen=True)
class Prompt:
    """A prompt in the form that the model reads."""

    question: Question
    ids: list[int]
    ends_with_turn: bool
    """Whether the model writes a turn of a conversation."""


def chosen_prompts(
    params: EvaluateParams,
    raw: Path,
    tokens: Path,
    tokenizer: TextTokenizer,
    *,
    context_length: int,
) -> Sequence[PromptParams]:
    """The prompts that `evaluate.prompts` chooses; `tokens` is the folder data/tokens."""
    if params.prompts != "auto":
        return params.prompts
    path = raw / PROMPTS_FILE
    if os.path.lexists(path):
        refuse_special(path, raw)
        return read_prompts(path)
    return openings(
        tokens, tokenizer, context_length=context_length, max_new_tokens=params.max_new_tokens
    )


def read_prompts(path: Path) -> list[PromptParams]:
    """The prompts in a file."""
    if path.stat().st_size > MOST_BYTES:
        raise UserError(
            f"{path} has {path.stat().st_size:,} bytes; prompts may have {MOST_BYTES:,}."
        )
    prompts = load(PromptsFile, path).prompts
    if len(prompts) > MOST_PROMPTS:
        raise UserError(f"{path} has {len(prompts):,} prompts; at most {MOST_PROMPTS:,} are asked.")
    return prompts


def encode_prompts(
    prompts: Sequence[PromptParams], tokenizer: TextTokenizer, *, context_length: int
) -> list[Prompt]:
    """Render and encode the prompts. Characters that the tokenizer does not know are left out.

    Raises:
        UserError: a prompt is empty or does not fit the model's context.
    """
    prepared = []
    for number, entry in enumerate(prompts):
        document = _conversation(entry)
        text = plain(document or entry.text or "")
        unknown = tokenizer.unknown(text)
        left_out = str.maketrans("", "", unknown)
        ids = (
            tokenizer.encode(text.translate(left_out))
            if document is None
            else tokenizer.encode_document(Document(document.translate(left_out)))
        )
        if not 0 < len(ids) <= context_length:
            raise UserError(
                f"evaluate.prompts[{number}] has {len(ids)} tokens that this tokenizer knows; "
                f"between 1 and model.context_length ({context_length}) fit."
            )
        question = Question(
            prompt=plain(entry.user or entry.text or ""),
            expect=entry.expect,
            left_out=unknown,
            kind="text" if entry.user is None else "user",
            mark=entry.mark,
            truth=entry.truth if isinstance(entry, Opening) else None,
        )
        prepared.append(Prompt(question, ids, ends_with_turn=document is not None))
    return prepared


def _conversation(entry: PromptParams) -> Document | None:
    """The conversation that the model continues; None if the prompt is a text."""
    if entry.user is not None:
        return chat_prompt([("user", entry.user)])
    return entry.document if isinstance(entry, Opening) else None


def openings(
    tokens: Path, tokenizer: TextTokenizer, *, context_length: int, max_new_tokens: int
) -> list[Opening]:
    """At most MOST_OPENINGS prompts, evenly spread over the validation text in `tokens` and always
    the same."""
    found = []
    ids = open_tokens(tokens, "val")
    for place, is_middle in places(ids, tokenizer.eot_id, length=context_length + max_new_tokens):
        text = tokenizer.decode_document(
            _document(ids[place : place + context_length + max_new_tokens], tokenizer.eot_id)
        )
        text = Document(_from_line(text.strip("\ufffd")) if is_middle else text.rstrip("\ufffd"))
        found.append(
            _first_question(text, tokenizer, context_length, max_new_tokens)
            or _beginning(text, tokenizer, min(OPENING_TOKENS, context_length // 2), max_new_tokens)
        )
    return [opening for opening in found if opening]


def first_questions(
    chats: Sequence[Document], tokenizer: TextTokenizer, *, context_length: int, max_new_tokens: int
) -> list[Opening]:
    """The first question of each conversation with its answer. Texts that are no conversation are
    left out."""
    found = (_first_question(text, tokenizer, context_length, max_new_tokens) for text in chats)
    return [opening for opening in found if opening]


def places(ids: np.ndarray, end: int, *, length: int) -> Iterator[tuple[int, bool]]:
    """Yield the places at which documents begin, at even distances. The second value says that a
    place is in the middle of a long document instead.

    Args:
        ids: documents, each followed by the token `end`.
        end: end-of-text.
        length: tokens to read from a place in the middle; where documents are that short, only
            their beginnings come.

    Example:
        >>> list(places(np.array([1, 2, 3, 4, 0, 5, 6, 7, 8, 0]), 0, length=3))
        [(0, False), (5, False)]
    """
    for start, stop in pairwise(
        sorted({len(ids) * part // MOST_OPENINGS for part in range(MOST_OPENINGS + 1)})
    ):
        before = max(0, start - 1)
        ends = np.flatnonzero(np.asarray(ids[before : min(stop - 1, start + WINDOW)]) == end)
        begins = [0] * (start == 0) + (before + 1 + ends).tolist()
        long_enough = (
            begin
            for begin in begins
            if len(_document(ids[begin : begin + SHORTEST], end)) == SHORTEST
        )
        if (begin := next(long_enough, None)) is not None:
            yield begin, False
        elif not begins and stop - start > length:
            yield start, True


def _document(ids: np.ndarray, end: int) -> list[int]:
    ends = np.flatnonzero(ids == end)
    return ids[: ends[0] if len(ends) else None].tolist()


def _from_line(text: str) -> str:
    """The text from its next line on, or from its next word if its lines are long."""
    gap = re.search(r"\n\s*", text[: len(text) // 2]) or re.search(r"\s+", text)
    return text[gap.end() :] if gap else text


def _first_question(
    text: Document, tokenizer: TextTokenizer, context_length: int, most: int
) -> Opening | None:
    """The first question of a conversation with its answer; None if the text is no conversation, or
    the question is too long."""
    turns = EXCHANGE.match(text)
    if not turns:
        return None
    before = Document(text[: turns.start("answer")])
    if len(tokenizer.encode_document(before)) > context_length:
        return None
    truth = _first_tokens(Document(turns["answer"]), tokenizer, most).strip()
    return (
        Opening(text=readable(before), truth=truth, document=before)
        if turns["before"]
        else Opening(user=turns["question"], truth=truth)
    )


def _beginning(text: Document, tokenizer: TextTokenizer, length: int, most: int) -> Opening | None:
    """The beginning of a text, cut after a word; None if nothing is left to follow."""
    half = len(tokenizer.encode_document(text)) // 2
    head = _first_tokens(text, tokenizer, min(length, half))
    words = list(re.finditer(r"\s+", head))
    opening = Document(head[: words[-1].start()] if words and words[-1].start() else head)
    rest = Document(text[len(opening) :])
    shown, is_chat = readable(opening), plain(opening) != opening
    if is_chat:
        rest = Document(rest.partition(TURN_END)[0])
    follows = readable(_first_tokens(rest, tokenizer, most)).strip()
    if not (shown.strip() and follows):
        return None
    return Opening(text=shown, truth=follows, document=opening if is_chat else None)


def _first_tokens(text: Document, tokenizer: TextTokenizer, count: int) -> Document:
    first = tokenizer.decode_document(tokenizer.encode_document(text)[:count])
    return Document(first.rstrip("\ufffd"))
