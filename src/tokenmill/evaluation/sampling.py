"""How the tokens of a text are chosen; without PyTorch, for a page that comes before it."""

import math
from dataclasses import dataclass, fields

from pydantic import BaseModel

from tokenmill.core.errors import UserError

SEEDS = 2**32
"""Every seed is less than this."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen, and how many of them. The defaults choose the likeliest token each
    time."""

    max_new_tokens: int
    """The most tokens that are written. A text ends earlier at end-of-text, an answer with its
    turn."""
    temperature: float = 0.0
    """The number by which logits are divided: below 1 is more cautious, above 1 more daring. With 0
    the likeliest token is chosen."""
    top_k: int | None = None
    """The number of likeliest tokens from which each token is drawn; None means all."""
    top_p: float | None = None
    """The probability that the fewest likeliest tokens, from which each token is drawn, have
    together (nucleus sampling, Holtzman et al. 2020, section 3.1); None means all tokens."""
    repetition_penalty: float = 1.0
    """The number by which positive logits of tokens that the text already has are divided, and
    negative ones multiplied (Keskar et al. 2019, section 4.1); 1 changes nothing."""
    seed: int = 0
    """The seed of the random draws."""

    @classmethod
    def of(cls, section: BaseModel) -> "Sampling":
        """Take the values from a section of params.yaml. Other fields of the section are
        ignored."""
        return cls(**section.model_dump(include={field.name for field in fields(cls)}))

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, holds, rule in (
            ("max_new_tokens", self.max_new_tokens >= 1, "1 or more"),
            (
                "temperature",
                0 <= self.temperature < math.inf,
                "0 (the likeliest token each time) or more",
            ),
            ("top_k", self.top_k is None or self.top_k >= 1, "1 or more"),
            (
                "top_p",
                self.top_p is None or 0 < self.top_p <= 1,
                "above 0 and at most 1; leave it out to draw among all",
            ),
            (
                "repetition_penalty",
                0.1 <= self.repetition_penalty <= 10,
                "between 0.1 and 10; 1 is none, 1.2 is usual",
            ),
            ("seed", 0 <= self.seed < SEEDS, f"between 0 and {SEEDS - 1}"),
        ):
            if not holds:
                raise UserError(f"{name} ({getattr(self, name)}) must be {rule}.")
