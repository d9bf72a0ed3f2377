"""Decide and apply `runtime.compile`: `torch.compile`, and a whole step recorded as one CUDA graph.

Whether compiling pays for itself is decided by a rule, from the run's parameters alone. A clock
must not decide: compiled steps round differently, and times differ from one start to the next, so a
run that continues, or is repeated, would not give the same bytes on a CPU. docs/decisions.md has
the figures behind the rule.
"""

import functools
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from tokenmill.core.errors import UserError, first_line
from tokenmill.model.device import Compute, is_out_of_memory
from tokenmill.model.gpt import GPT
from tokenmill.training.params import CompileChoice
from tokenmill.training.schedule import Workload
from tokenmill.training.size import flops_per_token, step_flops
from tokenmill.training.step import Batch, StepResult, seed_dropout

PYTHON_HEADER = Path(sysconfig.get_paths()["include"]) / "Python.h"

CPU_TFLOP = 100
"""A CPU compiles if an epoch has at least this many operations in units of 1e12: about half an hour
on two cores. Compiling takes half a minute to two minutes and makes steps 8 to 27 % shorter. The
epoch counts, not the run, so that more epochs keep the same bits."""

GPU_TFLOP = 4000
"""A GPU compiles if the run has at least this many operations in units of 1e12. Compiling takes
about half a minute."""

GPU_STEPS = 20_000
"""A GPU also compiles if the run has at least this many steps."""

RECORDED_TFLOP = 2
"""A GPU records steps of at most this many operations in units of 1e12."""

ON_LISTS = {"loop_ordering_after_fusion": False}
"""Workaround: this pass crashes Inductor of torch 2.11 on operations over lists of tensors
(`torch._foreach_*`). Switching it off changes no kernel."""

MAX_SHAPES = 64
"""The number of input shapes for which a run may compile. With more than PyTorch's own limit of 8,
PyTorch would stop compiling."""

WARM_UP_STEPS = 3
"""Ordinary steps before the recording. They compile, tune and allocate, none of which may happen
while a CUDA graph is recorded."""

STEPS_TO_RECORD = WARM_UP_STEPS + 1
"""The number of steps after which a recording is only replayed."""

Model = TypeVar("Model", bound=nn.Module)
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Compilation:
    """Whether a run's model is compiled."""

    on: bool
    why: str
    recorded: bool = False
    """Whether each whole step is also recorded as a CUDA graph."""

    def __str__(self) -> str:
        """The choice and its reason, as training prints them."""
        recorded = ", recorded" if self.recorded else ""
        return f"{'on' if self.on else 'off'}{recorded}: {self.why}"

    def of(self, model: Model) -> Model:
        """The model, compiled if the choice is `on`.

        Each input shape gets its own code (the last step of an epoch is shorter). Otherwise PyTorch
        would generate code for any shape after it has seen two, and the rounding of a step would
        depend on the shapes before it. On a CPU the embeddings are not compiled: PyTorch sums their
        gradient in a fixed order, but threads of compiled code do not, and no two runs would give
        the same bytes.
        """
        if not self.on:
            return model
        _allow_shapes()
        if next(model.parameters()).device.type != "cpu":
            return torch.compile(model, dynamic=False)  # type: ignore[return-value]
        gpt = next(part for part in model.modules() if hasattr(part, "forward_embedded"))
        gpt.forward_embedded = torch.compile(gpt.forward_embedded, dynamic=False, options=_on_cpu())  # type: ignore[call-overload]
        return model

    def of_blocks(self, model: GPT) -> None:
        """Compile each block of a model in place if the choice is `on`; the model is sharded then.

        Gathering the weights of a block would break a graph of the whole model. A graph of one
        block serves all of them. The rest of the model is not compiled.
        """
        if not self.on:
            return
        _allow_shapes()
        is_on_cpu = next(model.parameters()).device.type == "cpu"
        for block in model.blocks:
            block.compile(fullgraph=True, dynamic=False, options=_on_cpu() if is_on_cpu else None)

    def for_update(self, device: torch.device) -> Compiler | None:
        """The function that compiles parts of an optimizer's update, for fewer passes over a GPU's
        memory.

        None on a CPU, where matrix products take nearly all of an update's time, or if the choice
        is not `on`.
        """
        if not self.on or device.type != "cuda":
            return None
        return functools.partial(torch.compile, dynamic=False, options=ON_LISTS)  # type: ignore[call-overload]


def _on_cpu() -> dict[str, Any]:
    """The options of Inductor, PyTorch's compiler, for this processor.

    Calling kernels from C++ instead of Python makes a small model's step 3 to 4 % shorter, and
    compiling no longer. The width of a vector in bits is the one that Inductor would choose;
    stated, it becomes a part of the name under which Inductor (2.11 to 2.13) keeps compiled code.
    Without it, code that was made for another processor in the same folder writes behind the end of
    its results.
    """
    from torch._inductor.cpu_vec_isa import pick_vec_isa  # noqa: PLC0415 (two seconds)

    return {"cpp_wrapper": True, "cpp.simdlen": pick_vec_isa().bit_width()}


def _allow_shapes() -> None:
    # Importing this takes two seconds
    from torch._dynamo import config  # noqa: PLC0415

    config.recompile_limit = MAX_SHAPES  # torch.compile has no argument for it before 2.13


def choose_compilation(
    wanted: CompileChoice,
    compute: Compute,
    work: Workload,
    *,
    place: str = "device",
    processes: int = 1,
) -> Compilation:
    """Decide what `runtime.compile` means for this work on this device.

    In chats another number of targets counts in each step. A CPU leaves the others out, so that
    code would be compiled for every number. A GPU computes all of them, but the host weighs each
    batch, which a recording cannot hold.

    Args:
        place: where the tokens are.
        processes: the number of processes that train together.

    Raises:
        UserError: the value is not `auto`, and a compiler, a header, the right kind of device or
            what recording needs is missing.
    """
    device = compute.device
    if work.whole_texts and device.type != "cuda":
        return Compilation(False, "a step of chats has no fixed shape here")
    if work.whole_texts and wanted == "reduce-overhead":
        wanted = "on"
    hindrances = _recording_hindrances(compute, place, processes)
    missing = missing_compiler(device) if wanted != "off" else None
    recorded = wanted == "reduce-overhead"
    if recorded and device.type != "cuda":
        raise UserError(
            "runtime.compile (reduce-overhead) is for CUDA GPUs, and this run is on "
            f"{device.type}; set it to auto."
        )
    if recorded and hindrances:
        raise UserError(
            f"runtime.compile (reduce-overhead) needs {hindrances[0]}, or runtime.compile to on."
        )
    if wanted != "auto" and missing:
        raise UserError(
            f"runtime.compile ({wanted}) needs {missing}; mend that, or set it to auto."
        )
    if wanted != "auto":
        return Compilation(wanted != "off", "runtime.compile says so", recorded=recorded)
    if device.type == "cuda":
        return _on_gpu(work, missing, may_record=not hindrances)
    if device.type != "cpu":
        return Compilation(False, "not tried on this kind of device")
    if missing:
        return Compilation(False, f"it needs {missing}")
    teraflop = work.tokens_per_epoch * flops_per_token(work.config) / 1e12
    return Compilation(
        teraflop >= CPU_TFLOP,
        f"an epoch takes {_shown(teraflop)}, and compiling for a CPU pays from {CPU_TFLOP} on",
    )


def _shown(teraflop: float) -> str:
    return f"{teraflop:,.0f} TFLOP" if teraflop >= 100 else f"{teraflop:.2g} TFLOP"


def waits_for_host(work: Workload) -> bool:
    """Whether a GPU computes a step of this work faster than a host launches its operations."""
    return step_flops(work) <= RECORDED_TFLOP * 1e12


def _on_gpu(work: Workload, missing: str | None, *, may_record: bool) -> Compilation:
    """What `auto` means on a GPU."""
    recorded = may_record and waits_for_host(work)
    if missing:
        return Compilation(False, f"it needs {missing}", recorded=recorded)
    whole = work.full_steps * step_flops(work) / 1e12
    return Compilation(
        whole >= GPU_TFLOP or work.steps >= GPU_STEPS,
        f"the run takes {_shown(whole)} in {work.steps:,} steps, and compiling for a GPU pays "
        f"from {GPU_TFLOP:,} TFLOP or {GPU_STEPS:,} steps on",
        recorded=recorded,
    )


def _recording_hindrances(compute: Compute, place: str, processes: int) -> list[str]:
    """Why a run cannot record its steps, as what it needs and what to set."""
    reasons = {
        "one process only: set runtime.processes to 1": processes > 1,
        "tokens on the GPU: set runtime.token_placement to device": place != "device",
        "no loss scaler, which float16 needs: set train.precision to bfloat16": compute.precision
        == torch.float16,
    }
    return [reason for reason, applies in reasons.items() if applies]


def missing_compiler(device: torch.device) -> str | None:
    """What `torch.compile` needs for this device and does not find, as a part of a sentence; None
    if nothing is missing."""
    if program := _missing_program(device):
        return f"a {program}, which is not there"
    if not PYTHON_HEADER.exists():
        return f"Python's headers ({PYTHON_HEADER}), which are not there"
    # For a CPU, Inductor (2.13) writes these paths into a command without quotes
    places = (torch.__file__, tempfile.gettempdir(), os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""))
    spaced = [place for place in places if device.type == "cpu" and re.search(r"\s", place)]
    return f"a path without spaces, unlike {spaced[0]}" if spaced else None


def _missing_program(device: torch.device) -> str | None:
    """The compiler that PyTorch calls and that is not there; None if it is.

    For a CPU, Inductor calls what CXX names, or else g++, on macOS clang++. For a GPU, Triton calls
    what CC names, or else gcc or clang. Neither looks for another if that one is missing.
    """
    if device.type == "cpu":
        language, variable = "C++", "CXX"
        usual = ["clang++"] if sys.platform == "darwin" else ["g++"]
    else:
        language, variable, usual = "C", "CC", ["gcc", "clang"]
    own = os.environ.get(variable)
    if any(shutil.which(name) for name in (usual if own is None else [own])):
        return None
    return f"{language} compiler ({usual[0] if own is None else f'{variable}: {own}'})"


class RecordedStep:
    """Steps of one size, replayed from a CUDA graph that is recorded once (`reduce-overhead`).

    The host launches one graph instead of hundreds of kernels; for a small model these launches
    take longer than the computation. What changes from step to step is in tensors that the graph
    reads.
    """

    def __init__(
        self,
        step_on: Callable[[Batch], StepResult],
        *,
        sequences: int,
        device: torch.device,
        before: Callable[[], None] = lambda: None,
        before_recording: Callable[[], None] = lambda: None,
    ):
        """Prepare steps of so many `sequences`; a batch of another size gets an ordinary step.

        Args:
            step_on: makes a step. In the host's memory it depends on nothing but the batch.
            before: what the host does before each replay, because a graph cannot hold it.
            before_recording: waits for what other threads do with the GPU.
        """
        self._step_on = step_on
        self._before = before
        self._before_recording = before_recording
        self._ordinary = WARM_UP_STEPS
        self._index = torch.zeros(sequences, dtype=torch.int64, device=device)
        self._stream: torch.cuda.Stream | None = None
        self._recording: tuple[torch.cuda.CUDAGraph, StepResult] | None = None

    def __call__(self, batch: Batch) -> StepResult:
        """Make the step on these sequences."""
        if len(batch.index) != len(self._index):
            return self._step_on(batch)
        self._before()
        if batch.dropout_seed is not None:
            seed_dropout(*batch.dropout_seed, device=self._index.device)
        self._index.copy_(torch.from_numpy(batch.index).pin_memory(), non_blocking=True)
        if self._ordinary:
            self._ordinary -= 1
            return self._beside()
        graph, result = self._recording = self._recording or self._record()
        graph.replay()
        # The next replay overwrites the result
        return StepResult(result.loss.clone(), result.gradient_norm.clone())

    def _beside(self) -> StepResult:
        """Make an ordinary step on the stream on which the recording follows, whose memory the
        allocator keeps apart."""
        stream = self._stream = self._stream or torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self._step_on(Batch(self._index))
        torch.cuda.current_stream().wait_stream(stream)
        return result

    def _record(self) -> tuple[torch.cuda.CUDAGraph, StepResult]:
        """Record a step. Return the graph, and where each of its replays leaves the result."""
        graph = torch.cuda.CUDAGraph()
        self._before_recording()
        try:
            # The thread that writes checkpoints may use the GPU meanwhile
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                return graph, self._step_on(Batch(self._index))
        except RuntimeError as error:
            if is_out_of_memory(error):  # no other way of compiling would give more
                raise
            raise UserError(
                "runtime.compile (reduce-overhead): this step cannot be recorded "
                f"({first_line(error)[:200]}); set it to on, and `dvc repro` continues from the "
                "last checkpoint."
            ) from None
