"""Generate the built-in corpus: combine facts and phrasings to conversations, and write them as
JSON lines.

Most conversations are a single question, often with a greeting, an occasion, an excuse or thanks
around it. Nearly all differ as text, but their answers recur, so a model has something to learn.
The validation text asks only for combinations that the training text never has. A few training
conversations repeat or have a blemish, so that cleaning has something to do.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import Field

from tokenmill.core import files
from tokenmill.core.params import Section
from tokenmill.core.paths import PROMPTS_FILE
from tokenmill.sample.subjects import FILES, Draw, Exchange, Question, questions, read_tables


class SampleParams(Section):
    """The parameters that decide the bytes of the built-in corpus."""

    seed: int = Field(ge=0)
    """Start of the random numbers that combine facts and phrasings; another seed is another corpus
    (0 or more)."""

    conversations: int = Field(gt=0)
    """Number of conversations to train on, about 0.2 MB for 1,000. A sixteenth as many are written
    to validate with."""


TRAIN = "train.jsonl"
VALIDATION = "validation.jsonl"
"""The names of the two files of text."""

Conversation = tuple[Exchange, ...]
"""The exchanges of a conversation, in order. It is hashable, so that repeats are found."""

VALIDATION_EVERY = 16
"""The number of training conversations for each validation conversation."""

OPENING_PERCENT = 8
"""How often a conversation begins with a greeting, in per cent."""

CLOSING_PERCENT = 12
"""How often a conversation ends with thanks, in per cent."""

COURTESY_PERCENT = 30
"""How often a conversation has a courtesy before or after a question, in per cent."""

REPEAT_EVERY = 100
"""On average, one conversation in this many repeats an earlier one."""

BLEMISH_EVERY = 150
"""On average, one conversation in this many has a blemish."""

TRIES = 50
"""The most draws for a conversation that was not said before; then a repeated one is accepted."""

TYPED: dict[Callable[[str], str], int] = {
    str: 65,
    lambda text: text.rstrip(".?!"): 10,
    str.lower: 5,
    lambda text: text.lower().rstrip(".?!"): 20,
}
"""The ways in which people type a question, each with how often in per cent."""

BLEMISHES: tuple[Callable[[str], str], ...] = (
    lambda text: text.replace(" ", "  "),
    lambda text: f"{text} 🙂",
    lambda text: f"“{text}”",
    lambda text: f"{text}\r\n",
    lambda text: f"\t{text}\t",
    lambda text: f"\u200b{text}",
)
"""The changes that may be made to the first question of a conversation, never to an answer."""


class ConversationSource:
    """Draws conversations of every shape from the tables."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._all = [kind for name in FILES for kinds in questions(name).values() for kind in kinds]
        self._factual = [kind for kind in self._all if kind.followups]
        self._combining = [kind for kind in self._all if kind.held_out]
        talk = questions("small_talk")
        self._opening = talk["opening"]
        self._closing = talk["closing"]
        self._talk = talk["talk"]
        self._courtesies = read_tables("courtesies", dict[str, list[str]])
        self.shapes: dict[Callable[[], Conversation], int] = {
            self._single: 78,
            self._followed_up: 14,
            lambda: (self._exchange(self._all), self._exchange(self._all)): 5,
            lambda: (self._exchange(self._talk),): 3,
        }
        """The shapes of a conversation between opening and closing, each with how often in per
        cent."""

    def conversation(self) -> Conversation:
        """One conversation of any shape; it may have been drawn before."""
        said = self._draw.choice(self.shapes)()
        if self._draw.percent(OPENING_PERCENT):
            said = (self._exchange(self._opening), *said)
        if self._draw.percent(CLOSING_PERCENT):
            said = (*said, self._exchange(self._closing))
        return self._typed(said)

    def held_out(self) -> Conversation:
        """A single question for a combination that `conversation` never asks for."""
        kind = self._kind(self._combining)
        return self._typed((self._around(kind, kind.exchange(self._draw, kind.held_out)),))

    def blemished(self, conversation: Conversation) -> Conversation:
        """The conversation with a blemish in its first question, or in one of seven cases without
        any messages."""
        kind = self._draw.below(len(BLEMISHES) + 1)
        if kind == len(BLEMISHES):
            return ()
        first, *rest = conversation
        return (first._replace(question=BLEMISHES[kind](first.question)), *rest)

    def _kind(self, kinds: Sequence[Question]) -> Question:
        return self._draw.weighted(kinds, tuple(kind.weight for kind in kinds))

    def _exchange(self, kinds: Sequence[Question]) -> Exchange:
        kind = self._kind(kinds)
        return kind.exchange(self._draw, kind.facts)

    def _single(self) -> Conversation:
        kind = self._kind(self._all)
        return (self._around(kind, kind.exchange(self._draw, kind.facts)),)

    def _around(self, kind: Question, exchange: Exchange) -> Exchange:
        """The exchange with a courtesy before the question, after it, both or neither."""
        said = self._courtesies
        sentences = [exchange.question]
        if self._draw.percent(COURTESY_PERCENT):
            sentences.insert(
                0,
                self._draw.common_first(
                    said["greetings"] + said["occasions"] * bool(kind.followups)
                ),
            )
        if self._draw.percent(COURTESY_PERCENT):
            sentences.append(
                self._draw.common_first(said["thanks"] + said["excuses"] * bool(kind.followups))
            )
        return exchange._replace(question=" ".join(sentences))

    def _followed_up(self) -> Conversation:
        """A question for a fact, followed by a short one for another fact of the same kind."""
        kind = self._kind(self._factual)
        fact = self._draw.common_first(kind.facts)
        other = self._draw.common_first(kind.facts)
        while other is fact:
            other = self._draw.common_first(kind.facts)
        return (
            kind.fill(self._draw, fact, kind.asked(fact)),
            kind.fill(self._draw, other, kind.followups),
        )

    def _typed(self, conversation: Conversation) -> Conversation:
        """The conversation as people type it: many questions in lower case, without the last mark,
        or both."""
        return tuple(
            said._replace(question=self._draw.choice(TYPED)(said.question)) for said in conversation
        )


def conversations(*, seed: int, count: int) -> Iterator[Conversation]:
    """Yield `count` training conversations. A seed always gives the same ones, whatever `count`
    is."""
    draw = Draw(seed)
    source = ConversationSource(draw)
    seen: set[Conversation] = set()
    earlier: list[Conversation] = []
    for _ in range(count):
        if earlier and draw.below(REPEAT_EVERY) == 0:
            yield earlier[draw.below(len(earlier))]
            continue
        conversation = _unseen(source.conversation, seen)
        earlier.append(conversation)
        yield source.blemished(conversation) if draw.below(BLEMISH_EVERY) == 0 else conversation


def held_out(*, seed: int, count: int) -> Iterator[Conversation]:
    """Yield `count` validation conversations: combinations that `conversations` never has, with any
    seed."""
    source = ConversationSource(Draw(seed))
    seen: set[Conversation] = set()
    for _ in range(count):
        yield _unseen(source.held_out, seen)


def _unseen(draw: Callable[[], Conversation], seen: set[Conversation]) -> Conversation:
    """A conversation that is not in `seen`, if TRIES draws find one. It is added to `seen`."""
    tries = (draw() for _ in range(TRIES))
    conversation = next((said for said in tries if said not in seen), None) or draw()
    seen.add(conversation)
    return conversation


def write_sample(folder: Path, params: SampleParams) -> None:
    """Write train.jsonl, validation.jsonl (a `json_line` per conversation) and the prompts of the
    evaluation to `folder`."""
    few = max(1, params.conversations // VALIDATION_EVERY)
    with files.write_atomic(folder / TRAIN) as file:
        file.writelines(map(json_line, conversations(seed=params.seed, count=params.conversations)))
    with files.write_atomic(folder / VALIDATION) as file:
        file.writelines(map(json_line, held_out(seed=params.seed, count=few)))
    with files.write_atomic(folder / PROMPTS_FILE) as file:
        file.write((Path(__file__).parent / PROMPTS_FILE).read_bytes())


def json_line(conversation: Conversation) -> bytes:
    """A conversation as one line of UTF-8 JSON with its line end:
    `{"messages": [{"role": "user", "content": …}, …]}`."""
    messages = []
    for question, answer in conversation:
        messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ]
    return json.dumps({"messages": messages}, ensure_ascii=False).encode() + b"\n"
