"""A model cut over the devices of a group: each holds its part of every matrix, of its gradient and of the optimizer.

FSDP2 (Zhao et al. 2023): a block's weights are gathered when it computes and dropped afterwards. For models whose 16
bytes a parameter do not fit one device. Checkpoints stay those of a whole model.

PyTorch's part for it takes a second to load, so only what is about to cut loads it; elsewhere a cut tensor is known by
what it can do.

The processes that train one model together, each on its share of every step's sequences; or the one that trains alone.

Each has the whole model (data parallel; Li et al. 2020, PyTorch Distributed), or its part of it (`sharding.py`).
Gradients are averaged, so all make the same update. Process 0 leads: it alone reads checkpoints, writes, and speaks.

What all processes of a training do between two steps, decided together without any of them waiting.
"""

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tokenmill.core.errors import UserError
from tokenmill.model.gpt import GPT, copy_model
from tokenmill.training.params import TrainParams

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def shard(model: GPT, device: torch.device) -> None:
    """Cut a whole model, which may lie in the host's memory, over the devices of all processes, in place."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def whole(tensor: Tensor) -> Tensor:
    """A tensor as it is where nothing was cut; a cut one put together in the leader's host memory, by all processes.

    The others get an empty one, and must call this in the same order.
    """
    if not _is_cut(tensor):
        return tensor
    full = gathered(tensor).detach()
    return full.cpu() if dist.get_rank() == 0 else torch.empty(0)


def gathered(tensor: Tensor) -> Tensor:
    """A tensor as it is where nothing was cut; a cut one put together in every process, on its device."""
    return tensor.full_tensor() if _is_cut(tensor) else tensor


def whole_model(model: GPT) -> GPT:
    """A model to be saved: itself, or where it was cut a copy that is whole in the leader."""
    reshard = getattr(model, "reshard", None)  # what FSDP adds
    if reshard is None:
        return model
    reshard()  # without a backward pass its outermost weights stay gathered
    return copy_model(model, whole)


def cut_like(value: Tensor, parameter: Tensor) -> Tensor:
    """This process's part of a whole tensor, cut as the parameter is that it belongs to."""
    if not _is_cut(parameter) or value.shape != parameter.shape:
        return value
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415

    on_device = value.to(parameter.device_mesh.device_type)
    return distribute_tensor(on_device, parameter.device_mesh, parameter.placements)


def _is_cut(tensor: Tensor) -> "TypeGuard[DTensor]":
    return hasattr(tensor, "full_tensor")


def refuse_shards(train: TrainParams) -> None:
    """Say what a model that is cut cannot have.

    Raises:
        UserError: an optimizer that needs whole matrices, or a loss scaler, which each process would set for itself.
    """
    if train.optimizer == "muon":
        raise UserError(
            "train.optimizer (muon) needs whole matrices, which runtime.parallel (fsdp) cuts; set train.optimizer to "
            "adamw, or runtime.parallel to ddp."
        )
    if train.precision == "float16":
        raise UserError(
            "train.precision (float16) does not go with runtime.parallel (fsdp); set it to bfloat16, or "
            "runtime.parallel to ddp."
        )


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
