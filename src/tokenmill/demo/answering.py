"""What the page asks, checked, and the answer while it grows, as HTML in which all foreign text is escaped."""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

from tokenmill.core.errors import UserError
from tokenmill.core.units import visible
from tokenmill.demo.models import Loaded, Models
from tokenmill.display.terminal import rate
from tokenmill.model.generate import Sampling
from tokenmill.models.writer import Stream
from tokenmill.stage import describe

Field: TypeAlias = float | str | None
"""What a browser sends for a number; it may be anything, or None for an empty field."""

FIELDS = ("temperature", "top_k", "top_p", "repetition_penalty", "max_new_tokens", "seed")
"""The sampling fields of the page, in their order; see `Sampling`."""

MOST_TOKENS = 1024
"""The longest answer; other readers are waiting."""


def sampling_of(
    *, temperature: Field, top_k: Field, top_p: Field, repetition_penalty: Field, max_new_tokens: Field, seed: Field
) -> Sampling:
    """The sampling that these fields mean; top-k 0 and top-p 1 restrict nothing.

    Raises:
        UserError: a field is empty or has an invalid value.
    """
    length = whole("the length", max_new_tokens)
    if length > MOST_TOKENS:
        raise UserError(f"the length ({length}) must be at most {MOST_TOKENS} tokens; others wait for their answers.")
    return Sampling(
        temperature=number("the temperature", temperature),
        top_k=whole("top-k", top_k) or None,
        top_p=number("top-p", top_p) if top_p != 1 else None,
        repetition_penalty=number("the repetition penalty", repetition_penalty),
        max_new_tokens=length,
        seed=whole("the seed", seed),
    )


def number(name: str, value: Field) -> float:
    """The value of a field.

    Raises:
        UserError: it is empty or not a number.
    """
    try:
        found = float(math.nan if value is None else value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise UserError(f"{name} is {'empty' if value in (None, '') else repr(value)}; it must be a number.")
    return found


def whole(name: str, value: Field) -> int:
    """The value of a field for a whole number.

    Raises:
        UserError: it is anything else.
    """
    found = number(name, value)
    if found != int(found):
        raise UserError(f"{name} is {value!r}; it must be a whole number.")
    return int(found)


NONE = "none"
"""Instead of a model's name: the column stays empty."""

QUESTION, TEXT = "Question", "Text to continue"
"""Kinds of prompts."""

WRITING_AT_ONCE = 2
"""Answers at the same time, such as the two columns of one reader; others wait in the queue."""

SHOWN_EVERY = 0.05
"""Seconds between two states of a growing answer: smooth, and little work for the browser."""


@dataclass(frozen=True)
class Answering:
    """Answers of all models; thread-safe."""

    models: Models
    loaded: Loaded

    def prepare(self) -> None:
        """Load the first model, so that the first answer does not wait; errors come with the answers."""
        with contextlib.suppress(UserError, OSError):
            name = self.models.names()[0]
            epochs = self.models.epochs(name)
            writer = self.loaded.get(self.models.checkpoint(name, epochs[-1] if epochs else None))
            list(writer.stream("", Sampling(max_new_tokens=2), chat=True))

    def answer(
        self, name: str, epoch: int | str | None, prompt: str | None, kind: str, *fields: Field
    ) -> Iterator[str]:
        """The states of an answer, each with all of its text so far. A user's error is part of the answer.

        Args:
            name: of a model, or NONE.
            epoch: of this model; None is the last.
            prompt: any text.
            kind: QUESTION or TEXT.
            fields: in the order of FIELDS.
        """
        if name == NONE:
            yield ""
            return
        answer = Answer()
        try:
            sampling = sampling_of(**dict(zip(FIELDS, fields, strict=True)))
            yield answer.html()
            checkpoint = self.models.checkpoint(name, whole("the epoch", epoch) if epoch else None)
            writer = self.loaded.get(checkpoint)
            answer = Answer(checkpoint.name, writer.stream(str(prompt or ""), sampling, chat=kind == QUESTION))
            yield from answer.growing()
        except (UserError, OSError) as error:
            yield answer.html(refused=describe(error) if isinstance(error, OSError) else str(error))


@dataclass
class Answer:
    """The content of a column."""

    model: str = ""
    """Its name."""
    stream: Stream | None = None
    """None before it begins."""
    text: str = ""
    """So far."""

    def growing(self) -> Iterator[str]:
        """Its states: at the first text, then every SHOWN_EVERY seconds, and at the end."""
        due_at = 0.0
        for piece in self.stream or ():
            self.text += piece
            if time.monotonic() >= due_at:
                yield self.html()
                due_at = time.monotonic() + SHOWN_EVERY
        yield self.html(ended=True)

    def html(self, *, ended: bool = False, refused: str = "") -> str:
        """The model, the text, notes, the speed, and why there is no answer."""
        stream = self.stream or Stream(iter(()), [] if refused else ["reading the model …"])
        notes = [*stream.notes, "The model ended its answer at once."] if ended and not self.text else stream.notes
        parts = [
            (Markup('<p class="of">{}</p>'), self.model),
            (Markup('<div class="words" dir="auto">{}</div>'), visible(self.text)),
            *((Markup('<p class="quiet">{}</p>'), note) for note in notes),
            (Markup('<p class="quiet speed">{}</p>'), rate(stream.tokens, stream.seconds) if stream.tokens else ""),
            (Markup('<p class="refusal" role="alert">{}</p>'), refused),
        ]
        return Markup("").join(tag.format(text) for tag, text in parts if text)
