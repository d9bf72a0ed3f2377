"""How large a model suits a text: rules of published scaling laws."""

from typing import Literal

ENOUGH = 20.0
"""Tokens per parameter at which a given computation gives the lowest loss (Hoffmann et al. 2022, table 3)."""

REPEATS = 4
"""Epochs over the same text that are about as good as new text (Muennighoff et al. 2023, section 5)."""

Balance = Literal["too little text", "short training", "balanced", "long training"]
"""How the tokens suit the model. After long training a small model may still be worth its low cost of use."""


def balance(*, parameters: int, tokens: int, epochs: int) -> Balance:
    """How `tokens` of text, seen `epochs` times, suit a model of so many parameters."""
    seen = tokens * epochs / parameters
    if tokens * min(epochs, REPEATS) / parameters < ENOUGH / 4:
        return "too little text"
    if seen < ENOUGH / 2:
        return "short training"
    return "balanced" if seen <= 4 * ENOUGH else "long training"


def suitable_parameters(*, tokens: int, epochs: int) -> float:
    """The parameters of a model for which so much text is enough."""
    return tokens * min(epochs, REPEATS) / ENOUGH
