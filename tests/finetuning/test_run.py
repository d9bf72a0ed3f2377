"""Fine-tuning of a tiny model: it learns to answer, and a run that is stopped ends in the same
bytes."""

import dataclasses
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import numpy as np
import pytest
import torch

from tests.data.material import json_lines, parameters
from tests.evaluation.trained import make_tokenizer_file, train_a_model
from tests.imports import ROOT
from tests.pipeline.project import Project
from tests.tokens import packing
from tests.training.tiny import (
    CONTEXT,
    CPU,
    MODEL,
    Outcome,
    digest,
    model_config,
    run_on,
    runtime_params,
    train_params,
)
from tokenmill.core.errors import UserError
from tokenmill.costs import COSTS, CostRow
from tokenmill.finetuning.chats import ChatSplit, read_chats
from tokenmill.finetuning.params import FinetuneParams, Method
from tokenmill.finetuning.run import (
    CHATS,
    clean_chats,
    finetuning_job,
    tuning_job,
    with_base_text,
)
from tokenmill.formats.records import read_rows
from tokenmill.formats.shards import batches, totals
from tokenmill.formats.token_file import Split
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.config import LoraParams, ModelParams
from tokenmill.model.device import Compute
from tokenmill.model.manifest import (
    ADAPTER,
    ADAPTER_CONFIG,
    ADAPTER_FOLDER,
    EPOCH_ADAPTER,
    WEIGHTS,
    Manifest,
    TrainedWith,
    Tuned,
    read_manifest,
)
from tokenmill.training import compile as compilation
from tokenmill.training.checkpoints.find import fill_from_previous
from tokenmill.training.checkpoints.store import CheckpointStore
from tokenmill.training.distributed import Group
from tokenmill.training.job import training_job
from tokenmill.training.launch import Interrupt
from tokenmill.training.lora import trained_parameters
from tokenmill.training.params import CompileChoice, auto_learning_rate
from tokenmill.training.schedule import Workload
from tokenmill.training.size import flops_per_token

SECTION = {
    "methods": ["full"],
    "val_fraction": 0.2,
    "epochs": 2,
    "batch_size": 4,
    "base_fraction": 0.0,
    "learning_rate": 0.01,
    "lora": {"rank": 2, "alpha": 8, "targets": "all"},
    "seed": 0,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model, its tokens and its tokenizer, and chats whose answers its text does not
    have."""
    folder = tmp_path_factory.mktemp("base")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train_a_model(folder)
    chats = [
        {"instruction": "count? " * (number % 7), "response": "two " * (number % 5) + "one"}
        for number in range(99)
    ]
    (folder / "chats.jsonl").write_bytes(json_lines(chats))
    return folder


METHODS = get_args(Method)


def tuned_by(lora: LoraParams | None) -> Tuned:
    return Tuned(lora=lora, data="chats", chats=3)


def tune(
    base: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: Method = "full",
    runtime: dict[str, Any] | None = None,
    **changes: Any,
) -> Outcome:
    """Fine-tune with the checkpoints in `folder`, into `folder`/model."""
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    runtime_section = runtime_params(**runtime or {})
    params = FinetuneParams.model_validate(
        SECTION | {"methods": [method], "data": str(base / "chats.jsonl")} | changes
    )
    with clean_chats(params, parameters(), encoding="auto") as chats:
        job, _ = finetuning_job(
            params,
            chats_folder=chats,
            runtime=runtime_section,
            models=base / "model",
            tokens=base / "tokens",
            tokenizer_file=base / "tokenizer.json",
        )
    return run_on(job, runtime_section, folder / "model")


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next runs are stopped after so many steps, as Ctrl-C would."""
    reasons: Iterator[str | None] = iter([*[None] * (steps - 1), "stopped"])
    monkeypatch.setattr(Interrupt, "reason", property(lambda _: next(reasons)))


@pytest.mark.parametrize("wanted", get_args(CompileChoice))
def test_a_gpu_compiles_chats_and_records_none(wanted: CompileChoice):
    chats = Workload(model_config(), train_params(), 10**4, whole_texts=True)
    cpu, cuda = (Compute(torch.device(kind), torch.float32) for kind in ("cpu", "cuda"))
    choose = functools.partial(compilation.choose_compilation, wanted, place="memory")
    with mock.patch.object(compilation, "missing_compiler", return_value=None):
        on_gpu = choose(cuda, chats)
        long = dataclasses.replace(chats, tokens=8 * 4 * compilation.GPU_STEPS + 1)
        longer = choose(cuda, long)
    assert (on_gpu.on, longer.on) == {"auto": (False, True), "off": (False, False)}.get(
        wanted, (True, True)
    )
    assert not on_gpu.recorded
    assert not choose(cpu, chats).on


@pytest.mark.parametrize("method", METHODS)
def test_chats_are_learned_and_the_base_stays(
    base: Path, here: Path, monkeypatch: pytest.MonkeyPatch, method: Method
):
    before = digest(base / "model")
    outcome = tune(base, here, monkeypatch, method, epochs=4)
    losses = [row.val_loss for row in outcome.state.epochs]
    assert losses[-1] < losses[0]
    assert digest(base / "model") == before
    manifest = read_manifest(here / "model")
    start = read_manifest(base / "model")
    assert (manifest.epochs, manifest.model) == (4, start.model)
    assert manifest.fingerprint != start.fingerprint
    assert manifest.start_sha256 == start.weights[-1]


@pytest.mark.parametrize(("method", "base_fraction"), [("full", 0.0), ("full", 0.5), ("lora", 0.0)])
def test_a_run_stopped_five_times_ends_in_the_same_bytes(
    base: Path, here: Path, monkeypatch: pytest.MonkeyPatch, method: Method, base_fraction: float
):
    tune(base, here / "quiet", monkeypatch, method, base_fraction=base_fraction)
    for steps in (1, 2, 1, 3, 1):
        with monkeypatch.context() as patch:
            stop_after(steps, patch)
            with pytest.raises(UserError, match="stopped"):
                tune(base, here / "stopped", patch, method, base_fraction=base_fraction)
    tune(base, here / "stopped", monkeypatch, method, base_fraction=base_fraction)
    assert digest(here / "stopped/model") == digest(here / "quiet/model")


def base_text(
    folder: Path, fraction: float, mixture: dict[str, float] | None, *, compressed: bool = False
) -> np.ndarray:
    """The sequences (N, L, T) that ten of chats get beside them from a text of 202 tokens of a and
    201 of b, whose ids count from 0."""
    ids: dict[Split, np.ndarray] = {"train": np.arange(403), "val": np.arange(9)}
    packing.write_tokens(folder / "tokens", ids, sources=("a", "b"), vocab_size=403)
    tokens = folder / "tokens"
    if compressed:
        tokens = packing.compressed_copy(tokens, folder / "compressed")
    trained = train_params()
    model = ModelParams.model_validate(MODEL)
    job = training_job(model, trained, tokens, folder / "none", mixture=mixture)
    chats = np.zeros((10, 3, CONTEXT), np.int32)
    return with_base_text(chats, job.manifest, trained, tokens, fraction)[10:]


@pytest.mark.parametrize(
    ("mixture", "of_a"), [({"b": 0.0}, 20), ({"a": 0.0}, 0), ({"a": 0.5, "b": 1.5}, 5)]
)
def test_base_text_is_mixed_as_the_base_was(tmp_path: Path, mixture: dict[str, float], of_a: int):
    inputs, targets, starts = base_text(tmp_path, 2 / 3, mixture).transpose(1, 0, 2)
    assert len(inputs) == 20
    assert (np.diff(inputs) == 1).all()
    assert (targets == inputs + 1).all()
    assert not starts.any()
    in_a = inputs[:, 0] < 202
    assert in_a.sum() == of_a
    assert (in_a == (targets[:, -1] < 202)).all()


@pytest.mark.parametrize("compressed", [False, True])
def test_base_text_of_no_mixture_is_spread_over_all(tmp_path: Path, compressed: bool):
    first = base_text(tmp_path, 2 / 3, None, compressed=compressed)[:, 0, 0]
    assert first.tolist() == [number * 50 // 20 * CONTEXT for number in range(20)]


def test_more_base_text_than_there_is_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"finetune\.base_fraction \(0\.9\).* 50; .* 0\.833\."):
        base_text(tmp_path / "too-much", 0.9, None)
    assert len(base_text(tmp_path / "most", 0.833, None)) == 50


def test_lora_keeps_the_adapter_of_each_epoch(
    base: Path, here: Path, monkeypatch: pytest.MonkeyPatch
):
    def epochs_of(machine: str) -> dict[str, str]:
        return digest(next((here / machine).glob(".resume/*/epochs")))

    (here / "mirror").mkdir()
    place = {"checkpoint": {"mirror": str(here / "mirror")}}
    tune(base, here / "one", monkeypatch, "lora", runtime=place)
    found = digest(here / "one/model")
    for epoch in (1, 2):
        assert {
            f"epoch-{epoch}/{name}"
            for name in (WEIGHTS, EPOCH_ADAPTER, f"{ADAPTER_FOLDER}/{ADAPTER_CONFIG}")
        } <= found.keys()
    last = max((here / "one/model/resume").iterdir())
    assert (last / ADAPTER).read_bytes() == (
        here / "one/model/epoch-2" / EPOCH_ADAPTER
    ).read_bytes()
    assert not (last / WEIGHTS).exists()
    # Other machines, which have only the mirror; the last finds it damaged
    for other in ("two", "three"):
        tune(base, here / other, monkeypatch, "lora", runtime=place)
        assert digest(here / other / "model") == found
        assert epochs_of(other) == epochs_of("one")
        next((here / "mirror").glob(f"*/weights/*/{EPOCH_ADAPTER}")).write_bytes(b"")


def test_another_machine_has_the_adapters_of_dvc_s_output(
    base: Path, here: Path, monkeypatch: pytest.MonkeyPatch
):
    outcome = tune(base, Path(), monkeypatch, "lora")
    Path("dvc.yaml").write_text("stages: {tune: {cmd: 'true', outs: [model]}}")
    Project.new(here).run("dvc", "commit", "-q", "-f")
    store = CheckpointStore(here / "other" / outcome.manifest.fingerprint)
    fill_from_previous(store, Path("model"), print)
    assert outcome.state.step in [each.step for each in store.checkpoints(print)]


def test_costs_of_lora_are_without_gradients_of_what_stays(
    base: Path, here: Path, monkeypatch: pytest.MonkeyPatch
):
    flops = {}
    for method in METHODS:
        tune(base, here / method, monkeypatch, method)
        flops[method] = read_rows(here / method / COSTS, CostRow)[-1].flops
    config = read_manifest(base / "model").model
    learning = trained_parameters(config, LoraParams.model_validate(SECTION["lora"]))
    fewer = flops_per_token(config, learning=learning) / flops_per_token(config)
    assert fewer < 0.9
    assert flops["lora"] == pytest.approx(fewer * flops["full"], rel=1e-4)


def test_lora_that_cannot_be_is_refused(base: Path, here: Path, monkeypatch: pytest.MonkeyPatch):
    for changes, words in (({"targets": ["qkv"]}, "q, k, v"), ({"rank": 33}, "n_embd")):
        with pytest.raises(UserError, match=rf"finetune\.lora\..*{words}"):
            tune(base, here, monkeypatch, "lora", lora=SECTION["lora"] | changes)
    with pytest.raises(UserError, match=r"runtime\.parallel"):
        tune(base, here, monkeypatch, "lora", runtime={"parallel": "fsdp"})


@pytest.mark.parametrize(("sequences", "warmup"), [(1, 1), (39, 1), (77, 2), (9000, 10)])
def test_the_warm_up_follows_from_an_epoch(sequences: int, warmup: int):
    """Of four sequences a step, whatever the number of epochs."""
    for epochs in (1, 3):
        params = FinetuneParams.model_validate(SECTION | {"data": "/", "epochs": epochs})
        model = ModelParams.model_validate(MODEL)
        train = params.as_training(train_params(), model, sequences=sequences)
        assert train.schedule.warmup_steps == warmup


@pytest.mark.parametrize(
    ("method", "width", "share"),
    [("full", 16, 0.25), ("lora", 32, 1.25), ("lora", 64, 2.5), ("lora", 768, 2.5)],
)
def test_rates_and_rules_of_the_base_do_not_count(method: Method, width: int, share: float):
    """They are for training from scratch. LoRA has half the share at a width of 32."""
    changes = {"methods": [method], "data": "/", "learning_rate": "auto"}
    params = FinetuneParams.model_validate(SECTION | changes)
    model = ModelParams.model_validate(MODEL | {"n_embd": width})
    others = train_params(
        epochs=9,
        batch_size=64,
        gradient_accumulation_steps=3,
        learning_rate=0.3,
        optimizer="muon",
        weight_decay=0.3,
        schedule={"type": "cosine", "final_fraction": 0.4},
        average_power=16,
        seed=8,
        validate_every_steps=7,
        early_stopping=2,
        target_loss=1.5,
    )
    train = params.as_training(train_params(), model, sequences=80)
    assert params.as_training(others, model, sequences=80) == train
    scratch = auto_learning_rate(model, "adamw")
    assert train.learning_rate == pytest.approx(share * scratch, rel=0.05)
    assert (train.weight_decay, train.schedule.final_fraction) == (0.0, 0.0)
    assert not TrainedWith.model_validate(train.model_dump()).may_end_early


@pytest.mark.parametrize("method", METHODS)
def test_more_epochs_continue(
    base: Path,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    method: Method,
):
    tune(base, here / "one", monkeypatch, method, epochs=4)
    tune(base, here / "two", monkeypatch, method, epochs=2)
    capsys.readouterr()
    tune(base, here / "two", monkeypatch, method, epochs=4)
    assert "continuing from step" in capsys.readouterr().err
    assert digest(here / "two/model/epoch-4") == digest(here / "one/model/epoch-4")


def test_processes_of_one_training_read_chats_cleaned_once(base: Path, here: Path) -> None:
    data = here / "chats.jsonl"
    shutil.copyfile(base / "chats.jsonl", data)
    params = FinetuneParams.model_validate(SECTION | {"data": str(data)})
    asks = (
        "from tests.finetuning.test_run import *; from tokenmill.formats.shards import totals\n"
        "params = FinetuneParams.model_validate(SECTION | {'data': 'chats.jsonl'})\n"
        "with clean_chats(params, parameters(), encoding='auto') as folder:\n"
        "    print(folder, totals(folder).documents)"
    )
    with clean_chats(params, parameters(), encoding="auto") as folder:
        data.write_bytes(b"")  # what a second cleaning would not survive
        done = subprocess.run(
            [sys.executable, "-c", asks],
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "RANK": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"{folder} {totals(folder).documents}\n"
        with pytest.raises(UserError), clean_chats(params, parameters(), encoding="auto"):
            raise AssertionError("a process by itself does not take the chats of another")
    assert not folder.exists()
    assert CHATS not in os.environ


def test_chats_are_read_in_the_encoding_of_the_text(here: Path):
    chat = '{"instruction": "Wie groß?", "response": "Größer."}\n'
    (here / "chats.jsonl").write_text(chat, encoding="cp437")
    params = FinetuneParams.model_validate(SECTION | {"data": str(here / "chats.jsonl")})
    with clean_chats(params, parameters(), encoding="cp437") as folder:
        (batch,) = batches(folder, ("text",))
        assert "Größer." in batch["text"][0]


def test_a_job_trains_on_some_chats_and_is_measured_on_others(base: Path):
    """Its steps are those of the chats with the base's text beside them."""
    changes = {"data": str(base / "chats.jsonl"), "base_fraction": 0.5, "batch_size": 1}
    params = FinetuneParams.model_validate(SECTION | changes)
    runtime = runtime_params(parallel="fsdp")
    model = read_manifest(base / "model").model
    with clean_chats(params, parameters(), encoding="auto") as folder:
        job, chats = finetuning_job(
            params,
            chats_folder=folder,
            runtime=runtime,
            models=base / "model",
            tokens=base / "tokens",
            tokenizer_file=base / "tokenizer.json",
        )
        expected = read_chats(
            folder,
            read_tokenizer(base / "tokenizer.json"),
            context_length=model.context_length,
            held_out=params.val_fraction,
        )
    train, val = chats["train"], chats["val"]
    assert (train.chats, val.chats) == (expected["train"].chats, expected["val"].chats)
    assert train.answer_bytes != val.answer_bytes
    data = job.open(CPU, Group(), runtime)
    assert data.val_bytes == val.answer_bytes
    assert data.val.count == len(val.layers) != len(train.layers)
    assert data.train.count == 2 * len(train.layers)
    own = params.as_training(train_params(), model, sequences=2 * len(train.layers))
    assert job.manifest.train == TrainedWith.model_validate(own.model_dump())
    assert params.as_training(train_params(), model, sequences=len(train.layers)) != own


def test_other_chats_bases_and_methods_are_other_runs(base: Path):
    start = read_manifest(base / "model")
    rows = np.zeros((2, 3, CONTEXT), np.int32)
    val = ChatSplit(
        layers=rows,
        chats=2,
        cut=0,
        left_out=0,
        answer_tokens=9,
        answer_bytes=30,
        bytes_per_token=4.0,
        examples=[],
    )
    lora = LoraParams.model_validate(SECTION["lora"])
    other_weights = start.model_copy(update={"weights": ["b" * 64]})

    def run_of(
        manifest: Manifest = start,
        rows: np.ndarray = rows,
        val: ChatSplit = val,
        lora: LoraParams | None = None,
    ) -> str:
        job = tuning_job(base / "model", manifest, train_params(), rows, val, tuned=tuned_by(lora))
        return job.manifest.fingerprint

    others = [
        run_of(),
        run_of(manifest=other_weights),
        run_of(rows=rows + 1),
        run_of(val=dataclasses.replace(val, layers=rows + 1)),
        run_of(lora=lora),
        run_of(lora=lora.model_copy(update={"rank": 1})),
    ]
    assert len(set(others)) == len(others)
    assert run_of() == others[0]
    mixed = start.model_copy(update={"mixture": {"a": 0.5}})
    train = train_params(epochs=3, seed=5)
    job = tuning_job(base / "model", mixed, train, rows, val, tuned=tuned_by(lora))
    own = job.manifest
    assert (own.epochs, own.mixture, own.start_sha256) == (3, None, start.weights[-1])
    assert own.train == TrainedWith.model_validate(train.model_dump())
    assert job.open(CPU, Group(), runtime_params()).val_bytes == 30
    other = tuning_job(base / "model", start, train_params(seed=6), rows, val, tuned=tuned_by(lora))
    weights = [dict(each.start().state_dict()) for each in (job, job, other)]
    same = [all(torch.equal(weights[0][k], one[k]) for k in one) for one in weights]
    assert same == [True, True, False], "the seed says where LoRA starts"


def test_another_tokenizer_is_refused(base: Path, here: Path):
    with pytest.raises(UserError, match="tokenizer"):
        finetuning_job(
            FinetuneParams.model_validate(SECTION | {"data": "/"}),
            chats_folder=here,
            runtime=runtime_params(),
            models=base / "model",
            tokens=base / "tokens",
            tokenizer_file=make_tokenizer_file(here, "bpe"),
        )


def test_a_base_that_changed_is_refused(base: Path, here: Path, monkeypatch: pytest.MonkeyPatch):
    changed = shutil.copytree(base, here / "changed")
    weights = changed / "model/epoch-2" / WEIGHTS
    data = weights.read_bytes()
    weights.unlink()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(UserError, match="not what training wrote"):
        tune(changed, here / "tuned", monkeypatch)
    assert not (here / "tuned/model").exists()


def test_text_without_answers_is_refused(base: Path, here: Path, monkeypatch: pytest.MonkeyPatch):
    (here / "plain.txt").write_text("one two\n")
    with pytest.raises(UserError, match=r"finetune\.data"):
        tune(base, here, monkeypatch, data=str(here / "plain.txt"))
    with pytest.raises(UserError, match=r"finetune\.data.*nowhere"):
        tune(base, here, monkeypatch, data="/nowhere")
