"""What happens when somebody asks: the answer as it grows, as HTML in which nothing of it is more than text."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from tokenmill.checkpoints.writer import Stream
from tokenmill.demo.fields import FIELDS, Field, sampling_of, whole
from tokenmill.demo.loaded import Loaded
from tokenmill.demo.models import Models
from tokenmill.display.writing import rate
from tokenmill.errors import UserError
from tokenmill.model.sampling import Sampling
from tokenmill.page.text import excerpt
from tokenmill.stage import describe

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
