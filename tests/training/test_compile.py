"""Whether a run is compiled follows from its parameters and its device, not from a clock, and is
said with a reason."""

import functools
import io
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args
from unittest import mock

import pytest
import torch

from tests.training.tiny import CONTEXT, model_config, run, train_params
from tokenmill.core.errors import UserError
from tokenmill.model.config import Architecture
from tokenmill.model.device import Compute
from tokenmill.model.gpt import build
from tokenmill.training.compile import (
    CPU_TFLOP,
    GPU_STEPS,
    GPU_TFLOP,
    MAX_SHAPES,
    RECORDED_TFLOP,
    Compilation,
    choose_compilation,
    missing_compiler,
)
from tokenmill.training.schedule import Workload
from tokenmill.training.size import flops_per_token

CPU = Compute(torch.device("cpu"), torch.float32)
CUDA = Compute(torch.device("cuda"), torch.bfloat16)
MPS = Compute(torch.device("mps"), torch.float32)


def work(tokens: int, **changes: int) -> Workload:
    return Workload(model_config(), train_params(**changes), tokens)


@pytest.mark.skipif(
    missing_compiler(CUDA.device) is not None, reason="torch.compile lacks something here"
)
@pytest.mark.parametrize("epochs", [1, 50])
def test_a_gpu_compiles_for_long_runs(epochs: int):
    many = 8 * 4 * (GPU_STEPS // epochs) + 1
    assert choose_compilation("auto", CUDA, work(many, epochs=epochs)).on
    assert not choose_compilation("auto", CUDA, work(many - 32, epochs=epochs)).on
    wide = model_config(n_embd=4096, vocab_size=4096)
    tokens = GPU_TFLOP * 1e12 / flops_per_token(wide) / epochs
    for share, on in ((1.05, True), (0.95, False)):
        steps = round(share * tokens / 64 / CONTEXT)
        large = Workload(wide, train_params(epochs=epochs, batch_size=64), steps * 64 * CONTEXT + 1)
        assert choose_compilation("auto", CUDA, large).on == on
        whole = steps * 64  # sequences, of which the last step of an epoch has one
        short = train_params(epochs=epochs, batch_size=whole - 1)
        assert choose_compilation("auto", CUDA, replace(large, train=short)).on == on


@pytest.mark.skipif(
    missing_compiler(CPU.device) is not None, reason="torch.compile lacks something here"
)
@pytest.mark.parametrize("epochs", [1, 50])
def test_a_cpu_compiles_for_long_epochs_whatever_their_number(epochs: int):
    sequences = math.ceil(CPU_TFLOP * 1e12 / flops_per_token(model_config()) / CONTEXT)
    assert choose_compilation("auto", CPU, work(sequences * CONTEXT + 1, epochs=epochs)).on
    assert not choose_compilation("auto", CPU, work(sequences * CONTEXT, epochs=epochs)).on


def test_the_choice_and_its_reason_are_a_sentence(monkeypatch: pytest.MonkeyPatch):
    large = work(10**12)
    with monkeypatch.context() as patch:
        patch.setattr("tokenmill.training.compile.missing_compiler", lambda _: None)
        assert str(choose_compilation("auto", CPU, work(10**7))).startswith("off: an epoch takes ")
        assert str(choose_compilation("auto", CUDA, large)).startswith("on, recorded: ")
        assert str(choose_compilation("auto", MPS, large)).startswith("off: not tried ")
    monkeypatch.setenv("PATH", os.devnull)
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    assert str(choose_compilation("off", CUDA, large)) == "off: runtime.compile says so"
    assert (
        str(choose_compilation("auto", CUDA, large))
        == "off, recorded: it needs a C compiler (gcc), which is not there"
    )
    assert (
        str(choose_compilation("auto", CPU, large))
        == "off: it needs a C++ compiler (g++), which is not there"
    )
    with pytest.raises(
        UserError,
        match=r"runtime\.compile \(on\) .*g\+\+",
    ):
        choose_compilation("on", CPU, large)


def test_steps_are_recorded_on_a_gpu_only(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match=r"runtime\.compile \(reduce-overhead\).*cpu"):
        choose_compilation("reduce-overhead", CPU, work(10**7))
    monkeypatch.setattr("tokenmill.training.compile.missing_compiler", lambda _: None)
    chosen = choose_compilation("reduce-overhead", CUDA, work(10**7))
    assert (chosen.on, chosen.recorded) == (True, True)
    assert str(chosen).startswith("on, recorded: ")


@pytest.mark.parametrize(
    ("name", "precision", "place", "size"),
    [
        ("runtime.processes", torch.bfloat16, "device", 2),
        ("runtime.token_placement", torch.float32, "memory", 1),
        ("train.precision", torch.float16, "device", 1),
    ],
)
def test_what_cannot_be_recorded_is_refused(
    name: str, precision: torch.dtype, place: str, size: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tokenmill.training.compile.missing_compiler", lambda _: None)
    choose = functools.partial(
        choose_compilation,
        compute=Compute(CUDA.device, precision),
        work=work(10**7),
        place=place,
        processes=size,
    )
    with pytest.raises(UserError, match=re.escape(name)):
        choose("reduce-overhead")
    assert not choose("auto").recorded


def test_a_gpu_records_steps_that_wait_for_the_host():
    sequences = int(RECORDED_TFLOP * 1e12 / flops_per_token(model_config()) / CONTEXT)
    for more, recorded in ((0, True), (1, False)):
        large = work(10**12, batch_size=sequences + more)
        assert choose_compilation("auto", CUDA, large).recorded == recorded
    assert not choose_compilation("auto", CPU, work(10**7)).recorded
    assert not choose_compilation("off", CUDA, work(10**7)).recorded


def test_a_run_says_what_it_chose(
    here: Path, tokens: Path, said: io.StringIO, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tokenmill.training.compile.missing_compiler", lambda _: None)
    run(tokens, here / "model", epochs=1, runtime={"compile": "auto"})
    found = re.search(r"compile    off: an epoch takes (\S+) TFLOP, .* from 100", said.getvalue())
    assert found
    assert float(found[1]) > 0


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH, beside which Python's headers are; no variable names a compiler, and
    no path has a space but perhaps this one."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tokenmill.training.compile.PYTHON_HEADER", tmp_path)
    for name in ("CC", "CXX", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "temporary")
    monkeypatch.setattr(torch, "__file__", "torch")
    return tmp_path


@pytest.mark.parametrize(
    ("device", "program", "named", "is_called"),
    [
        (CPU.device, "g++", None, sys.platform != "darwin"),
        (CPU.device, "clang++", None, sys.platform == "darwin"),
        (CPU.device, "mine", "mine", True),
        (CPU.device, "g++", "ccache g++", False),
        (CUDA.device, "gcc", None, True),
        (CUDA.device, "clang", None, True),
        (CUDA.device, "cc", None, False),
        (CUDA.device, "mine", "mine", True),
        (CUDA.device, "gcc", "nothing", False),
    ],
)
def test_a_compiler_counts_if_pytorch_calls_it(
    device: torch.device,
    program: str,
    named: str | None,
    is_called: bool,
    programs: Path,
):
    """Inductor and Triton call the one that is named, or else one of their own, and no other."""
    (programs / program).touch(mode=0o755)
    variable = "CXX" if device.type == "cpu" else "CC"
    with mock.patch.dict(os.environ, {variable: named} if named else {}):
        missing = missing_compiler(device)
    assert (missing is None) == is_called
    assert is_called or named is None or named in str(missing)


def test_pythons_headers_are_needed(programs: Path, monkeypatch: pytest.MonkeyPatch):
    (programs / "gcc").touch(mode=0o755)
    monkeypatch.setattr("tokenmill.training.compile.PYTHON_HEADER", programs / "Python.h")
    assert str(programs / "Python.h") in str(missing_compiler(CUDA.device))


@pytest.mark.parametrize("place", ["code", "temporary", "cache"])
def test_a_cpu_compiles_on_no_path_with_a_space(
    place: str, programs: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("gcc", "g++", "clang++"):
        (programs / name).touch(mode=0o755)
    spaced = str(programs / "My Drive")
    if place == "code":
        monkeypatch.setattr(torch, "__file__", spaced)
    elif place == "temporary":
        monkeypatch.setattr(tempfile, "tempdir", spaced)
    else:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", spaced)
    assert spaced in (missing_compiler(CPU.device) or "")
    assert missing_compiler(CUDA.device) is None


def test_an_update_is_compiled_on_a_gpu_only():
    on, off = (Compilation(on=on, why="") for on in (True, False))
    assert on.for_update(CUDA.device)
    assert not on.for_update(CPU.device)
    assert not off.for_update(CUDA.device)


@pytest.mark.skipif(
    missing_compiler(CPU.device) is not None, reason="torch.compile lacks something here"
)
@pytest.mark.parametrize("architecture", get_args(Architecture))
def test_what_a_cpu_compiles_begins_behind_the_lookups(
    architecture: str, monkeypatch: pytest.MonkeyPatch
):
    compiled = []
    monkeypatch.setattr(
        torch, "compile", lambda part, **_: lambda *given: compiled.append(given) or part(*given)
    )
    model = build(model_config(architecture=architecture), seed=0)
    ids_BT = torch.zeros(2, CONTEXT, dtype=torch.long)
    loss = model(ids_BT, ids_BT)
    with torch._dynamo.config.patch(recompile_limit=8):
        assert torch.equal(Compilation(on=True, why="").of(model)(ids_BT, ids_BT), loss)
        assert torch._dynamo.config.recompile_limit == MAX_SHAPES
    ((x_BTD, targets_BT, *_),) = compiled
    assert x_BTD.shape == (2, CONTEXT, 16)
    assert torch.equal(targets_BT, ids_BT)


@pytest.mark.usefixtures("forgetful_compiler")
@pytest.mark.parametrize("architecture", get_args(Architecture))
def test_what_is_compiled_is_one_graph(architecture: str):
    model = build(model_config(architecture=architecture), seed=0)
    ids_BT = torch.zeros(2, CONTEXT, dtype=torch.long)
    graphs = []

    def keep(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    with torch.autocast("cpu", torch.bfloat16):
        loss = torch.compile(model, dynamic=False, backend=keep)(ids_BT, ids_BT)
    loss.backward()
    assert len(graphs) == 1


class Lookup(torch.nn.Module):
    """As a model: an embedding, and what is behind it."""

    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(7, 64)
        self.forward_embedded = torch.nn.Linear(64, 64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up, and go on."""
        return self.forward_embedded(self.tokens(ids))


@pytest.mark.slow
@pytest.mark.skipif(
    missing_compiler(CPU.device) is not None, reason="torch.compile lacks something here"
)
def test_two_threads_of_a_compiled_model_add_up_in_one_order(two_threads: None):
    ids = torch.randint(7, (1 << 14,), generator=torch.Generator().manual_seed(0))
    wanted = torch.randn(len(ids), 64, generator=torch.Generator().manual_seed(1))
    gradients = set()
    for _ in range(2):  # as another start would: compiled again
        torch.compiler.reset()
        torch.manual_seed(1)
        model = Lookup()
        compiled = Compilation(on=True, why="").of(model)
        for _ in range(10):
            (compiled(ids) * wanted).sum().backward()
            assert model.tokens.weight.grad is not None
            gradients.add(model.tokens.weight.grad.numpy().tobytes())
            model.tokens.weight.grad = None
    assert len(gradients) == 1


@pytest.mark.skipif(
    missing_compiler(CPU.device) is not None, reason="torch.compile lacks something here"
)
def test_code_compiled_for_another_processor_is_not_taken(monkeypatch: pytest.MonkeyPatch):
    """Inductor's folder of compiled code may come from another machine, as with a shared disk. Code
    for vectors of 256 bits, taken by a processor with 512, writes behind the end of its results."""
    given = []
    monkeypatch.setattr(torch, "compile", lambda _, **how: given.append(how["options"]))
    for width in (256, 512):
        isa = mock.Mock(bit_width=mock.Mock(return_value=width))
        monkeypatch.setattr("torch._inductor.cpu_vec_isa.pick_vec_isa", lambda isa=isa: isa)
        Compilation(on=True, why="").of(Lookup())
    assert [options["cpp.simdlen"] for options in given] == [256, 512]


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads in this process, for a test."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
