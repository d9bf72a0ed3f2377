"""A family of questions: many facts of one kind, several ways to ask, one way to answer.

The answer is nearly always the same sentence for the same fact, however the question was put: this is what a
small model can learn in a few epochs. Templates name the fields of a fact; a field's name with a capital
stands for its text at the start of a sentence.
"""

import random
from dataclasses import dataclass
from typing import NamedTuple

from tokenmill.sample import draw

Fact = dict[str, str]
"""The words that fill a family's templates: `{"country": "Peru", "Country": "Peru", …}`."""


class Exchange(NamedTuple):
    """What the user says and what the assistant answers."""

    question: str
    answer: str


@dataclass(frozen=True)
class Family:
    """Questions that differ only in the fact they ask for and in their wording.

    All tuples are ordered from common to rare.
    """

    share: int
    """How often the family is drawn, relative to the other families."""

    facts: tuple[Fact, ...]
    """What there is to know."""

    questions: tuple[str, ...]
    """Templates of the question; each must name a fact completely."""

    answers: tuple[str, ...]
    """Templates of the answer; one, unless the wording does not matter."""

    followups: tuple[str, ...] = ()
    """Templates that ask for another fact of the family just talked about; without one, nothing follows up."""

    def draw_fact(self, rng: random.Random) -> Fact:
        """A fact, the common ones more often."""
        return draw.common_first(rng, self.facts)

    def exchange(self, rng: random.Random) -> Exchange:
        """A question for any fact, and its answer."""
        return self.ask(rng, self.draw_fact(rng))

    def ask(self, rng: random.Random, fact: Fact) -> Exchange:
        """A question for `fact` that stands on its own, and its answer."""
        return self._filled(rng, self.questions, fact)

    def follow_up(self, rng: random.Random, fact: Fact) -> Exchange:
        """A question for `fact` that only makes sense after another one of this family, and its answer."""
        return self._filled(rng, self.followups, fact)

    def _filled(self, rng: random.Random, questions: tuple[str, ...], fact: Fact) -> Exchange:
        question = draw.common_first(rng, questions)
        return Exchange(question.format_map(fact), draw.common_first(rng, self.answers).format_map(fact))


def fact(**fields: str) -> Fact:
    """A fact with every field also under its capitalised name, for the start of a sentence.

    Example:
        >>> fact(thing="a lemon")
        {'thing': 'a lemon', 'Thing': 'A lemon'}
    """
    filled: Fact = {}
    for name, text in fields.items():
        filled[name] = text
        filled[name.capitalize()] = text[:1].upper() + text[1:]
    return filled


def bare(noun: str) -> str:
    """A noun without its article.

    Example:
        >>> bare("an owl")
        'owl'
    """
    return noun.split(" ", 1)[1]
