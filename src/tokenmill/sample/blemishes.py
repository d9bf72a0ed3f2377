"""Dirt, on purpose: a few conversations look the way real text does, so that the cleaning stage has work.

Only what the user wrote is spoiled, never an answer: double spaces, an emoji, typographic quotes, Windows line
ends, stray tabs, an invisible character. One kind has no messages at all. Deliberate repeats are the generator's.
"""

import random

from tokenmill.sample import draw
from tokenmill.sample.conversation import Conversation

_SPOILED = (
    lambda text: text.replace(" ", "  "),
    lambda text: f"{text} 🙂",
    lambda text: f"“{text}”",
    lambda text: f"{text}\r\n",
    lambda text: f"\t{text}\t",
    lambda text: f"\u200b{text}",
)


def spoil(rng: random.Random, conversation: Conversation) -> Conversation:
    """The conversation with one kind of dirt in its first question, or one time in seven nothing at all."""
    kind = draw.below(rng, len(_SPOILED) + 1)
    if kind == len(_SPOILED):
        return ()
    first, *rest = conversation
    return (first._replace(question=_SPOILED[kind](first.question)), *rest)
