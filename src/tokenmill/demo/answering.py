"""Check what the page sends, answer it, and render the growing conversation as HTML in which all
foreign text is escaped."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias, TypeVar

from markupsafe import Markup
from pydantic import ValidationError

from tokenmill.core.errors import UserError
from tokenmill.demo.models import Loaded, Models
from tokenmill.display import rate
from tokenmill.evaluation.generate import Sampling
from tokenmill.formats.records import adapter
from tokenmill.reports.page import excerpt
from tokenmill.runs.writer import Stream, Writer
from tokenmill.stage import describe
from tokenmill.words.units import visible

Form = TypeVar("Form")

FIELDS = tuple(field.name for field in fields(Sampling))
"""The sampling fields of the page, in their order."""

NONE = "none"
"""The choice that leaves a column empty; it stands in place of a model's name."""

# The kinds of prompts
QUESTION = "Question"
TEXT = "Text to continue"

MOST_CHARACTERS = 10_000
"""The most characters of a prompt. A longer one would be cut to the model's context in any case."""

MOST_TOKENS = 1024
"""The most tokens of an answer."""

MOST_SECONDS = 60.0
"""The most seconds for an answer, because other readers are waiting."""

MOST_TURNS = 10
"""The most turns of a conversation that are kept."""

WRITING_AT_ONCE = 2
"""The number of answers that are written at the same time, such as the two columns of one reader.
Others wait in the queue."""

SHOWN_EVERY = 0.05
"""Seconds between two states of a growing answer. It looks smooth, and is little work for the
browser."""


def sampling_of(values: dict[str, Any]) -> Sampling:
    """The sampling from the values of the page's fields, which may be anything that a browser can
    send. Top-k 0 means all tokens."""
    sampling = valid("", values | {"top_k": values["top_k"] or None}, Sampling)
    if sampling.max_new_tokens > MOST_TOKENS:
        raise UserError(
            f"max_new_tokens ({sampling.max_new_tokens}) must be at most {MOST_TOKENS}; others "
            "are waiting."
        )
    return sampling


def valid(name: str, value: Any, form: type[Form]) -> Form:
    """Refuse a value that a browser sent if it does not have the form `form`."""
    try:
        return adapter(form).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or name
        must = problem["msg"].removeprefix("Input should be ")
        raise UserError(
            f"{where} ({excerpt(repr(problem['input']), 60)}) must be {must}."
        ) from None


@dataclass
class Turn:
    """A prompt and its answer so far, as plain values that a browser's session keeps."""

    prompt: str
    kind: str
    model: str = ""
    """The model's name."""
    text: str = ""
    notes: list[str] = field(default_factory=lambda: ["reading the model …"])
    speed: str = ""
    refused: str = ""
    """The reason why there is no answer, or no more of it."""

    def html(self) -> Markup:
        """The prompt, the model's name, the answer, the notes and the speed as HTML."""
        parts = [
            (Markup('<div class="asked" dir="auto">{}</div>'), self.prompt),
            (Markup('<p class="of">{}</p>'), self.model),
            (Markup('<div class="words" dir="auto">{}</div>'), self.text),
            *((Markup('<p class="quiet">{}</p>'), note) for note in self.notes),
            (Markup('<p class="quiet speed">{}</p>'), self.speed),
            (Markup('<p class="refusal" role="alert">{}</p>'), self.refused),
        ]
        return Markup('<div class="turn">{}</div>').format(
            Markup("").join(tag.format(visible(text)) for tag, text in parts if text)
        )


Turns: TypeAlias = list[Turn]
State: TypeAlias = tuple[str, Turns]
"""A conversation as HTML and as turns."""


def html(turns: Sequence[Turn]) -> str:
    """A conversation as HTML, the newest turn last."""
    return Markup("").join(turn.html() for turn in turns)


@dataclass(frozen=True)
class Answering:
    """Answers prompts with all models. It is thread-safe."""

    models: Models
    loaded: Loaded

    def prepare(self) -> None:
        """Load the first model now, so that its first answer need not wait. Errors are reported
        with the answers."""
        with contextlib.suppress(UserError, OSError):
            name = self.models.names()[0]
            epochs = self.models.epochs(name)
            writer = self.loaded.get(self.models.checkpoint(name, epochs[-1] if epochs else None))
            list(writer.stream("", Sampling(max_new_tokens=2), chat=True))

    def answer(
        self,
        name: str | None,
        epoch: int | str | None,
        prompt: str | None,
        kind: str,
        turns: Turns | None,
        *values: Any,
    ) -> Iterator[State]:
        """Yield the states of a conversation while its last turn grows. A user's error is shown in
        the turn.

        Args:
            name: the name of a model, or NONE. None, as of a page that does not know the models
                yet, means the first one.
            epoch: an epoch of this model; None is the last one.
            prompt: any text.
            kind: QUESTION or TEXT. A question continues the conversation; an empty one asks
                nothing.
            turns: the turns so far.
            values: the values of FIELDS, in their order.
        """
        turns = list(turns or ())[1 - MOST_TURNS :]
        prompt = prompt if isinstance(prompt, str) else ""
        if name == NONE or (kind == QUESTION and not prompt.strip()):
            yield html(turns), turns
            return
        turn = Turn(prompt[:MOST_CHARACTERS], kind)
        turns.append(turn)
        try:
            if len(prompt) > MOST_CHARACTERS:
                raise UserError(
                    f"the prompt has {len(prompt):,} characters; at most {MOST_CHARACTERS:,} are "
                    "read."
                )
            sampling = sampling_of(dict(zip(FIELDS, values, strict=True)))
            yield html(turns), turns
            name = self.models.names()[0] if name is None else name
            checkpoint = self.models.checkpoint(
                name, valid("the epoch", epoch, int) if epoch else None
            )
            turn.model = checkpoint.name
            stream = self._stream(self.loaded.get(checkpoint), turns, sampling)
            turn.notes = stream.notes
            for _ in _growing(turn, stream):
                yield html(turns), turns
        except (UserError, OSError) as error:
            turn.notes = []
            turn.refused = describe(error) if isinstance(error, OSError) else str(error)
        yield html(turns), turns

    def _stream(self, writer: Writer, turns: Turns, sampling: Sampling) -> Stream:
        """The answer to the last turn after the answered questions before it, or the continuation
        of its text."""
        *before, last = turns
        if last.kind != QUESTION:
            return writer.stream(last.prompt, sampling, chat=False)
        messages = [
            message
            for turn in before
            if turn.kind == QUESTION and turn.text
            for message in (
                {"role": "user", "content": turn.prompt},
                {"role": "assistant", "content": turn.text},
            )
        ]
        return writer.reply([*messages, {"role": "user", "content": last.prompt}], sampling)


def _growing(turn: Turn, stream: Stream) -> Iterator[None]:
    """Add the answer to the turn. Yield after the first text, then every SHOWN_EVERY seconds."""
    began = time.monotonic()
    due_at = 0.0
    for chunk in stream:
        turn.text += chunk
        turn.speed = rate(stream.tokens, stream.seconds)
        if time.monotonic() >= due_at:
            yield
            due_at = time.monotonic() + SHOWN_EVERY
        if time.monotonic() - began > MOST_SECONDS:
            turn.notes.append(f"Stopped after {MOST_SECONDS:.0f} seconds; others are waiting.")
            break
    turn.speed = rate(stream.tokens, stream.seconds) if stream.tokens else ""
    if not turn.text:
        turn.notes.append("The model ended its answer at once.")
