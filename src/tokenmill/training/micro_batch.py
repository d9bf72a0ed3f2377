"""How many windows go through the model at a time: as wished, as memory holds, and as it was found out before.

Whatever it is, a step sees the same windows and gives the same numbers to rounding.
"""

from typing import Literal, NoReturn

import torch

from tokenmill.errors import UserError
from tokenmill.model.config import ModelConfig
from tokenmill.training.device import Compute
from tokenmill.training.group import ALONE, Group
from tokenmill.training.memory import too_large, windows_that_fit
from tokenmill.training.store import Store


class StartAgain(Exception):  # noqa: N818 (not an error: the way out of one)
    """Memory stays taken; a fresh process with a smaller micro-batch goes on from the last checkpoint."""


class MicroBatch:
    """Windows at a time, for one configuration on one kind of device."""

    def __init__(
        self,
        store: Store,
        wish: Literal["auto"] | int,
        *,
        at_most: int,
        config: ModelConfig,
        compute: Compute,
        group: Group = ALONE,
    ):
        """Begin with what a run under the same `wish` and device ended with, if memory ran out in one.

        `at_most` is what `auto` stands for where memory is plenty. All processes of a group take the smallest that one
        of them can hold.
        """
        self._store, self._config, self._compute, self._group = store, config, compute, group
        self._under = {"micro_batch_size": wish, "device": compute.name, "processes": group.size}
        known = store.micro_batch(under=self._under)
        holds = known or (windows_that_fit(config, at_most, compute.device) if wish == "auto" else wish)
        self.windows = self._first = group.smallest(holds)

    def shrink(self) -> str:
        """Halve it, so that the step can be done again, in this process; give a sentence about it.

        Raises:
            StartAgain: there is nothing left to halve, or other processes are in the middle of the step.
            UserError: not even one window fits.
        """
        if self.windows == 1 or self._group.size > 1:
            self.start_again()
        self._halve()
        if self._compute.device.type == "cuda":
            torch.cuda.empty_cache()
        return (
            f"out of memory; doing the step again with a micro-batch of {self.windows}, the same to rounding "
            f"(remembered; another runtime.micro_batch_size starts afresh)"
        )

    def start_again(self) -> NoReturn:
        """Leave this process for a fresh one with half as many.

        Raises:
            StartAgain: always, unless
            UserError: this process began with a single window already.
        """
        if self._first == 1:
            raise UserError(too_large(self._config, self._compute.name))
        self._halve()
        raise StartAgain(
            f"out of memory; going on from the last checkpoint in a fresh process with a micro-batch of {self.windows}"
        )

    def _halve(self) -> None:
        self.windows = max(1, self.windows // 2)
        self._store.remember_micro_batch(self.windows, under=self._under)
