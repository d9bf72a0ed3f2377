"""Checkpoints written beside training: a step waits for a copy in memory, not for hashes and the disk.

One checkpoint is written at a time; the next one waits for it. So the newest checkpoint on disk may be one behind the
run until `wait` returns.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from tokenmill.model.device import is_out_of_memory
from tokenmill.model.gpt import GPT, copy_model
from tokenmill.training.checkpoint import CheckpointStore
from tokenmill.training.history import RunState
from tokenmill.training.mirror import Mirror


class AsyncCheckpointer:
    """Writes a run's checkpoints to its store, removes those no longer needed, and offers them to the mirror."""

    def __init__(self, store: CheckpointStore, *, keep: int, keep_steps: set[int], mirror: Mirror | None):
        """Keep the newest `keep` checkpoints, and those of `keep_steps`."""
        self._store, self._keep, self._keep_steps, self._mirror = store, keep, keep_steps, mirror
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._under_way: Future[None] | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """At the end of the block, whatever ended it, wait for the checkpoint that is being written."""
        self._thread.submit(int).result()  # the thread starts now, while there is memory for it
        try:
            yield
        finally:
            self._thread.shutdown()
        self.wait()

    def save(self, state: RunState, model: GPT, optimizer: dict[str, Tensor], horizon: dict[str, Any]) -> None:
        """Copy the run as it is now, once the checkpoint before is written, and start to write the copy.

        Where memory does not hold a copy, the checkpoint is written at once.
        """
        self.wait()
        try:
            copy, tensors = copy_model(model, _on_host), {name: _on_host(tensor) for name, tensor in optimizer.items()}
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._write(state, model, optimizer, horizon)
        else:
            moment = RunState.from_json(state.as_json())
            self._under_way = self._thread.submit(self._write, moment, copy, tensors, horizon)

    def wait(self) -> None:
        """Wait until the newest checkpoint is on disk.

        Raises:
            OSError: it could not be written.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def _write(self, state: RunState, model: GPT, optimizer: dict[str, Tensor], horizon: dict[str, Any]) -> None:
        self._store.save(state, model, optimizer, horizon)
        self._store.prune(upto=state.step, newest=self._keep, also=self._keep_steps)
        if self._mirror:
            self._mirror.offer(state.step)


def _on_host(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
