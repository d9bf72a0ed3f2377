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
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from tokenmill.core.errors import UserError
from tokenmill.core.files import refuse_special
from tokenmill.core.params import DeviceParams, Mode, ModeParams, RawPlace, Section, parse
from tokenmill.core.paths import PROMPTS_FILE
from tokenmill.display import shortened
from tokenmill.evaluation.results import Mark, Question
from tokenmill.formats.chat import START, TURN_END, Document, chat_prompt, plain, readable
from tokenmill.formats.raw_text import Objects, Raw, open_file, raw_text, version_of
from tokenmill.formats.token_row import document_ends, open_tokens
from tokenmill.formats.tokenizer import TextTokenizer, token_bytes

MOST_BYTES = 1 << 16
"""The most bytes of a file of prompts; a larger one is refused."""

MOST_PROMPTS = 100
"""The most prompts of a file; a file with more is refused."""

MOST_OPENINGS = 10
"""The most prompts that are taken from held-out text."""

OPENING_BYTES = 96
"""The most bytes of a beginning in UTF-8. It is also at most half of the document. Bytes are
counted, not tokens, so that models with other tokenizers are asked the same."""

SHORTEST_BYTES = 8
"""The fewest bytes of a document from which a prompt is taken. A shorter one cannot be divided
into a beginning and its continuation."""

LINE_CHARS = 2 * OPENING_BYTES
"""The number of characters in which the next line is searched, from a place in the middle of a
document."""

BLOCK = 1 << 20
"""The number of tokens that are read together."""

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

    raw: RawPlace
    """Where the raw text is. A folder may hold prompts."""


class EvaluateSections(Section):
    """The sections of params.yaml that the stages `evaluate` and `evaluate_finetuned` read, and
    `tokenmill watch`."""

    clean: ModeParams
    data: RawText
    evaluate: EvaluateParams
    runtime: DeviceParams


class PromptsFile(Section):
    """The contents of `prompts.yaml`."""

    prompts: list[PromptParams]


@dataclass(frozen=True)
class Prompt:
    """A prompt in the form that the model reads."""

    question: Question
    ids: list[int]
    ends_with_turn: bool
    """Whether the model writes a turn of a conversation."""


def chosen_prompts(
    sections: EvaluateSections,
    tokens: Path,
    tokenizer: TextTokenizer,
    *,
    context_length: int,
    root: Path = Path(),
) -> list[Prompt]:
    """The prompts that `evaluate.prompts` of the project at `root` chooses; `tokens` is the folder
    data/tokens. See `encode_prompts`."""
    entries = sections.evaluate.prompts
    if entries == "auto":
        entries = prompts_beside(raw_text(sections.data.raw, root))
    if entries is None:
        most = sections.evaluate.max_new_tokens
        return openings(tokens, tokenizer, context_length=context_length, max_new_tokens=most)
    mode = sections.clean.mode
    return encode_prompts(entries, tokenizer, context_length=context_length, mode=mode)


def prompts_beside(raw: Raw) -> list[PromptParams] | None:
    """The prompts in the file beside the raw text; None if there is no such file.

    Raises:
        UserError: the file is damaged or holds something else.
    """
    path = raw / PROMPTS_FILE
    if isinstance(path, Objects):
        return None if path.is_dir() else read_prompts(path)
    if not os.path.lexists(path):
        return None
    refuse_special(path, path.parent)
    return read_prompts(path)


def read_prompts(path: Raw) -> list[PromptParams]:
    """The prompts in a file."""
    with open_file(str(path)) as file:
        size = version_of(file)[0]
        if size > MOST_BYTES:
            raise UserError(f"{path} has {size:,} bytes; prompts may have {MOST_BYTES:,}.")
        prompts = parse(PromptsFile, file.read(), path).prompts
    if len(prompts) > MOST_PROMPTS:
        raise UserError(f"{path} has {len(prompts):,} prompts; at most {MOST_PROMPTS:,} are asked.")
    return prompts


def encode_prompts(
    prompts: Sequence[PromptParams], tokenizer: TextTokenizer, *, context_length: int, mode: Mode
) -> list[Prompt]:
    """Render and encode the prompts. Characters that the tokenizer does not know are left out.

    Args:
        prompts: the prompts as somebody types them.
        tokenizer: the tokenizer of the model.
        context_length: the most tokens of a prompt.
        mode: `clean.mode`, by which prompts and expected texts are written as the training text is.

    Raises:
        UserError: a prompt is empty or does not fit the model's context, or nothing is left of an
            expected text.
    """
    prepared = []
    for number, entry in enumerate(prompts, start=1):
        written = normalized(entry, mode)
        document = Document(plain(written.text or ""))
        if written.user is not None:
            document = chat_prompt([("user", written.user)])
        unknown = tokenizer.unknown(plain(document))
        known = Document(document.translate(str.maketrans("", "", unknown)))
        ids = tokenizer.encode_document(known)
        if not 0 < len(ids) <= context_length:
            raise UserError(
                f"prompt {number} ({shortened(entry.user or entry.text or '', 40)}), of "
                f"evaluate.prompts or {PROMPTS_FILE}, has {len(ids)} tokens that this tokenizer "
                f"knows; between 1 and model.context_length ({context_length}) fit."
            )
        question = Question(
            prompt=plain(entry.user or entry.text or ""),
            expect=written.expect,
            left_out=unknown,
            kind="text" if entry.user is None else "user",
            mark=entry.mark,
        )
        prepared.append(Prompt(question, ids, ends_with_turn=entry.user is not None))
    return prepared


def normalized(entry: PromptParams, mode: Mode) -> PromptParams:
    """A prompt with its texts as `clean` writes them.

    Raises:
        UserError: nothing is left of one of them.
    """
    from tokenmill.normalize import normalize_typed  # noqa: PLC0415 (polars)

    typed = {name: getattr(entry, name) for name in ("user", "text", "expect")}
    written = {name: text and normalize_typed(text, mode) for name, text in typed.items()}
    for name, text in written.items():
        if text is not None and typed[name].strip() and not text.strip():
            raise UserError(
                f"`{name}: {shortened(typed[name], 40)}`, of evaluate.prompts or {PROMPTS_FILE}, "
                f"has no character that clean.mode ({mode}) keeps; write another."
            )
    return entry.model_copy(update=written)


def openings(
    tokens: Path, tokenizer: TextTokenizer, *, context_length: int, max_new_tokens: int
) -> list[Prompt]:
    """At most MOST_OPENINGS prompts, evenly spread over the validation text in `tokens` and always
    the same. Each has as its truth what follows in the document, as far as the model may write."""
    found = []
    ids = open_tokens(tokens, "val")[:]
    spelled = token_bytes(tokenizer)
    sizes = np.array([len(token) for token in spelled])
    for mark, token in tokenizer.turn_ids.items():
        spelled[token] = mark.encode()
    # A token has one byte at least, a character four at most
    length = context_length + max_new_tokens + 4 * LINE_CHARS + 2 * OPENING_BYTES
    for place in places(ids, sizes, tokenizer.eot_id):
        document = _document(ids[place.token : place.token + length], tokenizer.eot_id)
        data = b"".join(spelled[token] for token in document)[place.skipped :]
        text = data.decode("utf-8", "ignore")  # the rest of a character that was cut
        text = Document(_from_line(text) if place.is_middle else text)
        found.append(
            _first_question(text, tokenizer, context_length, max_new_tokens)
            or _beginning(text, tokenizer, context_length, max_new_tokens)
        )
    return [opening for opening in found if opening]


def first_questions(
    chats: Sequence[Document], tokenizer: TextTokenizer, *, context_length: int, max_new_tokens: int
) -> list[Prompt]:
    """The first question of each conversation with its answer. Texts that are no conversation are
    left out."""
    found = (_first_question(text, tokenizer, context_length, max_new_tokens) for text in chats)
    return [opening for opening in found if opening]


class Place(NamedTuple):
    """Where a prompt begins in the validation text."""

    token: int
    skipped: int = 0
    """Bytes of this token that come before the place."""
    is_middle: bool = False
    """Whether it is within a long document."""


def places(ids: np.ndarray, sizes: np.ndarray, end: int) -> Iterator[Place]:
    """Yield the places at which documents begin, at even distances; of a long document also
    places in its middle.

    Distances are bytes of the text, so the places are the same for every tokenizer.

    Args:
        ids: documents, each followed by the token `end`.
        sizes: bytes of every token; special tokens have none.
        end: end-of-text.

    Example:
        >>> ids = np.array([1, 1, 1, 0, 1, 1, 0])
        >>> [place.token for place in places(ids, np.array([0, 20]), 0)]
        [0, 4]
    """
    blocks = (sizes[ids[first : first + BLOCK]].sum() for first in range(0, len(ids), BLOCK))
    offsets = np.cumsum([0, *blocks])
    total = int(offsets[-1])
    bounds = sorted({total * part // MOST_OPENINGS for part in range(MOST_OPENINGS + 1)})
    found = [_token_at(byte, ids, sizes, offsets) for byte in bounds]
    begins = np.append(0, document_ends(ids, end))
    for (start, behind), (stop, _) in pairwise(found):
        own = begins[(start <= begins) & (begins < stop)].tolist()
        first = next((token for token in own if _is_long_enough(ids, sizes, token, end)), None)
        if first is not None:
            yield Place(first)
        elif not own and total > MOST_OPENINGS * OPENING_BYTES:
            skipped = int(sizes[ids[start - 1]]) - behind if behind else 0
            yield Place(start - 1 if behind else start, skipped, is_middle=True)


def _is_long_enough(ids: np.ndarray, sizes: np.ndarray, begin: int, end: int) -> bool:
    document = _document(ids[begin : begin + 2 * SHORTEST_BYTES], end)
    return int(sizes[document].sum()) >= SHORTEST_BYTES


def _token_at(
    byte: int, ids: np.ndarray, sizes: np.ndarray, offsets: np.ndarray
) -> tuple[int, int]:
    """The first token that begins at this byte of the text or behind it, and how many bytes behind.
    `offsets` are the bytes before each BLOCK of tokens, and those of the whole text."""
    block = max(int(np.searchsorted(offsets, byte)) - 1, 0)
    first = block * BLOCK
    begins = offsets[block] + np.append(0, np.cumsum(sizes[ids[first : first + BLOCK]]))
    index = int(np.searchsorted(begins, byte))
    return first + index, int(begins[index]) - byte


def _document(ids: np.ndarray, end: int) -> list[int]:
    ends = np.flatnonzero(ids == end)
    return ids[: ends[0] if len(ends) else None].tolist()


def _from_line(text: str) -> str:
    """The text from its next line on, or from its next word if its lines are long."""
    gap = re.search(r"\n\s*", text[:LINE_CHARS]) or re.search(r"\s+", text)
    return text[gap.end() :] if gap else text


def _first_question(
    text: Document, tokenizer: TextTokenizer, context_length: int, most: int
) -> Prompt | None:
    """The first question of a conversation with its answer; None if the text is no conversation, or
    the question is too long."""
    turns = EXCHANGE.match(text)
    if not turns:
        return None
    before = Document(text[: turns.start("answer")])
    ids = tokenizer.encode_document(before)
    if len(ids) > context_length:
        return None
    truth = _first_tokens(Document(turns["answer"]), tokenizer, most).strip()
    question = _held_out(turns["question"], truth, kind="user")
    if turns["before"]:
        question = _held_out(readable(before), truth, kind="text")
    return Prompt(question, ids, ends_with_turn=True)


def _beginning(
    text: Document, tokenizer: TextTokenizer, context_length: int, most: int
) -> Prompt | None:
    """The beginning of a text, cut after a word; None if nothing is left to follow.

    A beginning that does not fit the context is cut to half of the context.
    """
    data = text.encode()
    half = data[: min(OPENING_BYTES, len(data) // 2)]
    head = Document(half.decode("utf-8", "ignore"))
    if len(tokenizer.encode_document(head)) > context_length:
        head = _first_tokens(head, tokenizer, context_length // 2)
    words = list(re.finditer(r"\s+", head))
    opening = Document(head[: words[-1].start()] if words and words[-1].start() else head)
    rest = Document(text[len(opening) :])
    shown, is_chat = readable(opening), plain(opening) != opening
    if is_chat:
        rest = Document(rest.partition(TURN_END)[0])
    follows = readable(_first_tokens(rest, tokenizer, most)).strip()
    if not (shown.strip() and follows):
        return None
    question = _held_out(shown, follows, kind="text")
    return Prompt(question, tokenizer.encode_document(opening), ends_with_turn=is_chat)


def _held_out(prompt: str, truth: str, *, kind: Literal["user", "text"]) -> Question:
    """A prompt from held-out text, to which any answer will do."""
    return Question(prompt=prompt, expect=None, left_out="", kind=kind, truth=truth)


def _first_tokens(text: Document, tokenizer: TextTokenizer, count: int) -> Document:
    first = tokenizer.decode_document(tokenizer.encode_document(text)[:count])
    return Document(first.rstrip("\ufffd"))
