"""The fields of the page as numbers; what is wrong with one is a sentence with its name.

What happens when somebody asks: the answer as it grows, as HTML in which nothing of it is more than text.
"""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

from tokenmill.core.errors import UserError
from tokenmill.demo.models import Loaded, Models
from tokenmill.display.writing import rate
from tokenmill.model.sampler import Sampling
from tokenmill.models.writer import Stream
from tokenmill.reports.page import excerpt
from tokenmill.stage import describe

Field: TypeAlias = float | str | None
"""What a browser sends: a number, or something else; None where the field is empty."""


FIELDS = ("temperature", "top_k", "top_p", "repetition_penalty", "max_new_tokens", "seed")
"""What the page asks for, in its order; see `Sampling`."""


MOST_TOKENS = 1024
"""The longest answer that can be asked for; others are waiting."""


def sampling_of(
    *, temperature: Field, top_k: Field, top_p: Field, repetition_penalty: Field, max_new_tokens: Field, seed: Field
) -> Sampling:
    """How to draw, where 0 as top-k and 1 as top-p mean all.

    Raises:
        UserError: a field is empty, or its value without a meaning.
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
    """What is in a field.

    Raises:
        UserError: nothing, or no number.
    """
    try:
        found = float(math.nan if value is None else value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise UserError(f"{name} is {'empty' if value in (None, '') else repr(value)}; it must be a number.")
    return found


def whole(name: str, value: Field) -> int:
    """What is in a field for a whole number.

    Raises:
        UserError: something else.
    """
    found = number(name, value)
    if found != int(found):
        raise UserError(f"{name} is {value!r}; it must be a whole number.")
    return int(found)


NONE = "none"
"""In place of a model's name: a column that stays empty."""


QUESTION, TEXT = "Question", "Text to continue"
"""What a prompt is."""


WRITING_AT_ONCE = 2
"""Answers that are written at the same time, such as the two columns of one reader; further ones wait in line."""


SHOWN_EVERY = 0.05
"""Seconds between two states of a growing answer: smooth to the eye, and little work for the browser."""


@dataclass(frozen=True)
class Answering:
    """Answers by the models there are; threads may share it."""

    models: Models
    loaded: Loaded

    def prepare(self) -> None:
        """Read the model that the page begins with, and write with it, so that the first answer waits for neither.

        What is wrong is said to the one who asks.
        """
        with contextlib.suppress(UserError, OSError):
            name = self.models.names()[0]
            epochs = self.models.epochs(name)
            writer = self.loaded.get(self.models.checkpoint(name, epochs[-1] if epochs else None))
            list(writer.stream("", Sampling(max_new_tokens=2), chat=True))

    def answer(
        self, name: str, epoch: int | str | None, prompt: str | None, kind: str, *fields: Field
    ) -> Iterator[str]:
        """The states of an answer, each the whole of it so far; a user's error is a sentence in it.

        Args:
            name: of a model, or NONE.
            epoch: of this model; else the last.
            prompt: whatever was written.
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
    """What a column shows."""

    of: str = ""
    """The name of the model."""
    stream: Stream | None = None
    """None before it begins."""
    text: str = ""
    """So far."""

    def growing(self) -> Iterator[str]:
        """Its states: as soon as there is text, then not too often, and at the end."""
        due_at = 0.0
        for piece in self.stream or ():
            self.text += piece
            if time.monotonic() >= due_at:
                yield self.html()
                due_at = time.monotonic() + SHOWN_EVERY
        yield self.html(ended=True)

    def html(self, *, ended: bool = False, refused: str = "") -> str:
        """The answer with what there is to know of it."""
        stream = self.stream or Stream(iter(()), [] if refused else ["reading the model …"])
        notes = [*stream.notes, "The model ended its answer at once."] if ended and not self.text else stream.notes
        parts = [
            (Markup('<p class="of">{}</p>'), self.of),
            (Markup('<div class="words" dir="auto">{}</div>'), excerpt(self.text, len(self.text))),
            *((Markup('<p class="quiet">{}</p>'), note) for note in notes),
            (Markup('<p class="quiet speed">{}</p>'), rate(stream.tokens, stream.seconds) if stream.tokens else ""),
            (Markup('<p class="refusal" role="alert">{}</p>'), refused),
        ]
        return Markup("").join(tag.format(text) for tag, text in parts if text)
