"""The fields of the page as numbers; what is wrong with one is a sentence with its name."""

import math
from typing import TypeAlias

from tokenmill.errors import UserError
from tokenmill.model.sampling import Sampling

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
