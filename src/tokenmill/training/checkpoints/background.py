"""Checkpoints written while training continues. A step waits only for a copy in the host's memory,
not for hashes and the disk.

On a GPU the step does not wait for the copy either; the next update does.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from tokenmill.model.device import is_out_of_memory
from tokenmill.model.gpt import GPT, copy_model
from tokenmill.training.checkpoints.store import CheckpointStore
from tokenmill.training.history import RunState
from tokenmill.training.params import CheckpointParams

COST_SHARE = 0.05
"""The largest share of the time that training stands still for checkpoints by the clock. A sharded
model of billions of parameters takes seconds to gather."""

FIRST_SECONDS = 10
"""A run that has no checkpoint yet waits no longer for its first one: most first runs are short."""


class AsyncCheckpointer:
    """Writes one checkpoint at a time, and removes those no longer needed.

    Until `wait` returns, the newest checkpoint on disk may be one behind the run.
    """

    def __init__(
        self,
        store: CheckpointStore,
        params: CheckpointParams,
        *,
        keep_steps: set[int],
        resumable: dict[str, Any],
        first_step: int | None = None,
        saved: Callable[[RunState], None] = lambda _: None,
        mirror: Callable[[int], None] | None = None,
    ):
        """Keep the newest checkpoints and those of `keep_steps`. Tell `saved` the state of
        each new one before an older one is removed, and then `mirror` its step. Each holds
        `resumable`, the parameters that may change when the run continues.

        `first_step` is where a run without a checkpoint has its first one by time, if it gets there
        within FIRST_SECONDS; None for a run that continues.
        """
        self._store = store
        self._params = params
        self._keep_steps = keep_steps
        self._resumable = resumable
        self._first_step = first_step
        self._saved = saved
        self._mirror = mirror
        self._saved_at = time.monotonic()
        self._cost = 0.0
        self._copies = HostCopies()
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._under_way: Future[None] | None = None

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """When the block ends, also by an error, wait for the checkpoint that is being written."""
        self._thread.submit(int).result()  # the thread starts now, while there is memory for it
        try:
            yield
        finally:
            self._thread.shutdown()
        self.wait()

    def is_late(self, step: int) -> bool:
        """Whether a checkpoint is due by time after `step`: `every_seconds` have passed since the
        last one or since the start, or more where the last one cost more than COST_SHARE of them;
        or it is time for the run's first one."""
        every = self._params.every_seconds
        if every is None:
            return False
        passed = time.monotonic() - self._saved_at
        is_first_due = self._first_step is not None and (
            passed >= FIRST_SECONDS or step >= self._first_step
        )
        return is_first_due or passed >= max(every, self._cost / COST_SHARE)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """The seconds of this block are what a checkpoint costs."""
        began = time.monotonic()
        yield
        self._cost = time.monotonic() - began

    def save(
        self, state: RunState, model: GPT, optimizer: dict[str, Tensor], *, owned: bool = False
    ) -> torch.Event | None:
        """Copy the run as it is now, and write the copy in the background. The checkpoint before is
        finished first.

        If memory does not hold a copy, the checkpoint is written at once.

        Args:
            state: the state of the run.
            model: the weights.
            optimizer: the optimizer's state.
            owned: whether the tensors are copies already, which nothing changes.

        Returns:
            On a GPU, the event that the next update must wait for, because the copy still reads the
                weights.
        """
        self.wait()
        self._saved_at = time.monotonic()
        self._first_step = None
        try:
            copy = model if owned else copy_model(model, self._copies.copy)
            tensors = optimizer
            if not owned:
                tensors = {name: self._copies.copy(value) for name, value in optimizer.items()}
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._copies = HostCopies()
            self._write(state, model, optimizer)
            return None
        moment = state.copied()
        copied = self._copies.all_made()
        self._under_way = self._thread.submit(self._write, moment, copy, tensors, copied)
        return copied

    def wait(self) -> None:
        """Wait until the newest checkpoint is on disk.

        Raises:
            OSError: it could not be written.
        """
        under_way = self._under_way
        self._under_way = None
        if under_way is not None:
            under_way.result()

    def _write(
        self,
        state: RunState,
        model: GPT,
        optimizer: dict[str, Tensor],
        copied: torch.Event | None = None,
    ) -> None:
        if copied:
            copied.synchronize()
        self._store.save(state, model, optimizer, self._resumable)
        self._saved(state)
        self._store.prune(state, newest=self._params.keep, also=self._keep_steps)
        if self._mirror:
            self._mirror(state.step)


class HostCopies:
    """Copies of tensors in the host's memory.

    A GPU copies to pinned memory, on a stream of its own, while it computes the next gradient.
    Pinned memory takes long to get, so what was pinned for a tensor is kept for its next copy.
    """

    def __init__(self) -> None:
        self._pinned: dict[Tensor, Tensor] = {}
        self._stream: torch.cuda.Stream | None = None

    def copy(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor. If the tensor is on a GPU, the copy may be read only after the event
        of `all_made`."""
        value = tensor.detach()
        if value.device.type != "cuda":
            return value.to("cpu", copy=True)
        if tensor not in self._pinned:
            self._pinned[tensor] = torch.empty_like(value, device="cpu", pin_memory=True)
        self._stream = self._stream or torch.cuda.Stream(tensor.device)
        self._stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(self._stream):
            return self._pinned[tensor].copy_(value, non_blocking=True)

    def all_made(self) -> torch.Event | None:
        """The event that happens when a GPU has made all copies so far; None if there is none to
        wait for."""
        return self._stream.record_event() if self._stream else None
