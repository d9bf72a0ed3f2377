"""What all processes of a training do between two steps, decided together without any of them waiting."""

import torch
import torch.distributed as dist
from torch import Tensor

from tokenmill.training.group import Group


class Agreement:
    """What each says after one step holds for all of them after the next; alone, it holds at once.

    The answers travel while the step is computed. A signal that reaches one process stops all after the same step.
    """

    def __init__(self, group: Group):
        self._group = group
        self._under_way: tuple[Tensor, dist.Work] | None = None

    def reach(self, *, stop: bool, save: bool) -> tuple[bool, bool]:
        """Whether to stop, which anyone may ask for, and whether to save, which is up to the leader."""
        if self._group.size == 1:
            return stop, save
        answer = self.settle()
        said = torch.tensor([stop, save and self._group.leads], dtype=torch.int32)
        work = dist.all_reduce(said, dist.ReduceOp.MAX, group=self._group.control, async_op=True)
        assert work
        self._under_way = said, work
        return answer

    def settle(self) -> tuple[bool, bool]:
        """Wait for the answers that are under way."""
        if self._under_way is None:
            return False, False
        said, work = self._under_way
        work.wait()
        self._under_way = None
        stop, save = said.tolist()
        return bool(stop), bool(save)
