"""The processes that train one model together, each on its share of every step's windows; or the one that trains alone.

Each has the whole model (data parallel; Li et al. 2020, PyTorch Distributed), or its part of it (`sharding.py`).
Gradients are averaged, so all make the same update. Process 0 leads: it alone reads checkpoints, writes, and speaks.
"""

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tokenmill.errors import UserError
from tokenmill.model.build import GPT
from tokenmill.training.sharding import shard

PATIENCE = timedelta(days=7)
"""So long the others wait for the leader, who may itself be waiting for another training to end."""

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """This process among `size`; what it says to the others goes through the memory of the host."""

    rank: int = 0
    size: int = 1
    control: dist.ProcessGroup | None = None
    shards: bool = False
    """Whether the model is cut over the processes (`sharding.py`), or whole in each."""

    @property
    def leads(self) -> bool:
        """Whether this process reads, writes and speaks for all."""
        return self.rank == 0

    def wrap(self, model: GPT, device: torch.device) -> nn.Module:
        """A model whose backward pass averages gradients over all processes; all begin with the leader's weights."""
        if self.size == 1:
            return model
        if self.shards:
            weights = self.share_tensors(dict(model.named_parameters()))
            for name, parameter in model.named_parameters():
                parameter.data.copy_(weights[name])
            shard(model, device)
            return model
        return nn.parallel.DistributedDataParallel(model, forward_sync_buffers=False, gradient_as_bucket_view=True)

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a scalar over all processes, on its device and without waiting for it."""
        if self.size > 1:
            dist.all_reduce(value)
            value /= self.size
        return value

    def smallest(self, value: int) -> int:
        """The smallest of what all processes say."""
        if self.size == 1:
            return value
        least = torch.tensor(value)
        dist.all_reduce(least, dist.ReduceOp.MIN, group=self.control)
        return int(least)

    def share(self, value: T) -> T:
        """The leader's value, which is plain data."""
        values = [value]
        if self.size > 1:
            dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def share_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The leader's tensors, on the host."""
        if self.size == 1:
            return tensors
        shapes = self.share({name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()})
        shared = {}
        for name, (shape, dtype) in shapes.items():
            value = tensors[name].detach().cpu().contiguous() if self.leads else torch.empty(shape, dtype=dtype)
            dist.broadcast(value, src=0, group=self.control)
            shared[name] = value
        return shared

    def end(self, sentence: str) -> NoReturn:
        """End the run in all processes, once the leader has come here too and so has saved what there is.

        Raises:
            UserError: in the leader; the others exit in silence.
        """
        if self.size > 1:
            dist.barrier(group=self.control)
        if self.leads:
            raise UserError(sentence)
        raise SystemExit(1)


ALONE = Group()


def without_averaging(model: nn.Module, *, last: bool) -> AbstractContextManager[object]:
    """Inside, gradients are only added up here; those of a step's `last` piece bring the others along."""
    return contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync()  # type: ignore[operator]


@contextlib.contextmanager
def joined(device: torch.device, *, shards: bool) -> Iterator[Group]:
    """The group that torchrun's variables RANK, WORLD_SIZE, … describe, or this process alone.

    Raises:
        UserError: another process is gone.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rank = int(os.environ["RANK"])
    try:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        control = dist.new_group(backend="gloo", timeout=PATIENCE)
        assert isinstance(control, dist.ProcessGroup)
        yield Group(rank=rank, size=size, control=control, shards=shards)
        dist.destroy_process_group()  # after an error it might wait for the others in vain
    except (RuntimeError, dist.DistError) as error:
        if not _is_lost_contact(error):
            raise
        raise UserError(
            f"process {rank} of {size} lost contact to another one, whose own error says why ({_first_line(error)})."
        ) from None


def _is_lost_contact(error: RuntimeError) -> bool:
    signs = ("Connection closed", "Connection reset", "Broken pipe", "NCCL", "Socket", "Timed out", "gloo")
    return isinstance(error, dist.DistError) or any(sign in str(error) for sign in signs)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:200]
