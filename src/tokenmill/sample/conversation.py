"""One conversation: a question and its answer, or two or three of them in one of a few shapes.

Two thirds are a single question, most of them with a greeting, an occasion, an excuse or thanks around it. That
makes nearly all conversations different as text while their answers recur: what a model has to learn.
"""

import random

from tokenmill.sample import (
    arithmetic,
    dates,
    draw,
    explanations,
    geography,
    nature,
    people,
    poems,
    smalltalk,
    things,
    unknown,
    words,
)
from tokenmill.sample.family import Exchange, Family

Conversation = tuple[Exchange, ...]
"""What was said, in order; hashable, so that repeats are found."""

FAMILIES: tuple[Family, ...] = (
    *geography.FAMILIES,
    *nature.FAMILIES,
    *arithmetic.FAMILIES,
    *words.FAMILIES,
    *dates.FAMILIES,
    *things.FAMILIES,
    *people.FAMILIES,
    *explanations.FAMILIES,
    *poems.FAMILIES,
    *unknown.FAMILIES,
)
"""Everything that can be asked for; small talk stands apart."""

FACTUAL = tuple(family for family in FAMILIES if family.followups)
"""The families with short answers: only these are asked for twice in one conversation."""

POLITE = 40
"""How often something is said before, and how often after, the question of a single turn, in per cent."""


def _family(rng: random.Random, families: tuple[Family, ...]) -> Family:
    return draw.weighted(rng, families, tuple(family.share for family in families))


def _question(rng: random.Random, families: tuple[Family, ...]) -> Exchange:
    return _family(rng, families).exchange(rng)


def _single(rng: random.Random) -> Conversation:
    """One question with something said before it, after it, both or neither."""
    family = _family(rng, FAMILIES)
    exchange = family.exchange(rng)
    for_fact = bool(family.followups)
    before = draw.common_first(rng, smalltalk.GREETINGS + smalltalk.OCCASIONS * for_fact)
    after = draw.common_first(rng, smalltalk.THANKS + smalltalk.EXCUSES * for_fact)
    parts = (
        before if draw.below(rng, 100) < POLITE else "",
        exchange.question,
        after if draw.below(rng, 100) < POLITE else "",
    )
    return (exchange._replace(question=" ".join(part for part in parts if part)),)


def _followed_up(rng: random.Random) -> Conversation:
    """A question for a fact, and a short one for another fact of the same family."""
    family = _family(rng, FACTUAL)
    fact, other = family.draw_fact(rng), family.draw_fact(rng)
    while other is fact:
        other = family.draw_fact(rng)
    return (family.ask(rng, fact), family.follow_up(rng, other))


def _three_turns(rng: random.Random) -> Conversation:
    return (*_followed_up(rng), smalltalk.CLOSING.exchange(rng))


def _opened(rng: random.Random) -> Conversation:
    return (smalltalk.OPENING.exchange(rng), _question(rng, FAMILIES))


def _closed(rng: random.Random) -> Conversation:
    return (_question(rng, FAMILIES), smalltalk.CLOSING.exchange(rng))


def _two_subjects(rng: random.Random) -> Conversation:
    """Questions from two families."""
    family, other = _family(rng, FACTUAL), _family(rng, FACTUAL)
    while other is family:
        other = _family(rng, FACTUAL)
    return (family.exchange(rng), other.exchange(rng))


def _talk(rng: random.Random) -> Conversation:
    """Small talk; half of it begins with a greeting."""
    talk = _question(rng, smalltalk.FAMILIES)
    return (smalltalk.OPENING.exchange(rng), talk) if draw.below(rng, 2) else (talk,)


SHAPES = (
    (65, _single),
    (10, _followed_up),
    (8, _closed),
    (7, _opened),
    (4, _two_subjects),
    (4, _three_turns),
    (2, _talk),
)
"""How often a conversation has which shape, in per cent."""


def draw_conversation(rng: random.Random) -> Conversation:
    """One conversation of any shape; it may have been drawn before."""
    _, shape = draw.weighted(rng, SHAPES, tuple(share for share, _ in SHAPES))
    return shape(rng)
