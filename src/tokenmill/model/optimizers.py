"""The optimizers by name, and what their memory, their time and their learning rate follow from.

To add one, add its name and its facts here and its update to `training/optimizer.py`; nothing else asks for a name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

OptimizerName = Literal["adamw", "muon"]


@dataclass(frozen=True)
class OptimizerFacts:
    """What others than training need to know of an optimizer."""

    rate: float
    """A learning rate that was tuned,"""
    width: int
    """the width of the model that it was tuned for,"""
    power: float
    """and the power of the width by which it falls."""
    hidden_moments: int = 2
    """Numbers that it keeps for each number of a matrix inside the blocks; of all others it keeps two."""
    hidden_flops: Callable[[int, int], int] = lambda _short, _long: 0
    """Operations of the update of a matrix with these sides that are worth counting."""
    needs_whole_matrices: bool = False
    """Whether it cannot update a shard of a matrix (FSDP)."""


def _polar_express_flops(short: int, long: int) -> int:
    """Muon's four iterations, in bfloat16; in float32 a matrix of R x 4 R takes seven twelfths of that."""
    return 4 * (4 * short * short * long + 2 * short**3)


OPTIMIZERS: dict[OptimizerName, OptimizerFacts] = {
    "adamw": OptimizerFacts(rate=6e-4, width=768, power=1.0),
    "muon": OptimizerFacts(
        rate=4e-3,
        width=128,
        power=0.5,
        hidden_moments=1,
        hidden_flops=_polar_express_flops,
        needs_whole_matrices=True,
    ),
}
"""AdamW moves every number by about the learning rate, so a matrix by about rate x width in its spectral norm: the rate
falls with the width (Yang et al. 2022, Tensor Programs V, table 3), from GPT-3's 6e-4 at 768 (Brown et al. 2020, table
2.1). Muon's orthogonal update, scaled to AdamW's size, has the norm 0.2 x rate x sqrt(width): the rate falls with the
square root of the width (Yang, Simon and Bernstein 2023), from the value tuned for the default run.
"""
