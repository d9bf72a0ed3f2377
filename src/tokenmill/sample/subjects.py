"""The facts of the corpus, and the templates that ask for them, read from `tables/*.yaml`.

Some questions are held out: training never contains them although it contains their parts. All
lists go from common to rare, so that a model can learn some facts early and others late. To add a
fact or a phrasing, add a line to a table; to add a table, name it in `FILES`. Draws use only
`Random.random()`, whose results are the same in every version of Python.
"""

import bisect
import functools
import itertools
import random
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import yaml
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator

Item = TypeVar("Item")
Form = TypeVar("Form")

TABLES = Path(__file__).parent / "tables"

FILES = (
    "countries",
    "nature",
    "arithmetic",
    "words",
    "dates",
    "things",
    "people",
    "explanations",
    "poems",
    "unknown",
)
"""The tables of questions. Their order decides what a seed draws. `small_talk` and `courtesies` are
read apart."""

HELD_OUT_EVERY = 8
"""On average, one in this many combinations of facts and phrasings of a question is held out."""


def is_held_out(text: str) -> bool:
    """Whether training never contains this question or combination. The result is the same on every
    machine and with every seed."""
    return zlib.crc32(text.encode()) % HELD_OUT_EVERY == 0


class Draw:
    """A sequence of random choices; the same seed always gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, limit: int) -> int:
        """A whole number from 0 to `limit` - 1, all equally likely."""
        return int(self._random() * limit)

    def percent(self, chance: int) -> bool:
        """Draw True with this chance in per cent."""
        return self.below(100) < chance

    def weighted(self, items: Sequence[Item], weights: tuple[int, ...]) -> Item:
        """Draw one of `items` with these weights."""
        sums = _running_sums(weights)
        return items[bisect.bisect_right(sums, self.below(sums[-1]))]

    def choice(self, weights: Mapping[Item, int]) -> Item:
        """Draw one of the keys, with the values as weights."""
        return self.weighted(tuple(weights), tuple(weights.values()))

    def common_first(self, items: Sequence[Item]) -> Item:
        """Draw one of `items`, which go from common to rare: the first is five times as likely as
        the last."""
        return self.weighted(items, falling(len(items)))


@functools.cache
def falling(size: int) -> tuple[int, ...]:
    """Weights that fall with the square of the distance from the end, from 15 to 3: `falling(4)` is
    (15, 8, 4, 3)."""
    steps = max(1, size - 1)
    return tuple(3 + 12 * (steps - place) ** 2 // steps**2 for place in range(size))


@functools.cache
def _running_sums(weights: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(itertools.accumulate(weights))


Fact = dict[str, str]
"""The words that fill the templates: `{"thing": "a lemon", "Thing": "A lemon", …}`."""


class Exchange(NamedTuple):
    """A question of the user and the assistant's answer."""

    question: str
    answer: str


class Templates(BaseModel, extra="forbid", strict=True):
    """One kind of question about the facts of a subject.

    `{thing}` in a template stands for the field `thing` of a fact, `{Thing}` for the same at the
    start of a sentence.
    """

    weight: int = Field(default=1, gt=0)
    """How often this kind of question is drawn, relative to all others."""

    phrasings: list[str]
    """Ways to ask, each of which names the fact completely."""

    answers: list[str]
    """Answers. There is only one, unless its wording does not matter: a small model learns one
    sentence per fact in a few epochs."""

    followups: list[str] = []
    """Short ways to ask for another fact right after one of this kind. If there are none, nothing
    follows."""


class Question(Templates):
    """One kind of question, with the facts that it asks for."""

    facts: list[Fact]
    """The facts that training asks for."""

    held_out: list[Fact]
    """The facts that only validation asks for: combinations whose parts are in `facts`."""

    def exchange(self, draw: Draw, facts: Sequence[Fact]) -> Exchange:
        """A question for one of `facts`, the common ones more often, with its answer."""
        fact = draw.common_first(facts)
        return self.fill(draw, fact, self.asked(fact))

    def asked(self, fact: Fact) -> list[str]:
        """The phrasings in which the corpus asks for `fact`: the first one, and those of the others
        that are not held out."""
        first, *others = self.phrasings
        return [
            first,
            *(
                phrasing
                for phrasing in others
                if not fact or not is_held_out(phrasing.format_map(fact))
            ),
        ]

    def fill(self, draw: Draw, fact: Fact, phrasings: list[str]) -> Exchange:
        """A question for `fact` in one of `phrasings`, and its answer."""
        phrasing = draw.common_first(phrasings)
        return Exchange(phrasing.format_map(fact), draw.common_first(self.answers).format_map(fact))


class Subject(BaseModel, extra="forbid", strict=True):
    """Facts of one sort, and the kinds of questions about them: one entry of a table."""

    fields: list[str] = []
    """The names of the cells of each fact, for the templates."""

    questions: list[Templates]

    facts: list[list[str] | dict[str, str | list[str]]] = []
    """The facts. A list has one cell per field. A mapping names its fields itself, and each item of
    a list in it makes a fact."""

    compute: dict[str, Any] = {}
    """A way to make the facts instead: the name of a function in `COMPUTED` and its argument."""

    combines: list[str] = []
    """The fields whose values make a combination, in any order. Some combinations are held out."""

    @model_validator(mode="after")
    def _every_fact_is_complete(self) -> Self:
        for row in self.facts:
            if isinstance(row, list) and len(row) != len(self.fields):
                raise ValueError(
                    f"the fact {row} must have one cell for each of the fields {self.fields}"
                )
        return self

    def with_facts(self) -> list[Question]:
        """Each kind of question, with all facts. Small talk has a single fact, without fields."""
        rows = [
            *self.facts,
            *(row for name, argument in self.compute.items() for row in COMPUTED[name](argument)),
        ]
        mappings = [
            row if isinstance(row, dict) else dict(zip(self.fields, row, strict=True))
            for row in rows
        ]
        parts: dict[bool, list[Fact]] = {False: [], True: []}
        for fact in (fact for mapping in mappings or [{}] for fact in _facts(mapping)):
            combination = " ".join(sorted(fact[name] for name in self.combines))
            parts[bool(combination) and is_held_out(combination)].append(fact)
        return [
            Question(facts=parts[False], held_out=parts[True], **dict(kind))
            for kind in self.questions
        ]


def _facts(mapping: Mapping[str, str | list[str]]) -> list[Fact]:
    """The facts that one row stands for. Every field is also there under its capitalised name."""
    choices = [[cell] if isinstance(cell, str) else cell for cell in mapping.values()]
    facts = [dict(zip(mapping, texts, strict=True)) for texts in itertools.product(*choices)]
    return [
        fact | {name.capitalize(): text[:1].upper() + text[1:] for name, text in fact.items()}
        for fact in facts
    ]


def _sums(largest: list[int]) -> list[list[str]]:
    """Two numbers up to `largest`, the numbers that are counted on the way, and the sum; large
    numbers first, for they are harder."""
    ranges = (range(1, most + 1) for most in largest)
    pairs = sorted(itertools.product(*ranges), key=max, reverse=True)
    return [[str(a), str(b), _counted(a, b), str(a + b)] for a, b in pairs]


def _counted(start: int, steps: int) -> str:
    """The numbers after `start`, each with its step: `_counted(8, 2)` is "9 (1), 10 (2)"."""
    return ", ".join(f"{start + step} ({step})" for step in range(1, steps + 1))


def _successors(largest: int) -> list[list[str]]:
    return [[str(number), str(number + 1)] for number in range(1, largest + 1)]


def _both_ways(pairs: list[list[str]]) -> list[list[str]]:
    """Each word with the other of its pair. If several pairs name a word, the first one decides."""
    other: dict[str, str] = {}
    for left, right in pairs:
        other.setdefault(left, right)
        other.setdefault(right, left)
    return [[word, opposite] for word, opposite in other.items()]


def _threes(words: list[str]) -> list[list[str]]:
    return [list(three) for three in itertools.permutations(words, 3)]


def _joined(parts: list[list[str]]) -> list[list[str]]:
    return [["".join(choice)] for choice in itertools.product(*parts)]


def _pairs(of: dict[str, Any]) -> list[list[str]]:
    """The cells of two facts with different answers, for an argument such as
    `{table: countries, subject: capitals, first: 40}`."""
    subject = read_tables(of["table"], dict[str, Subject])[of["subject"]]
    rows = [
        [fact[name] for name in subject.fields]
        for fact in subject.with_facts()[0].facts[: of["first"]]
    ]
    return [
        [*one, *other] for one, other in itertools.permutations(rows, 2) if one[-1] != other[-1]
    ]


COMPUTED = {
    "sums": _sums,
    "successors": _successors,
    "both_ways": _both_ways,
    "threes": _threes,
    "joined": _joined,
    "pairs": _pairs,
}
"""The functions that `compute` can name in a table."""


def read_tables(name: str, form: type[Form]) -> Form:
    """A table in the given form. Errors name the place in the table, and its file."""
    path = TABLES / f"{name}.yaml"
    try:
        return TypeAdapter(form).validate_python(
            yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
        )
    except ValidationError as error:
        error.add_note(f"The table is {path}.")
        raise


@functools.cache
def questions(name: str) -> dict[str, list[Question]]:
    """All kinds of questions in a table, by subject."""
    return {
        subject: found.with_facts()
        for subject, found in read_tables(name, dict[str, Subject]).items()
    }
