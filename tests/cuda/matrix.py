"""One training step, a validation, and a checkpoint there and back, on a fake CUDA device, for
every combination.

    python -m tests.cuda.matrix FOLDER

prints one JSON object for each: the combination, and the copies for which its step waits; or else
the error. The last one is a step of which this is known.
"""

# Imports follow statements here, for the device must be there before torch is imported.

import sys
from pathlib import Path

from tests.cuda import fake

if __name__ == "__main__":
    fake.load(Path(sys.argv[1]))

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.training.tiny import (
    CONTEXT,
    VOCABULARY,
    model_config,
    runtime_params,
    train_params,
)
from tokenmill.model.device import Compute
from tokenmill.model.gpt import GPT, empty_model
from tokenmill.model.sequences import Sequences, mean_loss
from tokenmill.training.checkpoints.background import AsyncCheckpointer
from tokenmill.training.history import RunState
from tokenmill.training.optimizer import Optimizer
from tokenmill.training.step import Batch, MicroBatch, train_step

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten

KERNELS = torch.library.Library("aten", "IMPL")
# Fake tensors know it only with a number
KERNELS.impl("_fused_adamw_.tensor_lr", lambda *_, **__: None, "Meta")

COMBINATIONS = [
    " ".join(choice)
    for choice in itertools.product(
        ("gpt2", "modern"),
        ("adamw", "muon"),
        ("float32", "bfloat16", "float16"),
    )
]
"""Architecture, optimizer, precision."""
PLACES = ("device", "memory")
"""Of the tokens."""


def memory_of(tensor: Tensor) -> int:
    """A number that a tensor has in common with its views, however often they are wrapped."""
    return tensor.untyped_storage()._cdata


class Waits(TorchDispatchMode):
    """Collects the operations for which the host would wait for the device.

    A fake tensor has no value to be read: `.item()` and its like raise an error by themselves.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.copies = 0
        """Between host and device, also those for which nobody waits."""
        self._pinned: dict[int, Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is aten._pin_memory.default:  # which fake tensors do not know
            copy = args[0].clone()
            self._pinned[memory_of(copy)] = copy
            return copy
        if func is aten.is_pinned.default:
            return memory_of(args[0]) in self._pinned
        result = func(*args, **kwargs)
        if func is aten.empty_like.default and kwargs.get("pin_memory"):
            self._pinned[memory_of(result)] = result
        if func is aten._to_copy.default:
            self._note_copy(args[0], result, kwargs.get("non_blocking", False))
        elif func is aten.copy_.default:
            self._note_copy(args[1], args[0], kwargs.get("non_blocking", len(args) > 2 and args[2]))
        return result

    def _note_copy(self, source: Tensor, target: Tensor, non_blocking: bool) -> None:
        if source.device.type == target.device.type:
            return
        self.copies += 1
        host = source if source.device.type == "cpu" else target
        if not non_blocking or memory_of(host) not in self._pinned:
            self.found.append(
                f"copy {source.device.type} -> {target.device.type}, {tuple(source.shape)}"
            )


@contextlib.contextmanager
def fake_device() -> Iterator[Waits]:
    """Inside, tensors are fake and may be on CUDA; what waits for it is collected."""
    waits = Waits()
    with (
        mock.patch("torch.cuda.amp.common.amp_definitely_not_available", return_value=False),
        mock.patch("torch.cuda.is_bf16_supported", return_value=True),
        mock.patch("tokenmill.training.optimizer.multiplies_bfloat16", return_value=True),
        FakeTensorMode(allow_non_fake_inputs=True),
        waits,
    ):
        yield waits


def trace(architecture: str, optimizer: str, precision: str) -> dict[str, dict[str, Any]]:
    """Run one combination with the tokens on the device, and a step and a validation with the
    tokens in memory, too; say for which copies a step waits."""
    compute = Compute(CUDA, getattr(torch, precision))
    with fake_device() as waits:
        model = empty_model(model_config(architecture=architecture, n_layer=1), "cuda")
        model.compute_buffers()
        there, here = (some_sequences(place) for place in PLACES)
        optim = Optimizer(model, train_params(optimizer=optimizer), compute)
        waits.found.clear()
        step(model, optim, here, compute)
        found_here = list(waits.found)
        waits.found.clear()
        step(model, optim, there, compute)
        with reading(), streams() as said:
            saved = save(model, optim, said)
            found_there = list(waits.found)
            step(model, optim, there, compute)
            assert said == ["copied", "written"] * 2 + ["update waited"], said
            for sequences in (there, here):
                mean_loss(model, sequences, np.arange(3), micro_batch=2, compute=compute)
            again = Optimizer(model, train_params(optimizer=optimizer), compute)
            again.load(saved)
        moments = [value for value in again.state().values() if value.ndim]
        assert moments
        check_devices(moments, "cuda")
        step(model, again, there, compute)
        if precision != "float16":
            check_repeated(model, optimizer, there, compute, waits)
    found = (found_there, found_here)
    return {place: {"waits": each} for place, each in zip(PLACES, found, strict=True)}


def check_repeated(
    model: GPT, optimizer: str, sequences: Sequences, compute: Compute, waits: Waits
) -> None:
    """A step that a graph records copies nothing."""
    repeated = Optimizer(model, train_params(optimizer=optimizer), compute, repeats=True)
    repeated.set_rates(0.01)
    batch = Batch(torch.zeros(5, dtype=torch.int64, device=CUDA))
    before = waits.copies
    train_step(model, repeated, sequences, batch, micro_batch=MicroBatch(3), compute=compute)
    assert waits.copies == before, "a graph would repeat what the host said when it was recorded"


def save(model: GPT, optimizer: Optimizer, said: list[str]) -> dict[str, Tensor]:
    """Make two checkpoints; return the second one's copy of the optimizer's state."""
    store = mock.Mock()
    state = RunState(step=1)
    store.save.side_effect = lambda *_: said.append("written")
    saver = AsyncCheckpointer(store, runtime_params().checkpoint, keep_steps=set(), resumable={})
    with saver.active():
        for _ in range(2):
            optimizer.update_after(saver.save(state, model, optimizer.state()))
    first, second = (call.args for call in store.save.call_args_list)
    for _, weights, moments, _ in (first, second):
        check_devices([*weights.parameters(), *moments.values()], "cpu")
    kept = [name for name, tensor in first[2].items() if tensor is second[2][name]]
    assert kept == [name for name in second[2] if not name.startswith("/")], "pinned memory is kept"
    return second[2]


@contextlib.contextmanager
def streams() -> Iterator[list[str]]:
    """Inside, a second stream can be used; who waits for its copies is collected."""
    said: list[str] = []
    copied = mock.Mock(synchronize=lambda: said.append("copied"))
    side = mock.Mock()
    main = mock.Mock(wait_event=lambda _: said.append("update waited"))
    side.record_event.return_value = copied
    with (
        mock.patch("torch.cuda.Stream", return_value=side),
        mock.patch("torch.cuda.stream", return_value=contextlib.nullcontext()),
        mock.patch("torch.cuda.current_stream", return_value=main),
    ):
        yield said


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Inside, values of fake tensors may be read; they are ones."""
    with (
        mock.patch.object(Tensor, "numpy", lambda tensor: np.ones(tensor.shape)),
        mock.patch.object(Tensor, "item", lambda tensor: 1.0 if tensor.is_floating_point() else 1),
    ):
        yield


def step(model: GPT, optimizer: Optimizer, sequences: Sequences, compute: Compute) -> None:
    """An update on five sequences, three at a time."""
    optimizer.set_rates(0.01)
    index = np.array([4, 0, 2, 3, 1])
    result = train_step(
        model, optimizer, sequences, Batch(index), micro_batch=MicroBatch(3), compute=compute
    )
    check_devices([result.loss, result.gradient_norm, *model.parameters()], "cuda")


def some_sequences(place: str) -> Sequences:
    tokens = torch.zeros(
        5 * CONTEXT + 1, dtype=torch.int32, device=CUDA if place == "device" else "cpu"
    )
    return Sequences((tokens % VOCABULARY).unfold(0, CONTEXT + 1, CONTEXT), device=CUDA)


def check_devices(tensors: Any, kind: str) -> None:
    """All of them are on this kind of device."""
    found = {tensor.device.type for tensor in tensors}
    assert found == {kind}, f"expected {kind}, found {found}"


def control() -> dict[str, Any]:
    """A copy from pageable memory, one to the host, one that does not wait, and the value of a
    number."""
    with fake_device() as waits:
        there = torch.ones(3).to(CUDA, non_blocking=True)
        there.cpu()
        torch.ones(4).pin_memory().to(CUDA, non_blocking=True)
        try:
            there.sum().item()
        except DataDependentOutputException:
            waits.found.append("value")
    return {"waits": waits.found}


def main() -> None:
    """Trace all combinations; print a line for each."""
    for combination in COMBINATIONS:
        try:
            row: dict[str, Any] = trace(*combination.split())
        except Exception as error:  # one combination fails alone
            row = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({"combination": combination} | row), flush=True)
    print(json.dumps({"combination": "control"} | control()), flush=True)


if __name__ == "__main__":
    main()
