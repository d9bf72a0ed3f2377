"""`tokenmill plan`: before there is data, with data, with measured times, and its table."""

import re
import shutil
import statistics
import time
from pathlib import Path

import pytest
import torch

from tests.training.tiny import run, write_tokens
from tokenmill.cli.main import main
from tokenmill.commands.changes import change
from tokenmill.core.errors import UserError
from tokenmill.core.params import read_yaml, validate
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import choose_compute
from tokenmill.model.size import flops_per_token
from tokenmill.planning import benchmark
from tokenmill.planning.benchmark import Trial
from tokenmill.schema import AllParams, check_all
from tokenmill.training.compile import Compilation
from tokenmill.training.schedule import Workload

ROOT = Path(__file__).resolve().parents[2]
ORIGINAL = [
    "model.architecture=gpt2",
    "model.n_layer=12",
    "model.n_head=12",
    "model.n_embd=768",
    "model.context_length=512",
    "train.batch_size=64",
    "train.epochs=11",
    "train.optimizer=adamw",
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(capsys: pytest.CaptureFixture[str], *arguments: str, changes: list[str] | None = None) -> str:
    main(["plan", *arguments, *(part for change in changes or [] for part in ("-S", change))])
    return capsys.readouterr().out


def test_without_data_the_number_of_tokens_must_be_told(project: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match=r"error: there are no tokens yet; give their number \(`tokenmill plan --tok"):
        plan(capsys)


def test_the_original_run(project: Path, capsys: pytest.CaptureFixture[str]):
    asked = ["--tokens", "2.8e9", "--vocab-size", "32000", "--hardware", "A100", "--step-seconds", "0.1"]
    text = plan(capsys, *asked, "--price-per-hour", "2", changes=ORIGINAL)
    assert "gpt2, 134,601,216 parameters: 12 layers, 12 heads, 768 wide, context 512, vocabulary 32,000" in text
    assert "2,800,000,000 tokens x 11 epochs" in text
    assert "229 tokens per parameter: more than the 20" in text
    assert "32,768 tokens, 85,450 steps an epoch, 939,950 in all" in text
    assert "a step in 0.1 s: 234e12 operations a second, 75% of A100; 26.1 h in all" in text
    row = next(line for line in text.splitlines() if line.startswith("A100"))
    assert row.split() == ["A100", "0.188", "s", "174,688", "49.0", "h", "97.95", "USD", "fits"]


def test_twice_the_utilisation_is_half_the_time_and_money(project: Path, capsys: pytest.CaptureFixture[str]):
    asked = ["--tokens", "1e8", "--hardware", "T4", "--price-per-hour", "100", "--utilisation"]
    money = [
        float(plan(capsys, *asked, share).split(" USD")[0].split()[-1].replace(",", "")) for share in ("0.2", "0.4")
    ]
    assert money[0] == pytest.approx(2 * money[1], rel=5e-3)


def test_a_model_too_large_for_a_gpu_is_said(project: Path, capsys: pytest.CaptureFixture[str]):
    large = ["model.n_layer=48", "model.n_embd=4096", "model.n_head=32", "model.context_length=2048"]
    text = plan(capsys, "--tokens", "1e9", "--hardware", "T4", changes=large)
    assert next(line for line in text.splitlines() if line.startswith("T4")).endswith("too small")
    text = plan(
        capsys,
        "--tokens",
        "1e9",
        "--vocab-size",
        "32000",
        "--hardware",
        "H100",
        changes=[*ORIGINAL, "train.batch_size=1024"],
    )
    assert "fits 256 sequences at a time" in text


def test_with_tokens_and_times_of_a_training_here_this_machine_is_in_the_table(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DVC_ROOT", str(project))
    tokens = write_tokens(project / "data" / "tokens", sequences=19)
    outcome = run(tokens, project / "models" / "gpt")
    (project / "metrics").mkdir()
    (project / "models" / "timing.csv").rename(project / "metrics" / "timing.csv")
    rates = [float(line.split(",")[2]) for line in (project / "metrics/timing.csv").read_text().splitlines()[1:]]
    rate = statistics.median(rates)
    capsys.readouterr()
    changes = [f"model.{name}={value}" for name, value in outcome.manifest.model.model_dump().items()]
    text = plan(capsys, "--hardware", "T4", changes=[change for change in changes if "vocab" not in change])
    assert "155 tokens x 4 epochs" in text
    row = next(line for line in text.splitlines() if line.startswith("this machine"))
    assert f"{rate:,.0f}" in row.split(), "the same model at the measured rate"
    measured = rate * flops_per_token(outcome.manifest.model)
    assert f"this machine: {measured:.3g} operations a second, as measured in its last training" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-S", "model.n_layer"], "-S model.n_layer is not NAME=VALUE"),
        (["-S", "nothing.at.all=1"], "-S nothing.at.all=1 is not NAME=VALUE with the name of a parameter"),
        (["-S", "model.n_layers=3"], "model.n_layers (3) is not a parameter; did you mean model.n_layer?"),
        (["-S", "model.n_layer=[1"], "the value is not YAML"),
        (["--hardware", "TPU"], "--hardware TPU is not known; known are T4, V100"),
    ],
)
def test_a_mistake_is_a_sentence(project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str):
    with pytest.raises(SystemExit) as error:
        plan(capsys, "--tokens", "1e6", *arguments)
    assert message in str(error.value)
    assert not isinstance(error.value, UserError)


@pytest.mark.parametrize("wrong", [["--utilisation", "0"], ["--devices", "0"], ["--tokens", "-3"], ["--tokens", "x"]])
def test_numbers_must_make_sense(project: Path, capsys: pytest.CaptureFixture[str], wrong: list[str]):
    with pytest.raises(SystemExit) as error:
        plan(capsys, *wrong)
    assert error.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_the_table_of_the_document_is_the_one_printed(project: Path, capsys: pytest.CaptureFixture[str]):
    table = plan(capsys, "--table").strip()
    assert len(table.splitlines()) == 2 + 9
    assert table in (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


def test_a_preset_is_planned_and_not_written(project: Path, capsys: pytest.CaptureFixture[str]):
    before = (project / "params.yaml").read_bytes()
    asked = ["--tokens", "2.8e9", "--vocab-size", "32000", "--hardware", "A100", "--step-seconds", "0.1"]
    by_hand = plan(capsys, *asked, changes=ORIGINAL)
    assert plan(capsys, "--preset", "phase3", "--hardware", "A100", "--step-seconds", "0.1") == by_hand
    assert "12 layers" in by_hand
    assert "410,112 parameters" in plan(capsys, "--preset", "phase1")
    assert "context 64" in plan(capsys, "--preset", "phase1", changes=["model.context_length=64"])
    assert (project / "params.yaml").read_bytes() == before


TINY = ["model.n_layer=1", "model.n_embd=16", "model.n_head=2", "model.context_length=16", "runtime.device=cpu"]


def test_here_is_measured_and_agrees_with_the_same_steps_timed_by_hand(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    text = plan(capsys, "--tokens", "1e5", "--hardware", "here", changes=TINY)
    rows = [line for line in text.splitlines() if line.startswith(("here", "A100", "T4"))]
    assert [row.split()[0] for row in rows] == ["here", "here:"], "this machine and no other"
    assert "here: 5 steps, measured just now on cpu" in rows[1]
    assert "each GPU's" not in text
    content = read_yaml(project / "params.yaml")
    for wish in TINY:
        change(content, wish)
    params = validate(AllParams, content, project / "params.yaml")
    config = ModelConfig.of(params.model, 1024)
    compute = choose_compute(params.runtime.device, params.train.precision)
    ids = torch.randint(1024, (16 * 16 + 1,), dtype=torch.int32)
    trial = Trial(ids, config, params.train, compute, compilation=Compilation(on=False, why=""), per_step=16)
    seconds = []
    for number in range(9):
        began = time.perf_counter()
        assert trial.step(number) == 256
        seconds.append(time.perf_counter() - began)
    _, value, unit, *_ = rows[0].split()
    measured = float(value) / (1000 if unit == "ms" else 1)
    assert min(seconds) / 5 < measured < 5 * max(seconds)
    both = plan(capsys, "--tokens", "1e5", "--hardware", "T4", "here", changes=TINY)
    assert [line.split()[0] for line in both.splitlines() if line.startswith(("here ", "T4"))] == ["here", "T4"]


def test_long_steps_are_told_from_two_smaller_ones(project: Path, monkeypatch: pytest.MonkeyPatch):
    """A step of 1 s and 0.2 s a sequence: 16 sequences must come to 4.2 s though only 1, 2 and 4 of them are tried."""
    tried = []

    def seconds(_: Trial, sequences: int) -> float:
        tried.append(sequences)
        return 1.0 + 0.2 * sequences

    monkeypatch.setattr(benchmark, "_seconds", seconds)
    params = check_all(project / "params.yaml")
    config = ModelConfig(vocab_size=64, **params.model.model_dump())
    speed = benchmark.measure(Workload(config, params.train, 10_000), params.runtime)
    assert speed.seconds == pytest.approx(4.2)
    assert max(tried) == 4
    assert speed.measured == "steps over 2 and 4 of 16 sequences"


def test_a_model_that_memory_does_not_hold_is_a_sentence(project: Path, capsys: pytest.CaptureFixture[str]):
    large = ["model.n_layer=96", "model.n_embd=12288", "model.n_head=96", "runtime.device=cpu"]
    with pytest.raises(SystemExit, match=r"error: the model takes .* TB with gradients and optimizer, and .* are free"):
        plan(capsys, "--tokens", "1e9", "--hardware", "here", changes=large)


def test_the_plans_in_the_document_are_the_ones_printed(project: Path, capsys: pytest.CaptureFixture[str]):
    document = (ROOT / "docs" / "plan-against-reality.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\n\$ tokenmill (plan .*)\n((?:.*\n)*?)```", document)
    assert len(blocks) == 2
    for command, shown in blocks:
        printed = plan(capsys, *command.split()[1:])
        assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()
