"""The calculator of `tokenmill plan`: before there is data, with data, with measured times."""

import json
import shutil
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from ruamel.yaml import YAML

from tests.imports import ROOT
from tests.model.small import config_of
from tests.training.tiny import run, small_memory, train_params, write_tokens
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.core.params import PARAMS_FILE
from tokenmill.costs import read_timing
from tokenmill.hardware import HARDWARE, Hardware
from tokenmill.model import gpt
from tokenmill.model.config import FEWEST_IDS, MOST_IDS, ModelConfig
from tokenmill.model.device import Compute
from tokenmill.model.gpt import empty_model, parameter_count
from tokenmill.planning import benchmark
from tokenmill.planning.benchmark import (
    STEPS,
    Speed,
    StepBenchmark,
    TooLargeError,
    measure,
    synchronize,
)
from tokenmill.planning.params_file import params_with
from tokenmill.planning.plan import (
    LAUNCH_SECONDS,
    RECORDED_SECONDS,
    Plan,
    optimizer_flops,
    plan_training,
    step_time,
)
from tokenmill.planning.presets import read_preset
from tokenmill.schema import BEFORE_TRAINING, check_all
from tokenmill.training.compile import RECORDED_TFLOP, STEPS_TO_RECORD, Compilation
from tokenmill.training.optimizer import POLAR_EXPRESS
from tokenmill.training.params import OptimizerName
from tokenmill.training.schedule import Workload
from tokenmill.training.size import USABLE_MEMORY, flops_per_token, memory, step_flops
from tokenmill.training.step import Batch, StepResult

GPT2_SMALL = [
    "model.architecture=gpt2",
    "model.n_layer=12",
    "model.n_head=12",
    "model.n_embd=768",
    "model.context_length=512",
    "train.batch_size=64",
    "train.epochs=11",
    "train.optimizer=adamw",
]
TINY = [
    "model.n_layer=1",
    "model.n_embd=16",
    "model.n_head=2",
    "model.context_length=16",
    "runtime.device=cpu",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(ROOT / PARAMS_FILE, tmp_path)
    return tmp_path


def planned(project: Path, *overrides: str, **options: Any) -> Plan:
    return plan_training(project, params_with({}, project / PARAMS_FILE, overrides), **options)


def gpt2_small(project: Path, **options: Any) -> Plan:
    return planned(
        project,
        *GPT2_SMALL,
        **{"tokens": 2_800_000_000, "vocab_size": 32_000, "hardware": ["A100"]} | options,
    )


def test_tokens_must_be_given_before_there_are_data(project: Path):
    with pytest.raises(UserError, match="--tokens"):
        planned(project)


def test_gpt2_small_on_an_a100(project: Path):
    plan = gpt2_small(project, price_per_hour=2)
    assert plan.parameters == 134_601_216
    assert (plan.work.tokens_per_step, plan.work.steps_per_epoch, plan.work.steps) == (
        32_768,
        85_450,
        939_950,
    )
    (row,) = plan.rows
    assert (row.name, row.sequences) == ("A100", 64)
    assert row.step_seconds == pytest.approx(0.187, abs=5e-4)
    assert row.total_seconds / 3600 == pytest.approx(48.9, abs=0.05)
    assert row.money == pytest.approx(97.85, abs=0.01)


def test_an_epoch_shorter_than_a_step_is_no_whole_step(project: Path):
    """78 sequences of 128 tokens."""
    (row,), (same,), (other,) = (
        planned(project, f"train.batch_size={size}", tokens=10_000, hardware=["A100"]).rows
        for size in (512, 78, 52)
    )
    assert row.total_seconds == same.total_seconds
    assert other.steps == pytest.approx(4 * 1.5)
    assert other.total_seconds == pytest.approx(other.steps * other.step_seconds)


def test_half_the_utilisation_doubles_time_and_money(project: Path):
    half, whole = (
        gpt2_small(project, utilisation=share, price_per_hour=2).rows[0] for share in (0.2, 0.4)
    )
    assert half.total_seconds == pytest.approx(2 * whole.total_seconds)
    assert half.money
    assert whole.money
    assert half.money == pytest.approx(2 * whole.money)


def test_devices_share_the_work_and_each_has_its_price(project: Path):
    one, eight = (gpt2_small(project, devices=n, price_per_hour=2).rows[0] for n in (1, 8))
    assert eight.name == "8 x A100"
    assert eight.total_seconds == pytest.approx(one.total_seconds / 8, rel=0.05)
    assert eight.money == pytest.approx(one.money, rel=0.05)


def test_without_names_all_gpus_are_planned(project: Path):
    plan = gpt2_small(project, hardware=[])
    assert len(plan.rows) == len(plan.gpus) > 5
    assert all(row.money is None for row in plan.rows)


@pytest.mark.parametrize(
    ("overrides", "gpu", "sequences"),
    [
        (
            [
                "model.n_layer=48",
                "model.n_embd=4096",
                "model.n_head=32",
                "model.context_length=2048",
            ],
            "T4",
            0,
        ),
        ([*GPT2_SMALL, "train.batch_size=1024"], "H100", 256),
        (GPT2_SMALL, "h100", 64),
    ],
)
def test_as_many_sequences_as_memory_holds(
    project: Path, overrides: list[str], gpu: str, sequences: int
):
    plan = planned(project, *overrides, tokens=10**9, vocab_size=32_000, hardware=[gpu])
    assert plan.rows[0].sequences == sequences


@pytest.mark.parametrize(
    ("name", "wanted", "precision"),
    [
        ("T4", "auto", torch.float16),
        ("A100", "auto", torch.bfloat16),
        ("A100", "float32", torch.float32),
    ],
)
def test_a_part_of_memory_is_left_to_others(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str, wanted: str, precision: torch.dtype
):
    (card,) = (gpu for gpu in HARDWARE if gpu.name == name)
    given: dict[str, Any] = {"tokens": 10**6, "hardware": [name]}
    work = planned(project, **given).work
    need = memory(work, sequences=8, precision=precision, compiled=True).total / USABLE_MEMORY
    for share, sequences in ((1.0001, 8), (0.9999, 4)):
        cards = [replace(card, memory_gb=share * need / 1e9)]
        monkeypatch.setattr("tokenmill.hardware.HARDWARE", cards)
        changes = ["train.batch_size=8", f"train.precision={wanted}"]
        (row,) = planned(project, *changes, **given).rows
        assert (row.sequences, row.wanted) == (sequences, 8)


def test_gradients_are_summed_over_batches(project: Path):
    """Memory holds one of them at a time."""
    summed = ["train.batch_size=8", "train.gradient_accumulation_steps=4"]
    (row,) = planned(project, *summed, tokens=10**6, hardware=["A100"]).rows
    assert row.wanted == 8


def test_several_devices_hold_a_part_of_a_batch_each(project: Path):
    (row,) = gpt2_small(project, hardware=["T4"], devices=8).rows
    assert row.wanted == 8
    (row,) = gpt2_small(project, hardware=["H100"], devices=64).rows
    assert (row.sequences, row.wanted) == (1, 1)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("model.n_layer", "-S model.n_layer is not NAME=VALUE"),
        ("nothing.at.all=1", "nothing.at.all=1"),
        ("model.n_layers=3", "did you mean model.n_layer?"),
        ("model.n_layer=[1", "YAML"),
    ],
)
def test_wrong_override_is_named(project: Path, text: str, named: str):
    with pytest.raises(UserError) as error:
        planned(project, text, tokens=10**6)
    assert named in str(error.value)


def test_unknown_hardware_is_named(project: Path):
    with pytest.raises(UserError, match="--hardware TPU"):
        planned(project, tokens=10**6, hardware=["TPU"])


@pytest.mark.parametrize("vocab_size", [1, FEWEST_IDS - 1, MOST_IDS + 1, 10**23])
def test_no_tokenizer_has_such_a_vocabulary(vocab_size: int, project: Path):
    with pytest.raises(UserError, match="--vocab-size"):
        planned(project, tokens=10**6, vocab_size=vocab_size)


def test_the_smallest_tokenizer_is_planned(project: Path):
    plan = planned(project, tokens=10**6, vocab_size=FEWEST_IDS, hardware=["T4"])
    assert plan.work.config.vocab_size == FEWEST_IDS


def test_a_preset_equals_the_same_values_by_hand(project: Path):
    before = (project / PARAMS_FILE).read_bytes()
    by_hand = gpt2_small(project)
    preset = read_preset("phase3")
    params = params_with(read_preset("phase3").values, project / PARAMS_FILE)
    of_preset = plan_training(
        project, params, tokens=preset.tokens, vocab_size=preset.vocab_size, hardware=["A100"]
    )
    assert of_preset.rows == by_hand.rows
    assert of_preset.work.config == by_hand.work.config
    shorter = params_with(preset.values, project / PARAMS_FILE, ["model.context_length=64"])
    assert shorter.model.context_length == 64
    assert (project / PARAMS_FILE).read_bytes() == before


def write_metrics(project: Path, *, tokens: int, vocab_size: int) -> None:
    """Those of the last run."""
    changes = {"tokens": {"train_tokens": tokens}, "tokenizer": {"vocab_size": vocab_size}}
    for name, change in changes.items():
        content = json.loads((ROOT / f"metrics/{name}.json").read_text())
        write_json(project / f"metrics/{name}.json", content | change)


def test_metrics_tell_the_data_of_a_clone(project: Path):
    write_metrics(project, tokens=12_345, vocab_size=777)
    work = planned(project, hardware=["T4"]).work
    assert (work.tokens, work.config.vocab_size) == (12_345, 777)


@pytest.fixture
def run_before(project: Path) -> Path:
    """A project whose tokens are those of its params.yaml, by its dvc.lock."""
    write_tokens(project / "data" / "tokens", sequences=100, sources=("a", "b"))
    write_metrics(project, tokens=803, vocab_size=400)
    params = YAML(typ="safe").load(project / PARAMS_FILE)
    stages = {
        stage: {
            "deps": [{"path": params["data"]["raw"]}, {"path": params["model"]["start_from"]}],
            "params": {"params.yaml": {name: params.get(name, "auto") for name in names}},
        }
        for stage, names in BEFORE_TRAINING.items()
    }
    (project / "dvc.lock").write_text(json.dumps({"stages": stages}))
    return project


@pytest.mark.parametrize(
    "change",
    [
        "sample.seed=1",
        "data.raw=/texts",
        "data.encoding=cp1251",
        "clean.deduplicate=false",
        "tokenizer.sample_bytes=9",
        "tokenize.val_fraction=0.1",
    ],
)
def test_tokens_of_another_run_are_known_as_such(run_before: Path, change: str):
    known = planned(run_before, *TINY, hardware=["T4"])
    assert (known.work.tokens, known.work.config.vocab_size) == (803, 29)
    assert not known.has_other_tokens
    other = planned(run_before, *TINY, change, "tokenizer.vocab_size=512", hardware=["T4"])
    assert (other.work.tokens, other.work.config.vocab_size) == (803, 512)
    assert other.has_other_tokens
    given = planned(run_before, *TINY, change, tokens=10_000, hardware=["T4"])
    assert (given.work.tokens, given.work.config.vocab_size) == (10_000, 1024)
    assert not given.has_other_tokens
    assert planned(run_before, *TINY, change, vocab_size=512, hardware=["T4"]).has_other_tokens
    with pytest.raises(UserError, match="dvc repro unpack"):
        planned(run_before, *TINY, change, "data.mixture={a: 2}", hardware=["T4"])


def test_an_absolute_path_in_the_project_is_the_same_text(run_before: Path):
    """DVC shortens it in dvc.lock."""
    lock = run_before / "dvc.lock"
    lock.write_text(lock.read_text().replace("data/raw/sample", "data/raw/mine"))
    raw = f"data.raw={run_before}/data/raw/mine"
    mixed = planned(run_before, *TINY, raw, "data.mixture={a: 2}", hardware=["T4"])
    assert mixed.work.seen
    assert not mixed.has_other_tokens


def test_tokens_that_dvc_checkout_left_are_not_counted(run_before: Path):
    write_metrics(run_before, tokens=900, vocab_size=400)
    back = planned(run_before, *TINY, hardware=["T4"])
    assert (back.work.tokens, back.work.config.vocab_size) == (900, 400)


def test_damaged_metrics_hinder_no_plan_without_them(run_before: Path):
    (run_before / "metrics/tokens.json").write_text("{")
    for given in ({"tokens": 900}, {"tokens": 900, "vocab_size": 400}):
        plan = planned(run_before, *TINY, "sample.seed=1", hardware=["T4"], **given)
        assert plan.work.tokens == 900
    with pytest.raises(UserError, match=r"tokens\.json"):
        planned(run_before, *TINY, "sample.seed=1", hardware=["T4"])


@pytest.mark.parametrize("damage", ["", "schema: '2.0'", "stages:", "x: [", "<<<<<<< HEAD"])
def test_a_damaged_lock_hinders_no_plan(run_before: Path, damage: str):
    (run_before / "dvc.lock").write_text(damage)
    assert planned(run_before, *TINY, hardware=["T4"]).has_other_tokens


def test_the_vocabulary_is_that_of_the_start(run_before: Path):
    shape = [*TINY, "model.start_from=models/start/small"]
    params = params_with({}, run_before / PARAMS_FILE, shape)
    with pytest.raises(UserError, match="`tokenmill import` writes such a folder"):
        planned(run_before, *shape, hardware=["T4"])
    config = ModelConfig.of(params.model, 321)
    write_json(run_before / "models/start/small/config.json", {"tokenmill": config.model_dump()})
    plan = planned(run_before, *shape, hardware=["T4"])
    assert (plan.work.config.vocab_size, plan.has_other_tokens) == (321, True)


def test_a_mixture_makes_other_epochs(project: Path):
    write_tokens(project / "data" / "tokens", sequences=100, sources=("a", "b"))
    context, batch = 16, 8
    shape = [*TINY, "train.gradient_accumulation_steps=1", f"train.batch_size={batch}"]
    plain = planned(project, *shape, hardware=["T4"])
    mixed = planned(project, *shape, "data.mixture={a: 0.5, b: 3}", hardware=["T4"])
    whole = (803 // 2 - 1) // context
    sequences = round(0.5 * whole) + 3 * whole
    assert plain.work.seen == []
    assert [one.seen for one in mixed.work.seen] == [round(0.5 * whole) * 16, 3 * whole * 16]
    assert mixed.work.steps_per_epoch == -(-sequences // batch)
    assert mixed.work.steps > plain.work.steps
    with pytest.raises(UserError, match=r"data\.mixture\.c"):
        planned(project, *shape, "data.mixture={c: 2}", hardware=["T4"])
    (project / "data/tokens/metadata.json").write_text("{}")  # of an older format
    given = {"tokens": 803, "vocab_size": 400, "hardware": ["T4"]}
    assert planned(project, *shape, **given).work.steps == plain.work.steps
    shutil.rmtree(project / "data")
    assert planned(project, *shape, "data.mixture={a: 1}", tokens=803, hardware=["T4"])
    with pytest.raises(UserError, match="tokens yet"):
        planned(project, *shape, "data.mixture={a: 1}", hardware=["T4"])
    with pytest.raises(UserError, match="dvc repro unpack"):
        planned(project, *shape, "data.mixture={a: 2}", hardware=["T4"])
    without = planned(project, *shape, "data.mixture={a: 2}", tokens=803, hardware=["T4"])
    assert without.work.steps == plain.work.steps


def test_last_training_tells_the_speed_of_this_machine(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(project)
    tokens = write_tokens(project / "data" / "tokens", sequences=19)
    outcome = run(tokens, project / "models" / "gpt")
    assert outcome
    (project / "metrics").mkdir()
    (project / "models" / "timing.csv").rename(project / "metrics" / "timing.csv")
    rows = read_timing(project / "metrics" / "timing.csv")
    rate = statistics.median(row.tokens_per_second for row in rows)
    trained = outcome.manifest.model.model_dump(exclude={"vocab_size"})
    shape = [f"model.{name}={value}" for name, value in trained.items()]
    plan = planned(project, *shape, hardware=["T4"])
    assert plan.work.tokens == 155
    assert [row.name for row in plan.rows] == ["this machine", "T4"]
    assert plan.work.tokens_per_step / plan.rows[0].step_seconds == pytest.approx(rate)
    assert plan.source
    deeper = planned(project, *shape, "model.n_layer=9", hardware=["T4"])
    assert deeper.rows[0].step_seconds / step_flops(deeper.work) == pytest.approx(
        plan.rows[0].step_seconds / step_flops(plan.work)
    )


def test_a_speed_that_was_rounded_to_nothing_is_unknown(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(project)
    tokens = write_tokens(project / "data" / "tokens", sequences=19)
    run(tokens, project / "models" / "gpt")
    (timing,) = project.glob(".resume/*/timing.csv")
    timing.write_text("step,seconds,tokens_per_second,units,money\n5,1000.000,0,,\n")
    assert [row.name for row in planned(project, hardware=["T4"]).rows] == ["T4"]
    timing.unlink()  # as in a clone that pulled the model
    assert [row.name for row in planned(project, hardware=["T4"]).rows] == ["T4"]


def test_here_is_the_time_of_a_real_step(project: Path, monkeypatch: pytest.MonkeyPatch):
    """By a clock that a step moves by 0.1 ms a token."""
    clock = 0.0
    make_step = StepBenchmark.step

    def step(self: StepBenchmark, number: int, *, sequences: int | None = None) -> int:
        nonlocal clock
        tokens = make_step(self, number, sequences=sequences)
        clock += tokens / 10_000
        return tokens

    monkeypatch.setattr(StepBenchmark, "step", step)
    monkeypatch.setattr(benchmark, "time", SimpleNamespace(perf_counter=lambda: clock))
    plan = planned(project, *TINY, tokens=10**5, hardware=["here"])
    assert [row.name for row in plan.rows] == ["here"]
    assert not plan.gpus
    assert plan.rows[0].step_seconds == pytest.approx(plan.work.tokens_per_step / 10_000)


def test_long_steps_follow_from_two_shorter_ones(project: Path, monkeypatch: pytest.MonkeyPatch):
    """A step of 1 s and 0.2 s for each sequence: 16 sequences take 4.2 s, and none of more than 4
    is made."""
    tried: list[int] = []

    def seconds(_: StepBenchmark, sequences: int) -> float:
        tried.append(sequences)
        return 1.0 + 0.2 * sequences

    monkeypatch.setattr(benchmark, "_seconds", seconds)
    params = check_all(project / PARAMS_FILE)
    config = ModelConfig(vocab_size=64, **params.model.model_dump())
    train = params.train.model_copy(update={"batch_size": 16})
    speed = measure(Workload(config, train, 10_000), params.runtime)
    assert speed.seconds == pytest.approx(4.2)
    assert max(tried) == 4


def test_recorded_steps_are_timed_whole_and_once_recorded(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    made: list[int] = []
    recorded = Compilation(False, "asked for", recorded=True)

    class Recording:
        def __init__(self, step_on: Callable[[Batch], StepResult], **_: Any):
            self.step_on = step_on

        def __call__(self, batch: Batch) -> StepResult:
            made.append(len(batch.index))
            return self.step_on(batch)

    monkeypatch.setattr(benchmark, "choose_compilation", lambda *_, **__: recorded)
    monkeypatch.setattr(benchmark, "RecordedStep", Recording)
    monkeypatch.setattr(benchmark, "MEASURED_SECONDS", 0.0)
    monkeypatch.setattr(benchmark, "LONG_STEP", 3600.0)  # however busy the machine is
    params = check_all(project / PARAMS_FILE)
    config = ModelConfig(vocab_size=64, **params.model.model_dump())
    measure(Workload(config, params.train, 10_000), params.runtime)
    assert set(made) == {params.train.batch_size}
    assert len(made) >= STEPS_TO_RECORD + STEPS


def test_a_plan_makes_its_model_once(project: Path, monkeypatch: pytest.MonkeyPatch):
    """Making the largest one, of 4096 layers, takes seconds."""
    made: list[ModelConfig] = []

    def counted(config: ModelConfig) -> gpt.GPT:
        made.append(config)
        return empty_model(config)

    monkeypatch.setattr(gpt, "empty_model", counted)
    plan = planned(project, "model.n_layer=97", tokens=10**6)
    assert plan.optimizer_share > 0
    assert len(plan.rows) == len(HARDWARE)
    assert made == [plan.work.config]


def test_a_model_larger_than_memory_is_refused(project: Path):
    large = ["model.n_layer=96", "model.n_embd=12288", "model.n_head=96", "runtime.device=cpu"]
    with pytest.raises(TooLargeError, match="TB"):
        planned(project, *large, tokens=10**9, hardware=["here"])


def test_steps_are_measured_with_the_micro_batch_that_is_set(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(benchmark, "MEASURED_SECONDS", 0.0)
    tried = small_memory(monkeypatch, holds=2)
    run_here: dict[str, Any] = {"tokens": 10**5, "hardware": ["here"]}
    with pytest.raises(TooLargeError, match=r"4 sequences .* set runtime\.micro_batch"):
        planned(project, *TINY, **run_here)
    tried.clear()
    assert planned(project, *TINY, "runtime.micro_batch_size=2", **run_here).rows
    assert max(tried) == 2


@pytest.mark.parametrize(("optimizer", "is_held"), [("muon", True), ("adamw", False)])
def test_muon_keeps_fewer_moments_in_memory(
    project: Path, monkeypatch: pytest.MonkeyPatch, optimizer: OptimizerName, *, is_held: bool
):
    """Three numbers for a weight of a block fit here, four do not."""
    changes = ["model.n_layer=4", "model.n_embd=64", "runtime.device=cpu"]
    params = params_with({}, project / PARAMS_FILE, [*changes, f"train.optimizer={optimizer}"])
    work = Workload(ModelConfig.of(params.model, 300), params.train, 10**5)
    free = int(3.5 * 4 * parameter_count(work.config))
    host = psutil.virtual_memory()._replace(available=free)
    monkeypatch.setattr("psutil.virtual_memory", lambda: host)
    monkeypatch.setattr(benchmark, "_measured", lambda *_: Speed(1.0, "CPU", "nothing"))
    if is_held:
        assert measure(work, params.runtime)
    else:
        with pytest.raises(TooLargeError, match="are free here"):
            measure(work, params.runtime)


def test_memory_that_runs_out_while_the_model_is_made_is_said(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    def run_out(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(benchmark, "build", run_out)
    with pytest.raises(TooLargeError, match="1 layer, 16 wide"):
        planned(project, *TINY, tokens=10**5, hardware=["here"])


def test_muon_costs_what_its_products_are():
    """Four times, for each matrix: X Xt, its square, and their product with X (2 operations a
    term)."""
    config = config_of("modern", n_layer=1)
    square = 2 * 64**3 * 3
    wide = 2 * 64 * 64 * 256 * 2 + 2 * 64**3
    assert optimizer_flops(config, "muon") == 4 * (4 * square + 2 * wide)
    assert optimizer_flops(config, "adamw") == 0
    assert len(POLAR_EXPRESS) == 4


def test_muon_is_float32_on_a_card_without_bfloat16():
    """On a T4 an update takes eight times as long as its other products would."""
    (t4, l4) = (next(gpu for gpu in HARDWARE if gpu.name == name) for name in ("T4", "L4"))
    config = config_of("modern", n_layer=12, n_embd=768, n_head=12)
    train = train_params(optimizer="muon", batch_size=64)
    work = Workload(config, train, 10**6)
    passes = work.tokens_per_step * flops_per_token(config)
    update = optimizer_flops(config, "muon")
    on_t4 = step_time(t4, work, utilisation=0.5).seconds
    assert on_t4 == pytest.approx((passes / 65e12 + update / 8.1e12) / 0.5)
    on_l4 = step_time(l4, work, utilisation=0.5).seconds
    assert on_l4 == pytest.approx((passes + update) / 121e12 / 0.5)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_small_model_waits_for_the_launches_of_its_operations(layers: int):
    """They are recorded on one card with bfloat16."""
    work = Workload(config_of("modern", n_layer=layers), train_params(batch_size=1), 10**6)
    cards = {gpu.name: gpu for gpu in HARDWARE}
    launches = 150 + 100 * layers
    recorded = step_time(cards["A100"], work)
    assert recorded.seconds == pytest.approx(launches * RECORDED_SECONDS)
    alone = step_time(cards["T4"], work)
    assert alone.seconds == pytest.approx(launches * LAUNCH_SECONDS)
    deep = Workload(config_of("modern", n_layer=24), train_params(batch_size=40_000), 10**9)
    launched = step_time(replace(cards["A100"], teraflops=1e6), deep)
    assert step_flops(deep) > RECORDED_TFLOP * 1e12, "so it is not recorded"
    assert launched.seconds == pytest.approx(2550 * LAUNCH_SECONDS)
    two = step_time(cards["A100"], work, devices=2)
    assert two.compute_seconds == pytest.approx(launches * LAUNCH_SECONDS)


def test_a_fast_network_hides_and_a_slow_one_costs():
    config = config_of("gpt2")
    work = Workload(config, train_params(batch_size=10**5), 10**8)
    slow_card, fast_card = (
        Hardware(name="", pattern="", teraflops=1, memory_gb=1, link_gb_per_second=link)
        for link in (1e-6, 1e3)
    )
    alone = step_time(slow_card, work, utilisation=1.0)
    assert alone.network_bytes == 0
    assert alone.seconds == alone.compute_seconds == step_flops(work) / 1e12
    fast = step_time(fast_card, work, devices=8, utilisation=1.0)
    assert fast.seconds == pytest.approx(alone.seconds / 8)
    slow = step_time(slow_card, work, devices=8, utilisation=1.0)
    assert slow.seconds > slow.network_seconds > alone.seconds
    assert fast.network_bytes == slow.network_bytes == 8 * parameter_count(config) * 7 / 8


@pytest.mark.parametrize(("device", "waits"), [("cpu", 0), ("cuda", 1), ("mps", 1)])
def test_a_clock_waits_for_what_computes_beside_the_host(
    device: str, waits: int, monkeypatch: pytest.MonkeyPatch
):
    waited: list[None] = []
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: waited.append(None))
    synchronize(Compute(torch.device(device), torch.float32))
    assert len(waited) == waits
