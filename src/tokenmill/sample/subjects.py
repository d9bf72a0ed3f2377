"""What the corpus knows: facts, and templates that ask for them, read from `tables/*.yaml`.

All lists go from common to rare, so that there is something to learn early and something to learn late. To add a
fact or a phrasing, add a line to a table; to add a table, name it in `FILES`. Draws use `Random.random()` alone, the
only method whose results are the same in every version of Python.
"""

import bisect
import functools
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import yaml
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator

Item = TypeVar("Item")


class Draw:
    """A sequence of random choices; the same seed always gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, limit: int) -> int:
        """A whole number from 0 to `limit` - 1, all equally likely."""
        return int(self._random() * limit)

    def weighted(self, items: Sequence[Item], weights: tuple[int, ...]) -> Item:
        """One of `items`, as likely as its weight says."""
        sums = _running_sums(weights)
        return items[bisect.bisect_right(sums, self.below(sums[-1]))]

    def common_first(self, items: Sequence[Item]) -> Item:
        """One of `items`, which go from common to rare: the first is five times as likely as the last."""
        return self.weighted(items, falling(len(items)))


@functools.cache
def falling(size: int) -> tuple[int, ...]:
    """Weights that fall with the square of the distance from the end, from 15 to 3: `falling(4)` is (15, 8, 4, 3)."""
    steps = max(1, size - 1)
    return tuple(3 + 12 * (steps - place) ** 2 // steps**2 for place in range(size))


@functools.cache
def _running_sums(weights: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(itertools.accumulate(weights))


TABLES = Path(__file__).parent / "tables"


FILES = ("countries", "nature", "arithmetic", "words", "dates", "things", "people", "explanations", "poems", "unknown")
"""The tables of questions; their order decides what a seed draws. `small_talk` and `courtesies` stand apart."""


Fact = dict[str, str]
"""The words that fill the templates: `{"thing": "a lemon", "Thing": "A lemon", …}`."""


Form = TypeVar("Form")


class Exchange(NamedTuple):
    """What the user says and what the assistant answers."""

    question: str
    answer: str


class Templates(BaseModel, extra="forbid", strict=True):
    """One kind of question about the facts of a subject.

    `{thing}` in a template stands for the field `thing` of a fact, `{Thing}` for the same at the start of a sentence.
    """

    weight: int = Field(default=1, gt=0)
    """How often this kind of question is drawn, relative to all others."""

    phrasings: list[str]
    """Ways to ask, each of which names the fact completely."""

    answers: list[str]
    """Only one, unless its wording does not matter: a small model learns one sentence per fact in a few epochs."""

    followups: list[str] = []
    """Short ways to ask for another fact right after one of this kind; without any, nothing follows up."""


class Question(Templates):
    """One kind of question, with the facts that it asks for."""

    facts: list[Fact]

    def exchange(self, draw: Draw) -> Exchange:
        """A question for any fact, the common ones more often, and its answer."""
        return self.fill(draw, draw.common_first(self.facts), self.phrasings)

    def fill(self, draw: Draw, fact: Fact, phrasings: list[str]) -> Exchange:
        """A question for `fact` in one of `phrasings`, and its answer."""
        phrasing = draw.common_first(phrasings)
        return Exchange(phrasing.format_map(fact), draw.common_first(self.answers).format_map(fact))


class Subject(BaseModel, extra="forbid", strict=True):
    """Facts of one sort, and the kinds of questions about them: one entry of a table."""

    fields: list[str] = []
    """Names of the cells of each fact, for the templates."""

    questions: list[Templates]

    facts: list[list[str] | dict[str, str | list[str]]] = []
    """A list has one cell per field; a mapping names its fields itself, and each item of a list in it makes a fact."""

    compute: dict[str, Any] = {}
    """Instead of `facts`: the name of a function in `COMPUTED` and its argument."""

    @model_validator(mode="after")
    def _every_fact_is_complete(self) -> Self:
        for row in self.facts:
            if isinstance(row, list) and len(row) != len(self.fields):
                raise ValueError(f"the fact {row} must have one cell for each of the fields {self.fields}")
        return self

    def with_facts(self) -> list[Question]:
        """Each kind of question, with all facts; small talk has a single fact, without fields."""
        rows = [*self.facts, *(row for name, argument in self.compute.items() for row in COMPUTED[name](argument))]
        mappings = [row if isinstance(row, dict) else dict(zip(self.fields, row, strict=True)) for row in rows]
        facts = [fact for mapping in mappings or [{}] for fact in _facts(mapping)]
        return [Question(facts=facts, **dict(templates)) for templates in self.questions]


def _facts(mapping: dict[str, str | list[str]]) -> list[Fact]:
    """The facts that one row stands for, with every field also under its capitalised name."""
    choices = [[cell] if isinstance(cell, str) else cell for cell in mapping.values()]
    facts = [dict(zip(mapping, texts, strict=True)) for texts in itertools.product(*choices)]
    return [fact | {name.capitalize(): text[:1].upper() + text[1:] for name, text in fact.items()} for fact in facts]


def _sums(largest: int) -> list[list[str]]:
    pairs = itertools.product(range(1, largest + 1), repeat=2)
    return [[str(a), str(b), str(a + b)] for a, b in sorted(pairs, key=max)]


def _differences(largest: int) -> list[list[str]]:
    return [[str(a), str(b), str(a - b)] for a in range(1, largest + 1) for b in range(1, a + 1)]


def _successors(largest: int) -> list[list[str]]:
    return [[str(number), str(number + 1)] for number in range(1, largest + 1)]


def _both_ways(pairs: list[list[str]]) -> list[list[str]]:
    """Each word with the other of its pair; the first pair that names a word decides."""
    other: dict[str, str] = {}
    for left, right in pairs:
        other.setdefault(left, right)
        other.setdefault(right, left)
    return [[word, opposite] for word, opposite in other.items()]


COMPUTED = {"sums": _sums, "differences": _differences, "successors": _successors, "both_ways": _both_ways}
"""What `compute` can name in a table."""


def read(name: str, form: type[Form]) -> Form:
    """A table in the given form; the error names the place in the table, and its file."""
    path = TABLES / f"{name}.yaml"
    try:
        return TypeAdapter(form).validate_python(yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader))
    except ValidationError as error:
        error.add_note(f"The table is {path}.")
        raise


@functools.cache
def questions(name: str) -> dict[str, list[Question]]:
    """All kinds of questions in a table, by subject."""
    return {subject: found.with_facts() for subject, found in read(name, dict[str, Subject]).items()}
