"""Whether a run is compiled follows from its parameters and its device, not from a clock, and is said with a reason."""

import io
import os
from pathlib import Path

import pytest
import torch

from tests.training.tiny import model_config, run, runtime_params, train_params
from tokenmill.doctor.device import check_compiler
from tokenmill.errors import UserError
from tokenmill.training.compilation import GPU_STEPS, choose_compilation, lacks
from tokenmill.training.device import Compute
from tokenmill.training.workload import Workload

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def work(tokens: int, **changes: int) -> Workload:
    return Workload(model_config(), train_params(**changes), tokens)


@pytest.mark.skipif(lacks(CUDA) is not None, reason="no compiler here")
@pytest.mark.parametrize("epochs", [1, 50])
def test_a_gpu_compiles_from_some_steps_of_the_run_on(epochs: int):
    tokens = 8 * 4 * (GPU_STEPS // epochs) + 1
    assert choose_compilation("auto", CUDA, work(tokens, epochs=epochs)).on
    assert not choose_compilation("auto", CUDA, work(tokens - 32, epochs=epochs)).on
    assert not choose_compilation("auto", torch.device("mps"), work(tokens, epochs=epochs)).on


def test_the_choice_and_its_reason_are_a_sentence(monkeypatch: pytest.MonkeyPatch):
    large = work(10**12)
    assert str(choose_compilation("auto", CPU, large)).startswith("off: on a CPU it takes a minute or more")
    assert str(choose_compilation("auto", CUDA, large)).startswith("on: the run has ") == (not lacks(CUDA))
    assert str(choose_compilation("off", CUDA, large)) == "off: runtime.compile says so"
    monkeypatch.setenv("PATH", os.devnull)
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    assert str(choose_compilation("auto", CUDA, large)) == "off: it needs a C compiler (gcc), which is not there"
    with pytest.raises(
        UserError, match=r"runtime\.compile \(on\) needs a C\+\+ compiler \(g\+\+\), which is not there"
    ):
        choose_compilation("on", CPU, large)


@pytest.mark.parametrize(
    ("wish", "device", "level"),
    [
        ("on", CPU, "problem"),
        ("on", CUDA, "problem"),
        ("auto", CUDA, "warning"),
        ("auto", CPU, None),
        ("off", CUDA, None),
    ],
)
def test_the_doctor_looks_for_a_compiler_where_one_is_wanted(
    wish: str, device: torch.device, level: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", os.devnull)
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    found = list(check_compiler(runtime_params(compile=wish), Compute(device=device, precision=torch.float32)))
    assert [finding.level for finding in found] == ([level] if level else [])
    assert all("compiler" in finding.text for finding in found)


def test_a_run_says_what_it_chose(here: Path, tokens: Path, said: io.StringIO):
    run(tokens, here / "model", epochs=1, runtime={"compile": "auto"})
    assert "compile    off: on a CPU it takes a minute" in said.getvalue()
