"""Fine-tuning of a tiny model: it learns to answer, and a run that is stopped ends in the same bytes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.data.material import json_lines, parameters
from tests.evaluation.trained import train_a_model
from tests.training.tiny import digest, runtime_params
from tokenmill.core.errors import UserError
from tokenmill.core.executor import ThreadExecutor
from tokenmill.finetuning.params import FinetuneParams
from tokenmill.finetuning.run import finetune
from tokenmill.model.manifest import read_manifest
from tokenmill.training.launch import Interrupt
from tokenmill.training.run import Outcome

SECTION = {
    "methods": ["full"],
    "val_fraction": 0.2,
    "epochs": 2,
    "batch_size": 4,
    "base_fraction": 0.0,
    "learning_rate": 0.01,
    "seed": 0,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model, its tokens and its tokenizer, and chats whose answers its text does not have."""
    folder = tmp_path_factory.mktemp("base")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DVC_ROOT", str(folder))
        train_a_model(folder)
    chats = [
        {"instruction": "count? " * (number % 7), "response": "two " * (number % 5) + "one"} for number in range(99)
    ]
    (folder / "chats.jsonl").write_bytes(json_lines(chats))
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tune(base: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Outcome:
    """Fine-tune with the checkpoints in `folder`, into `folder`/full."""
    monkeypatch.setenv("DVC_ROOT", str(folder))
    found = finetune(
        "full",
        FinetuneParams.model_validate(SECTION | {"data": str(base / "chats.jsonl")} | changes),
        clean_params=parameters(),
        encoding="auto",
        executor=ThreadExecutor(threads=1),
        runtime=runtime_params(),
        models=base / "model",
        tokens=base / "tokens",
        tokenizer_file=base / "tokenizer.json",
        output=folder / "full",
        times=folder,
    )
    assert found
    return found[0]


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next runs are stopped after so many steps, as Ctrl-C would."""
    reasons: Iterator[str | None] = iter([*[None] * (steps - 1), "stopped"])
    monkeypatch.setattr(Interrupt, "reason", property(lambda _: next(reasons)))


def test_chats_are_learned_and_the_base_stays(base: Path, here: Path, monkeypatch: pytest.MonkeyPatch):
    before = digest(base / "model")
    outcome = tune(base, here, monkeypatch, epochs=4)
    losses = [row.val_loss for row in outcome.state.epochs]
    assert losses[-1] < losses[0]
    assert digest(base / "model") == before
    manifest, start = read_manifest(here / "full"), read_manifest(base / "model")
    assert (manifest.epochs, manifest.model) == (4, start.model)
    assert manifest.fingerprint != start.fingerprint


@pytest.mark.parametrize("base_fraction", [0.0, 0.5])
def test_a_run_stopped_five_times_ends_in_the_same_bytes(
    base: Path, here: Path, monkeypatch: pytest.MonkeyPatch, base_fraction: float
):
    tune(base, here / "quiet", monkeypatch, base_fraction=base_fraction)
    for steps in (1, 2, 1, 3, 1):
        with monkeypatch.context() as patch:
            stop_after(steps, patch)
            with pytest.raises(UserError, match="stopped"):
                tune(base, here / "stopped", patch, base_fraction=base_fraction)
    tune(base, here / "stopped", monkeypatch, base_fraction=base_fraction)
    assert digest(here / "stopped/full") == digest(here / "quiet/full")


def test_more_epochs_continue(
    base: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    tune(base, here / "one", monkeypatch, epochs=4)
    tune(base, here / "two", monkeypatch, epochs=2)
    capsys.readouterr()
    tune(base, here / "two", monkeypatch, epochs=4)
    assert "continuing from step" in capsys.readouterr().err
    assert digest(here / "two/full/epoch-4") == digest(here / "one/full/epoch-4")


def test_other_chats_and_another_base_are_another_run(base: Path, here: Path, monkeypatch: pytest.MonkeyPatch):
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
