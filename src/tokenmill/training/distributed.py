"""The processes that train one model together, or the one process that trains alone.

Each computes its share of a step's sequences. It holds the whole model (DDP; Li et al. 2020,
"PyTorch Distributed") or its shard of every parameter, gradient and optimizer state (FSDP; Zhao et
al. 2023), for models that do not fit one device. Gradients are averaged, so all processes make the
same update. Process 0 is the main one: it alone reads checkpoints, writes and prints. Checkpoints
hold full tensors in both cases.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeGuard, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tokenmill.core.errors import UserError, first_line
from tokenmill.model.device import Compute
from tokenmill.model.gpt import GPT, copy_model

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

CONTROL_TIMEOUT = timedelta(days=7)
"""How long the other processes wait for process 0, which may itself wait for another training to
end."""

STEP_TIMEOUT = timedelta(hours=1)
"""How long the other processes wait in a step for process 0, which may be writing to a slow disk.
NCCL's own limit is 10 minutes."""

LOST_CONTACT = re.compile(
    "Connection closed|Connection reset|Broken pipe|NCCL|Socket|Timed out|gloo"
)
"""Matches what PyTorch says, in a plain RuntimeError, when another process is gone."""

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """This process in a group of `size` processes. What it broadcasts goes through the host's
    memory."""

    rank: int = 0
    size: int = 1
    control: dist.ProcessGroup | None = None
    shards: bool = False
    """Whether the model is sharded over the processes (FSDP); otherwise each process holds it whole
    (DDP)."""
    on_this_machine: int = 1
    """The number of processes of the group on this machine, which share its memory."""

    @property
    def is_main(self) -> bool:
        """Whether this process reads, writes and prints for all."""
        return self.rank == 0

    def wrap(self, model: GPT, compute: Compute) -> nn.Module:
        """Wrap a model so that its backward pass averages gradients over all processes. All start
        with process 0's weights."""
        if self.size == 1:
            return model
        if self.shards:
            weights = self.broadcast_tensors(dict(model.named_parameters()))
            for name, parameter in model.named_parameters():
                parameter.data.copy_(weights[name])
            shard(model, compute)
            return model
        wrapped = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        # All processes have the same buffers. The argument has another name since torch 2.13
        wrapped.broadcast_buffers = False
        return wrapped

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a scalar over all processes, on its device and without waiting for it."""
        if self.size > 1:
            dist.all_reduce(value)
            value /= self.size
        return value

    def all_gather(self, part: Tensor, *, rows: int) -> Tensor:
        """Concatenate the parts of all processes along the first axis. A part has at most `rows`
        rows and is padded with zeros to this number."""
        if self.size == 1:
            return part
        filled = torch.nn.functional.pad(part, (0, 0) * (part.ndim - 1) + (0, rows - len(part)))
        whole = part.new_empty(self.size, rows, *part.shape[1:])
        # `all_gather_into_tensor` has another name since torch 2.13
        dist.all_gather(list(whole.unbind()), filled)
        return whole.flatten(0, 1)

    def part_of(self, index: np.ndarray) -> np.ndarray:
        """The sequences of `index` on which this process measures a loss: an equal part of them.
        With FSDP it is all of them, because processes must call a sharded model together."""
        return index if self.shards else np.array_split(index, self.size)[self.rank]

    def average(self, value: float, *, weight: int) -> float:
        """The mean over all processes of what each measured on its part, weighted by `weight`. With
        FSDP all measured the same, and process 0's value counts: other GPUs may round otherwise."""
        if self.size == 1 or self.shards:
            return self.broadcast(value)
        sums = torch.tensor([value * weight, weight], dtype=torch.float64)
        dist.all_reduce(sums, group=self.control)
        return (sums[0] / sums[1]).item()

    def all_reduce_min(self, value: int) -> int:
        """The smallest of all processes' values."""
        if self.size == 1:
            return value
        least = torch.tensor(value)
        dist.all_reduce(least, dist.ReduceOp.MIN, group=self.control)
        return int(least)

    def broadcast(self, value: T) -> T:
        """Process 0's value, in every process. The value must be plain data that can be pickled."""
        values = [value]
        if self.size > 1:
            dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def broadcast_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Process 0's tensors, in the host's memory of every process."""
        if self.size == 1:
            return tensors
        shapes = self.broadcast(
            {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        )
        shared = {}
        for name, (shape, dtype) in shapes.items():
            value = (
                tensors[name].detach().cpu().contiguous()
                if self.is_main
                else torch.empty(shape, dtype=dtype)
            )
            dist.broadcast(value, src=0, group=self.control)
            shared[name] = value
        return shared

    def end(self, sentence: str) -> NoReturn:
        """End the run in all processes. Process 0 must arrive here too, and has then saved the run.

        Raises:
            UserError: in process 0; the others exit without a message.
        """
        if self.size > 1:
            dist.barrier(group=self.control)
        if self.is_main:
            raise UserError(sentence)
        raise SystemExit(1)


SINGLE = Group()


def without_averaging(model: nn.Module, *, last: bool) -> AbstractContextManager[object]:
    """Within this block, gradients are only added up in this process. The step's `last` micro-batch
    averages their sums over all processes."""
    return contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync()  # type: ignore[operator]


def average_once_a_step(sharded: GPT) -> None:
    """Give a sharded model the `no_sync` of DDP. Within it each process keeps the gradients of the
    whole model, for which there must be room; otherwise every micro-batch averages its own."""
    sharded.no_sync = partial(_no_sync, sharded)  # type: ignore[assignment]


@contextlib.contextmanager
def _no_sync(sharded: "FSDPModule") -> Iterator[None]:
    sharded.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        sharded.set_requires_gradient_sync(True)


@contextlib.contextmanager
def process_group(device: torch.device, *, shards: bool) -> Iterator[Group]:
    """The group that torchrun's variables RANK, WORLD_SIZE, ... describe, or this process alone.

    Without RANK nobody started a group, whatever WORLD_SIZE says, as in the job of a cluster.

    Raises:
        UserError: the variables describe no group, or another process of it is gone.
    """
    if "RANK" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        yield SINGLE
        return
    try:
        yield _joined(device, shards=shards)
        dist.destroy_process_group()  # after an error it might wait for the others in vain
    except (RuntimeError, dist.DistError) as error:
        if not (isinstance(error, dist.DistError) or LOST_CONTACT.search(str(error))):
            raise
        why = first_line(error)[:200]
        raise UserError(
            f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} lost contact to another "
            f"one, whose own error says why ({why})."
        ) from None


def _joined(device: torch.device, *, shards: bool) -> Group:
    """The group, after all its processes have come."""
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if not 0 <= rank < size:
            raise ValueError(f"RANK is {rank} of {size}")
        mine = None
        if device.type == "cuda":
            mine = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(mine)
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if local == size and sys.platform == "linux":
            # All are on this machine, whose own name may be unknown
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("nccl" if mine else "gloo", timeout=STEP_TIMEOUT, device_id=mine)
    except (KeyError, ValueError) as error:
        raise UserError(
            f"RANK, WORLD_SIZE and the other variables of torchrun describe no group of processes "
            f"({first_line(error)}); start training with torchrun, or `unset RANK`."
        ) from None
    control = dist.new_group(backend="gloo", timeout=CONTROL_TIMEOUT)
    assert isinstance(control, dist.ProcessGroup)
    return Group(rank=rank, size=size, control=control, shards=shards, on_this_machine=local)


class FlagSync:
    """Two flags that all processes combine after every step: whether to stop, and whether to save.

    A flag that a process sets after one step counts for all of them after the next one. The flags
    are exchanged while that step is computed, so no process waits, and a signal to one of them
    stops all after the same step.
    """

    def __init__(self, group: Group):
        self._group = group
        self._under_way: tuple[Tensor, dist.Work] | None = None

    def all_reduce(self, *, stop: bool, save: bool) -> tuple[bool, bool]:
        """Whether to stop, which any process may ask for, and whether to save, which process 0
        decides."""
        if self._group.size == 1:
            return stop, save
        flags = self.wait()
        # What is saved now was still late when process 0 asked again
        asks = save and self._group.is_main and not flags[1]
        said = torch.tensor([stop, asks], dtype=torch.int32)
        work = dist.all_reduce(said, dist.ReduceOp.MAX, group=self._group.control, async_op=True)
        assert work
        self._under_way = said, work
        return flags

    def wait(self) -> tuple[bool, bool]:
        """Wait for the exchange that is under way and return its flags; both are false if there is
        none."""
        if self._under_way is None:
            return False, False
        said, work = self._under_way
        work.wait()
        self._under_way = None
        stop, save = said.tolist()
        return bool(stop), bool(save)


def shard(model: GPT, compute: Compute) -> None:
    """Shard a whole model in place over the devices of all processes. The model may be in the
    host's memory.

    The weights of blocks are gathered in the precision of the products, which would round all but
    those of norms anyway. Gradients are added up in float32.
    """
    # Importing these takes a second
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415

    mesh = init_device_mesh(compute.device.type, (dist.get_world_size(),))
    half = compute.precision if compute.precision != torch.float32 else None
    policy = MixedPrecisionPolicy(
        param_dtype=half, reduce_dtype=torch.float32 if half else None, cast_forward_inputs=False
    )
    for block in model.blocks:
        # As a whole, because gathering inside would break the graph of a compiled block
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh)


def full_tensor(tensor: Tensor) -> Tensor:
    """The full tensor of a sharded one, on the device of every process. Any other tensor is
    returned as it is."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def full_tensor_on_main(tensor: Tensor) -> Tensor:
    """The full tensor of a sharded one, in the host's memory of process 0. Any other tensor is
    returned as it is.

    All processes must call this in the same order; the others get an empty tensor.
    """
    if not is_sharded(tensor):
        return tensor
    full = full_tensor(tensor).detach()
    return full.cpu() if dist.get_rank() == 0 else torch.empty(0)


def whole_model(model: GPT) -> GPT:
    """The model to save: a sharded model's full copy in process 0, any other model itself."""
    reshard = getattr(model, "reshard", None)  # what FSDP adds
    if reshard is None:
        return model
    reshard()  # without a backward pass its outermost weights stay gathered
    return copy_model(model, full_tensor_on_main)


def shard_like(value: Tensor, other: Tensor) -> Tensor:
    """This process's shard of a full tensor, sharded as another one is."""
    if not is_sharded(other):
        return value
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415

    on_device = value.to(other.device_mesh.device_type)
    return distribute_tensor(on_device, other.device_mesh, other.placements)


def is_sharded(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether a tensor is sharded. A method tells it, because importing DTensor takes a second."""
    return hasattr(tensor, "full_tensor")
