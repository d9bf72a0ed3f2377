"""The corpus: questions combined to conversations, and conversations written as JSON lines.

Two thirds of the conversations are a single question, most of them with a greeting, an occasion, an excuse or thanks
around it. Nearly all conversations therefore differ as text while their answers recur: what a model has to learn.
A few repeat on purpose or have a blemish, so that the cleaning stage has work.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import Field

from tokenmill.core import files
from tokenmill.core.params import Section
from tokenmill.sample.subjects import FILES, Draw, Exchange, Question, questions, read


class SampleParams(Section):
    """What decides the bytes of the built-in corpus."""

    seed: int = Field(ge=0)
    """Start of the random numbers that combine facts and phrasings; another seed is another corpus (0 or more)."""

    conversations: int = Field(gt=0)
    """Number of conversations to write; 1,000 of them are about 0.21 MB."""


Conversation = tuple[Exchange, ...]
"""What was said, in order; hashable, so that repeats are found."""


COURTESY_PERCENT = 40
"""How often something is said before, and how often after, the question of a single turn."""


REPEAT_EVERY = 100
"""On average, one conversation in so many repeats an earlier one."""


BLEMISH_EVERY = 150
"""On average, one conversation in so many has a blemish."""


TRIES = 50
"""How often a conversation that was already said is drawn again before it is accepted."""


BLEMISHES: tuple[Callable[[str], str], ...] = (
    lambda text: text.replace(" ", "  "),
    lambda text: f"{text} 🙂",
    lambda text: f"“{text}”",
    lambda text: f"{text}\r\n",
    lambda text: f"\t{text}\t",
    lambda text: f"\u200b{text}",
)
"""What can happen to the first question of a conversation, never to an answer."""


class ConversationSource:
    """Draws conversations of every shape from the tables."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._any = tuple(kind for name in FILES for kinds in questions(name).values() for kind in kinds)
        self._factual = tuple(kind for kind in self._any if kind.followups)
        talk = questions("small_talk")
        [self._opening], [self._closing], self._talk = talk["opening"], talk["closing"], talk["talk"]
        self._courtesies = read("courtesies", dict[str, list[str]])
        self.shapes: dict[Callable[[], Conversation], int] = {
            self._single: 65,
            self._followed_up: 10,
            lambda: (self._kind(self._any).exchange(draw), self._closing.exchange(draw)): 8,
            lambda: (self._opening.exchange(draw), self._kind(self._any).exchange(draw)): 7,
            self._two_subjects: 4,
            lambda: (*self._followed_up(), self._closing.exchange(draw)): 4,
            self._small_talk: 2,
        }
        """How often a conversation has which shape, in per cent."""

    def conversation(self) -> Conversation:
        """One conversation of any shape; it may have been drawn before."""
        return self._draw.weighted(tuple(self.shapes), tuple(self.shapes.values()))()

    def blemished(self, conversation: Conversation) -> Conversation:
        """The conversation with a blemish in its first question, or one time in seven without any messages."""
        kind = self._draw.below(len(BLEMISHES) + 1)
        if kind == len(BLEMISHES):
            return ()
        first, *rest = conversation
        return (first._replace(question=BLEMISHES[kind](first.question)), *rest)

    def _kind(self, kinds: Sequence[Question]) -> Question:
        return self._draw.weighted(kinds, tuple(kind.weight for kind in kinds))

    def _single(self) -> Conversation:
        """One question with something said before it, after it, both or neither."""
        kind, said = self._kind(self._any), self._courtesies
        exchange = kind.exchange(self._draw)
        before = self._draw.common_first(said["greetings"] + (said["occasions"] if kind.followups else []))
        after = self._draw.common_first(said["thanks"] + (said["excuses"] if kind.followups else []))
        sentences = [before] if self._draw.below(100) < COURTESY_PERCENT else []
        sentences += [exchange.question]
        sentences += [after] if self._draw.below(100) < COURTESY_PERCENT else []
        return (exchange._replace(question=" ".join(sentences)),)

    def _followed_up(self) -> Conversation:
        """A question for a fact, and a short one for another fact of the same kind."""
        kind = self._kind(self._factual)
        fact, other = self._draw.common_first(kind.facts), self._draw.common_first(kind.facts)
        while other is fact:
            other = self._draw.common_first(kind.facts)
        return (kind.fill(self._draw, fact, kind.phrasings), kind.fill(self._draw, other, kind.followups))

    def _two_subjects(self) -> Conversation:
        """Questions of two kinds."""
        kind, other = self._kind(self._factual), self._kind(self._factual)
        while other is kind:
            other = self._kind(self._factual)
        return (kind.exchange(self._draw), other.exchange(self._draw))

    def _small_talk(self) -> Conversation:
        """Small talk; half of it begins with a greeting."""
        talk = self._kind(self._talk).exchange(self._draw)
        return (self._opening.exchange(self._draw), talk) if self._draw.below(2) else (talk,)


def conversations(*, seed: int, count: int) -> Iterator[Conversation]:
    """Yield `count` conversations; the same seed always gives the same ones, however many are asked for."""
    draw = Draw(seed)
    source = ConversationSource(draw)
    seen: set[Conversation] = set()
    earlier: list[Conversation] = []
    for _ in range(count):
        if earlier and draw.below(REPEAT_EVERY) == 0:
            yield earlier[draw.below(len(earlier))]
            continue
        conversation = source.conversation()
        for _ in range(TRIES):
            if conversation not in seen:
                break
            conversation = source.conversation()
        seen.add(conversation)
        earlier.append(conversation)
        yield source.blemished(conversation) if draw.below(BLEMISH_EVERY) == 0 else conversation


def write_sample(path: Path, params: SampleParams) -> None:
    """Write the corpus to `path`, one conversation per line: `{"messages": [{"role": …, "content": …}, …]}`."""
    with files.write_atomic(path) as file:
        for conversation in conversations(seed=params.seed, count=params.conversations):
            file.write(json_line(conversation))


def json_line(conversation: Conversation) -> bytes:
    """A conversation as one line of UTF-8 JSON, with its line end; roles alternate, the user first."""
    messages = []
    for question, answer in conversation:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return json.dumps({"messages": messages}, ensure_ascii=False).encode() + b"\n"
