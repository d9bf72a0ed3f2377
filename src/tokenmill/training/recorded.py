"""A whole optimizer step as one CUDA graph (`runtime.compile: reduce-overhead`).

The device repeats what it was given once, and the host launches one graph instead of hundreds of kernels, which take a
small model's step longer than the computing. What changes from step to step lies in tensors that the graph reads.
"""

from collections.abc import Callable

import numpy as np
import torch

from tokenmill.core.errors import UserError, first_line
from tokenmill.model.sequences import Index
from tokenmill.training.step import StepResult

WARM_UP_STEPS = 3
"""Ordinary steps before the recording: they compile, tune and reserve what must not happen within it."""


class RecordedStep:
    """Steps of one size, each a repetition of the one that was recorded."""

    def __init__(self, update: Callable[[Index], StepResult | None], *, sequences: int, device: torch.device):
        """`update` makes a step of so many `sequences` and depends on nothing else in the host's memory."""
        self._update, self._ordinary = update, WARM_UP_STEPS
        self._index = torch.zeros(sequences, dtype=torch.int64, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: StepResult | None = None

    def __call__(self, index: np.ndarray) -> StepResult | None:
        """Make the step on these sequences; None if memory ran out, and nothing has changed.

        Raises:
            UserError: it cannot be recorded.
        """
        self._index.copy_(torch.from_numpy(index).pin_memory(), non_blocking=True)
        if self._ordinary:
            self._ordinary -= 1
            return self._beside()
        if self._graph is None:
            self._record()
        if self._graph is None or self._result is None:
            return None
        self._graph.replay()
        return StepResult(self._result.loss.clone(), self._result.gradient_norm.clone())  # the next one overwrites it

    def _beside(self) -> StepResult | None:
        """Make an ordinary step on a stream of its own, as the recording will be."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self._update(self._index)
        torch.cuda.current_stream().wait_stream(stream)
        return result

    def _record(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._result = self._update(self._index)
        except RuntimeError as error:
            raise UserError(
                f"runtime.compile (reduce-overhead): this step cannot be recorded ({first_line(error)[:200]}); set it "
                "to on, and `dvc repro` continues from the last checkpoint."
            ) from None
        self._graph = graph
