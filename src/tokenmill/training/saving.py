"""Checkpoints written beside the training: a step waits for a copy in memory, not for hashes and the disk.

One is written at a time; the next one waits for it. So the newest checkpoint on disk may be one behind until `wait`.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from tokenmill.model.build import GPT, copy_of
from tokenmill.training.history import RunState
from tokenmill.training.memory import is_out_of_memory
from tokenmill.training.mirror import Mirror
from tokenmill.training.store import Store


class Saver:
    """Writes the checkpoints of a run to its store, removes those no longer needed, and tells the mirror."""

    def __init__(self, store: Store, *, keep: int, also: Callable[[int], set[int]], mirror: Mirror | None):
        """Keep the newest `keep` checkpoints, and those of the steps that `also` names when a run has come to one."""
        self._store, self._keep, self._also, self._mirror = store, keep, also, mirror
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._under_way: Future[None] | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Wait at the end of the block for what is being written, whatever ended it."""
        self._thread.submit(int).result()  # the thread begins now, while there is memory for it
        try:
            yield
        finally:
            self._thread.shutdown()
        self.wait()

    def save(self, state: RunState, model: GPT, optimizer: dict[str, Tensor], horizon: dict[str, Any]) -> None:
        """Copy this moment, once the checkpoint before is written, and begin to write it.

        Where memory does not hold a copy, it is written at once.
        """
        self.wait()
        try:
            copy, tensors = copy_of(model, _in_memory), {name: _in_memory(one) for name, one in optimizer.items()}
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._write(state, model, optimizer, horizon)
        else:
            moment = RunState.from_json(state.as_json())
            self._under_way = self._thread.submit(self._write, moment, copy, tensors, horizon)

    def wait(self) -> None:
        """Until the newest checkpoint is on disk.

        Raises:
            OSError: it could not be written.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def give_up(self, steps: range) -> None:
        """Remove the checkpoints of `steps`, here and in the mirror, for the run goes on from before them."""
        self.wait()
        self._store.discard(steps)
        if self._mirror:
            self._mirror.give_up(steps)

    def _write(self, state: RunState, model: GPT, optimizer: dict[str, Tensor], horizon: dict[str, Any]) -> None:
        self._store.save(state, model, optimizer, horizon)
        self._store.prune(upto=state.step, newest=self._keep, also=self._also(state.step))
        if self._mirror:
            self._mirror.offer(state.step)


def _in_memory(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
