"""The micro-batch: how many of a step's sequences go through the model at a time.

Fewer sequences need less memory and give the same gradient to rounding. So if memory runs out, the
micro-batch is halved and the size that fits is kept beside the checkpoints. Training then takes
longer, but does not end. Each process of a group keeps its own size in a file of its own, because
memory may run out in several of them at once.
"""

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from typing import Any, Literal, NoReturn

import psutil
import torch
from pydantic import BaseModel, Field

from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.formats.records import read_record
from tokenmill.model.device import Compute, is_out_of_memory
from tokenmill.training.distributed import SINGLE, Group
from tokenmill.training.schedule import Workload
from tokenmill.training.size import USABLE_MEMORY, memory, sequences_within
from tokenmill.training.step import MicroBatch
from tokenmill.words.units import size

FREE_MEMORY_SHARE = 0.5
"""The share of free memory for what autograd keeps of a micro-batch. A process peaks at up to 1.7
times the estimate (docs/plan-against-reality.md), and other programs need the rest."""

WHOLE_GRADIENTS_SHARE = 0.75
"""The share of a device's memory that training may take with whole gradients of a sharded model.
The rest is for what the estimate leaves out, such as gathered weights. It is a share of all memory,
not of the free memory, because the same run must decide the same."""

MAX_SHRINK_ON_CPU = 8
"""The largest factor by which one process shrinks the micro-batch on a CPU. Memory that a CPU's
allocator gets back is fragmented, and a fresh process finds room for more sequences."""


class Remembered(BaseModel):
    """The contents of micro_batch-RANK.json."""

    sequences: int = Field(ge=1)
    under: dict[str, Any]
    """The circumstances in which the size was found: the size asked for, the device, and the
    processes."""


class FittingMicroBatch(MicroBatch):
    """The micro-batch of one configuration on one kind of device, which shrinks to what fits."""

    def __init__(
        self,
        folder: Path,
        wanted: Literal["auto"] | int,
        *,
        work: Workload,
        compute: Compute,
        group: Group = SINGLE,
        say: Callable[[str], None] = lambda _: None,
    ):
        """Start with the size that `folder` has from an earlier run with the same `wanted`, device
        and processes.

        Without such a size, start with that of `first_micro_batch`. All processes of a group take
        the smallest of their sizes.

        Args:
            say: gets a sentence when memory runs out.
        """
        self._file = folder / f"micro_batch-{group.rank}.json"
        self._work = work
        self._compute = compute
        self._group = group
        self._say = say
        self._under = {"micro_batch_size": wanted, "device": compute.name, "processes": group.size}
        fitting = first_micro_batch(wanted, work, compute, group=group)
        if self._file.exists():
            way_out = f"`rm {quote(str(self._file))}`: training finds the size again"
            kept = read_record(self._file, Remembered, way_out=way_out)
            fitting = kept.sequences if kept.under == self._under else fitting
        super().__init__(group.all_reduce_min(fitting))
        self._first = self.sequences

    def holds_whole_gradients(self) -> bool:
        """Whether all processes of a sharded model have room for the gradients of the whole model
        besides everything else."""
        compute = self._compute
        group = self._group
        if not group.shards:
            return False
        need = memory(
            self._work,
            sequences=self.sequences,
            precision=compute.precision,
            shards=group.size,
            on_cpu=compute.device.type == "cpu",
        )
        there = device_memory(compute.device)[1] / (
            1 if compute.device.type == "cuda" else group.on_this_machine
        )
        taken = need.total + (group.size - 1) * need.gradients  # `need` counts one of as many parts
        return bool(group.all_reduce_min(int(taken <= WHOLE_GRADIENTS_SHARE * there)))

    def shrink_after(self, error: Exception) -> None:
        """Halve the micro-batch after memory ran out in a step that can be done again, and say so.

        Raises:
            UserError: there is nothing left to halve in this process, or others are in the middle
                of the step.
            Exception: the error itself, if it is another one.
        """
        kind = self._compute.device.type
        # A step within a CUDA graph that is being recorded cannot be done again
        is_recording = kind == "cuda" and torch.cuda.is_current_stream_capturing()
        if not is_out_of_memory(error) or is_recording:
            raise error
        is_fragmented = kind == "cpu" and self._first >= MAX_SHRINK_ON_CPU * self.sequences
        if self.sequences == 1 or self._group.size > 1 or is_fragmented:
            self.give_up()
        self._halve()
        _release_freed_memory(self._compute.device)
        self._say(
            f"out of memory; doing the step again with a micro-batch of {self.sequences}, the "
            "same to rounding (remembered; another runtime.micro_batch_size starts afresh)"
        )

    @contextlib.contextmanager
    def remembered(self) -> Iterator[None]:
        """Within this block, memory that runs out ends the run with a UserError, and the next run
        starts with half the size."""
        try:
            yield
        except Exception as error:
            if is_out_of_memory(error):
                self.give_up()
            raise

    def give_up(self) -> NoReturn:
        """End training after memory ran out where this process cannot do the step again.

        Raises:
            UserError: always. Unless this process started with a single sequence, the half is
                remembered first.
        """
        if self._first == 1:
            raise UserError(_too_large(self._work, self._compute))
        self._halve()
        raise UserError(
            f"out of memory; remembered a micro-batch of {self.sequences}, with which `dvc repro` "
            "continues from the last checkpoint."
        )

    def _halve(self) -> None:
        self.sequences = max(1, self.sequences // 2)
        write_json(self._file, {"sequences": self.sequences, "under": self._under})


def _release_freed_memory(device: torch.device) -> None:
    """Give back what the allocator keeps for steps of the old size, and the fragments between."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "cpu":
        with contextlib.suppress(OSError, AttributeError):  # a C library other than glibc
            ctypes.CDLL(None).malloc_trim(0)


def device_memory(device: torch.device) -> tuple[int, int]:
    """Free and total bytes of a GPU, or of the host for any other device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)
    host = psutil.virtual_memory()
    return host.available, host.total


def first_micro_batch(
    wanted: Literal["auto"] | int,
    work: Workload,
    compute: Compute,
    *,
    group: Group = SINGLE,
) -> int:
    """The size of the micro-batch that `runtime.micro_batch_size` asks for, at most a process's
    part of a step. `auto` means its part of `train.batch_size`, or a half, a quarter, … of that, as
    memory should hold; at least 1.

    A GPU's whole memory counts, so that the same run decides the same there. It raises an error in
    time if the estimate was too low. On a CPU, a process whose memory runs out is killed more often
    than it gets an error, so there the free memory counts.
    """
    part = work.sequences_on(group.size)
    if wanted != "auto":
        return min(wanted, part)
    kind = compute.device.type
    need = functools.partial(
        memory,
        work,
        precision=torch.float32 if kind == "cpu" else compute.precision,
        shards=group.size if group.shards else 1,
        compiled=kind == "cuda",
        on_cpu=kind == "cpu",
    )
    free, total = device_memory(compute.device)
    room = USABLE_MEMORY * total
    if kind == "cpu":
        room = FREE_MEMORY_SHARE * free + need(sequences=1).fixed
    return max(1, sequences_within(min(work.train.batch_size, part), room, need))


def _too_large(work: Workload, compute: Compute) -> str:
    config = work.config
    need = memory(work, sequences=1, precision=torch.float32, on_cpu=compute.device.type == "cpu")
    return (
        f"out of memory on {compute.name} with one sequence at a time: weights, gradients and "
        f"optimizer need about {size(need.fixed)}, a sequence {size(need.of_sequences)}. Take a "
        f"smaller model.n_layer ({config.n_layer}), model.n_embd ({config.n_embd}) or "
        f"model.context_length ({config.context_length}), or a device with more memory."
    )
