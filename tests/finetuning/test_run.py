"""Fine-tuning of a tiny model: it learns to answer, and a run that is stopped ends in the same
bytes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.data.material import json_lines, parameters
from tests.evaluation.trained import train_a_model
from tests.imports import ROOT
from tests.training.tiny import digest, runtime_params
from tokenmill.core.errors import UserError
from tokenmill.finetuning.params import FinetuneParams, Method
from tokenmill.finetuning.run import CHATS, clean_chats, finetuning_job
from tokenmill.formats.shards import totals
from tokenmill.model.manifest import ADAPTER, ADAPTER_CONFIG, WEIGHTS, read_manifest
from tokenmill.training.launch import Interrupt
from tokenmill.training.run import Outcome, run_job

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


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


METHODS = get_args(Method)


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
    params = FinetuneParams.model_validate(SECTION | {"data": str(base / "chats.jsonl")} | changes)
    with clean_chats(params, parameters(), encoding="auto") as chats:
        job, _ = finetuning_job(
            method,
            params,
            chats_folder=chats,
            runtime=runtime_section,
            models=base / "model",
            tokens=base / "tokens",
            tokenizer_file=base / "tokenizer.json",
        )
    outcome = run_job(job, runtime=runtime_section, output=folder / "model", times=folder)
    assert outcome
    return outcome


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next runs are stopped after so many steps, as Ctrl-C would."""
    reasons: Iterator[str | None] = iter([*[None] * (steps - 1), "stopped"])
    monkeypatch.setattr(Interrupt, "reason", property(lambda _: next(reasons)))


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


def test_lora_keeps_the_adapter_of_each_epoch(
    base: Path, here: Path, monkeypatch: pytest.MonkeyPatch
):
    (here / "mirror").mkdir()
    place = {"checkpoint": {"mirror": str(here / "mirror")}}
    tune(base, here / "one", monkeypatch, "lora", runtime=place)
    found = digest(here / "one/model")
    for epoch in (1, 2):
        assert {
            f"epoch-{epoch}/{name}" for name in (WEIGHTS, ADAPTER, ADAPTER_CONFIG)
        } <= found.keys()
    last = max((here / "one/model/resume").iterdir())
    assert (last / ADAPTER).read_bytes() == (here / "one/model/epoch-2" / ADAPTER).read_bytes()
    assert not (last / WEIGHTS).exists()
    # Other machines, which have only the mirror; the last finds it damaged
    for other in ("two", "three"):
        tune(base, here / other, monkeypatch, "lora", runtime=place)
        assert digest(here / other / "model") == found
        next((here / "mirror").glob(f"*/weights/*/{ADAPTER}")).write_bytes(b"")


def test_lora_that_cannot_be_is_refused(base: Path, here: Path, monkeypatch: pytest.MonkeyPatch):
    for changes, words in (({"targets": ["qkv"]}, "q, k, v"), ({"rank": 33}, "n_embd")):
        with pytest.raises(UserError, match=rf"finetune\.lora\..*{words}"):
            tune(base, here, monkeypatch, "lora", lora=SECTION["lora"] | changes)
    with pytest.raises(UserError, match=r"runtime\.parallel"):
        tune(base, here, monkeypatch, "lora", runtime={"parallel": "fsdp"})


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
    assert not folder.exists()
    assert CHATS not in os.environ


def test_other_chats_and_another_base_are_another_run(
    base: Path, here: Path, monkeypatch: pytest.MonkeyPatch
):
    first = tune(base, here / "a", monkeypatch).manifest.fingerprint
    other = here / "other.jsonl"
    other.write_bytes((base / "chats.jsonl").read_bytes().replace(b"two", b"one"))
    assert tune(base, here / "b", monkeypatch, data=str(other)).manifest.fingerprint != first


def test_text_without_answers_is_refused(base: Path, here: Path, monkeypatch: pytest.MonkeyPatch):
    (here / "plain.txt").write_text("one two\n")
    with pytest.raises(UserError, match=r"finetune\.data"):
        tune(base, here, monkeypatch, data=str(here / "plain.txt"))
    with pytest.raises(UserError, match=r"finetune\.data.*nowhere"):
        tune(base, here, monkeypatch, data="/nowhere")
