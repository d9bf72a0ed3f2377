"""Whole runs in this process: continuing gives the same bytes as a run in one go."""

import io
import json
import math
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import pytest
import safetensors.torch
import torch

from tests.pipeline.project import Project
from tests.tokens import packing
from tests.training.tiny import (
    CONTEXT,
    VOCABULARY,
    checkpoints,
    digest,
    merged,
    model_config,
    replace_in_checkpoint,
    run,
    train_params,
    write_tokens,
)
from tokenmill.core.errors import UserError
from tokenmill.core.files import Unchanged, write_json
from tokenmill.core.paths import PACKED_SHARDS
from tokenmill.formats import records
from tokenmill.model.huggingface import load_model
from tokenmill.training import loop
from tokenmill.training import run as run_module
from tokenmill.training.checkpoints import background
from tokenmill.training.checkpoints.store import OPTIMIZER
from tokenmill.training.history import RunState, StepRow, ValidationRow
from tokenmill.training.identity import IDENTITY, NUMERICS_VERSION, fingerprint, identity_of
from tokenmill.training.params import RuntimeParams


def test_run_learns_and_writes_all_its_files(here: Path, tokens: Path, said: io.StringIO):
    outcome = run(tokens, here / "model", epochs=4, learning_rate=0.03)
    rows = outcome.state.epochs
    assert [row.epoch for row in rows] == [1, 2, 3, 4]
    assert [row.step for row in rows] == [5, 10, 15, 20]
    assert [row.tokens for row in rows] == [19 * CONTEXT * n for n in (1, 2, 3, 4)]
    assert rows[-1].val_loss < rows[0].val_loss - 0.3
    assert all(
        f"epoch {row.epoch}: train loss {row.train_loss:.3f}" in said.getvalue() for row in rows
    )
    assert [row.step for row in outcome.state.steps] == [3, 5, 6, 9, 10, 12, 15, 18, 20]
    assert outcome.manifest.epochs == 4
    folders = {path.name for path in (here / "model").iterdir()}
    assert folders == {"manifest.json", "resume", "epoch-1", "epoch-2", "epoch-3", "epoch-4"}
    assert [path.name for path in (here / "model" / "resume").iterdir()] == ["step-000000020"]
    assert checkpoints(here) == [18, 20]
    assert load_model(here / "model" / "epoch-4").config == model_config()


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (4, "4 sequences x 1 x 8 tokens = 32 tokens\n  run        5 steps x 2 epochs = 10 steps,"),
        (64, "19 sequences x 8 tokens = 152 tokens\n  run        1 step x 2 epochs = 2 steps,"),
    ],
)
def test_the_start_says_what_a_step_sees(
    here: Path, tokens: Path, said: io.StringIO, batch: int, words: str
):
    outcome = run(tokens, here / "model", batch_size=batch)
    assert words in said.getvalue()
    found = re.search(r" ([\d,]+) tokens \(([\d.]+) per parameter\)", said.getvalue())
    assert found
    expected = int(found[1].replace(",", "")) / outcome.manifest.parameters
    assert float(found[2]) == pytest.approx(expected, rel=0.005)


def test_another_project_in_the_environment_is_left_alone(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its runs would be pruned, and its checkpoints continued."""
    for name in ("a", "b", "c"):
        (here / "other/.resume" / name).mkdir(parents=True)
    (here / ".resume" / PACKED_SHARDS).mkdir(parents=True)
    monkeypatch.setenv("DVC_ROOT", str(here / "other"))
    run(tokens, here / "model", runtime={"checkpoint": {"keep_runs": 1}})
    assert checkpoints(here) == [9, 10]
    assert {path.name for path in (here / "other/.resume").iterdir()} == {"a", "b", "c"}
    assert (here / ".resume" / PACKED_SHARDS).is_dir()


def test_every_placement_has_its_words():
    choices = get_args(RuntimeParams.model_fields["token_placement"].annotation)
    assert {"auto", *run_module.PLACES} == {*choices}
    assert len({*run_module.PLACES.values()}) == len(run_module.PLACES)


def test_token_placement_changes_no_byte(here: Path, tokens: Path):
    run(tokens, here / "model", model={"dropout": 0.2})
    expected = digest(here / "model")
    compressed = packing.compressed_copy(tokens, here / "compressed")
    checkpoint = {"every_steps": None, "every_seconds": 0.001, "keep": 5}
    for placement, folder in {"memory": tokens, "compressed": compressed}.items():
        shutil.rmtree(here / ".resume")
        runtime = {"token_placement": placement, "checkpoint": checkpoint}
        run(folder, here / placement, model={"dropout": 0.2}, runtime=runtime)
        assert digest(here / placement) == expected


def test_a_run_goes_on_with_tokens_in_another_form(here: Path, tokens: Path, said: io.StringIO):
    run(tokens, here / "quiet", epochs=3)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "model", epochs=2)
    compressed = packing.compressed_copy(tokens, here / "compressed")
    run(compressed, here / "model", epochs=3, runtime={"token_placement": "compressed"})
    assert "continuing from step" in said.getvalue()
    assert digest(here / "model") == digest(here / "quiet")


def test_finished_run_is_not_trained_again(here: Path, tokens: Path, said: io.StringIO):
    run(tokens, here / "model")
    expected = digest(here / "model")
    shutil.rmtree(here / "model")
    run(tokens, here / "model")
    assert "continuing from step 10 of 10" in said.getvalue()
    assert digest(here / "model") == expected


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "adamw": ({"architecture": "gpt2"}, {"optimizer": "adamw"}),
    "muon": ({}, {"optimizer": "muon"}),
    "speedrun": ({"architecture": "speedrun"}, {"optimizer": "muon"}),
    "dropout": ({"architecture": "gpt2", "dropout": 0.3}, {"optimizer": "muon"}),
    "accumulation": ({"dropout": 0.3}, {"batch_size": 2, "gradient_accumulation_steps": 3}),
    "float16": ({}, {"precision": "float16", "optimizer": "muon"}),
}


class StoppedError(Exception):
    """As abrupt as a kill, for this process."""


@pytest.mark.parametrize("case", CASES)
def test_interrupted_run_ends_in_the_same_bytes(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch, case: str
):
    """Before its first checkpoint, where an epoch ends, and between two checkpoints."""
    model, train = CASES[case]
    run(tokens, here / "quiet", model=model, **train)
    shutil.rmtree(here / ".resume")
    train_step = loop.train_step
    for at in (2, 5, 2):
        steps = iter(range(at))

        def step_or_stop(*arguments: Any, steps: Iterator[int] = steps, **keywords: Any) -> Any:
            if next(steps, None) is None:
                raise StoppedError
            return train_step(*arguments, **keywords)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "train_step", step_or_stop)
            with pytest.raises(StoppedError):
                run(tokens, here / "model", model=model, **train)
        assert not (here / "model").exists()
    run(tokens, here / "model", model=model, **train)
    assert digest(here / "model") == digest(here / "quiet")


@pytest.mark.parametrize("placement", ["mmap", "compressed"])
def test_steps_on_tokens_that_changed_are_not_saved(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch, placement: str
):
    """Others write into the file that training maps, and then put the right bytes back."""
    given = Path(shutil.copytree(tokens, here / "given"))
    if placement == "compressed":
        given = packing.compressed_copy(given, here / "compressed")
    runtime = {"token_placement": placement}
    run(given, here / "quiet", runtime=runtime)
    shutil.rmtree(here / ".resume")
    (file,) = given.glob("train.*")
    right = file.read_bytes()
    steps = iter(range(4))
    train_step = loop.train_step

    def write_before(*arguments: Any, **keywords: Any) -> Any:
        if next(steps, None) is None:
            with file.open("r+b") as other:
                other.write(right[:1])
        return train_step(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", write_before)
        with pytest.raises(UserError, match=rf"{file.name} changed while it was read"):
            run(given, here / "model", runtime=runtime)
    assert checkpoints(here) == [3]
    run(given, here / "model", runtime=runtime)
    assert digest(here / "model") == digest(here / "quiet")


def test_tokens_that_changed_on_another_machine_end_the_run(tmp_path: Path):
    file = tmp_path / "train.bin"
    file.write_bytes(b"right")
    training = mock.Mock()
    training.data.mapped = Unchanged(file)
    training.group.all_reduce_min.return_value = 0
    training.group.end.side_effect = UserError
    with pytest.raises(UserError):
        loop.check_tokens(training)
    training.group.all_reduce_min.assert_called_once_with(True)


@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [
        ("adamw", {"type": "constant"}),
        ("muon", {"type": "wsd"}),
        ("adamw", {"type": "wsd", "decay_fraction": 0.5}),
        ("muon", {"type": "cosine", "horizon_epochs": 3}),
    ],
    ids=str,
)
def test_two_epochs_and_two_more_are_four(
    here: Path, tokens: Path, optimizer: str, schedule: dict[str, Any]
):
    common: dict[str, Any] = {
        "schedule": schedule,
        "optimizer": optimizer,
        "model": {"dropout": 0.2},
    }
    run(tokens, here / "quiet", epochs=4, **common)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "two", epochs=2, **common)
    trained = checkpoints(here)
    run(tokens, here / "four", epochs=4, **common)
    assert digest(here / "four") == digest(here / "quiet")
    assert 10 in trained


def test_fewer_epochs_and_then_more_do_not_mix(here: Path, tokens: Path):
    common: dict[str, Any] = {"schedule": {"type": "wsd", "decay_fraction": 0.6}}
    run(tokens, here / "four", epochs=4, **common)
    shutil.rmtree(here / ".resume")
    for epochs, name in ((4, "a"), (2, "b"), (6, "c"), (4, "d"), (3, "e"), (4, "f")):
        run(tokens, here / name, epochs=epochs, **common)
    for name in ("a", "d", "f"):
        weights = {
            path: sha for path, sha in digest(here / name).items() if path.startswith("epoch-")
        }
        expected = {
            path: sha for path, sha in digest(here / "four").items() if path.startswith("epoch-")
        }
        assert weights == expected, name


@pytest.mark.parametrize("shorter", [{"epochs": 2}, {"target_loss": 99, "validate_every_steps": 2}])
def test_a_shorter_run_takes_no_steps_from_a_longer(
    here: Path, tokens: Path, said: io.StringIO, shorter: dict[str, Any]
):
    """The weights of its second or first epoch, which is a part, are others."""
    common: dict[str, Any] = {"epochs": 6, "schedule": {"type": "wsd"}}
    run(tokens, here / "quiet", **common)
    shutil.rmtree(here / ".resume")
    five: dict[str, Any] = common | {"epochs": 5}
    run(tokens, here / "five", **five)
    before = checkpoints(here)[0]
    short: dict[str, Any] = five | shorter
    run(tokens, here / "short", **short)
    said.truncate(0)
    run(tokens, here / "six", **common)
    assert f"continuing from step {before} of 30" in said.getvalue()
    assert "damaged" not in said.getvalue()
    assert digest(here / "six") == digest(here / "quiet")


@pytest.mark.parametrize("first", [2, 1])
def test_a_short_run_has_an_early_checkpoint(
    here: Path,
    tokens: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: io.StringIO,
    first: int,
):
    """A third of the first epoch's five steps, or the first step after the given time."""
    runtime: dict[str, Any] = {"checkpoint": {"every_steps": None, "keep": 9}}
    run(tokens, here / "quiet", runtime=runtime)
    assert checkpoints(here) == [5, 10]
    shutil.rmtree(here / ".resume")
    monkeypatch.setattr(background, "FIRST_SECONDS", math.inf if first == 2 else 0)
    runtime["checkpoint"]["every_seconds"] = 1e6
    run(tokens, here / "model", runtime=runtime)
    assert checkpoints(here) == [first, 5, 10]
    for step in (5, 10):
        shutil.rmtree(next(here.glob(f".resume/*/step-{step:09}")))
    run(tokens, here / "again", runtime=runtime)
    assert f"continuing from step {first} of 10" in said.getvalue()
    assert checkpoints(here) == [first, 5, 10]
    assert digest(here / "again") == digest(here / "model") == digest(here / "quiet")


def test_shorter_run_keeps_checkpoints_of_the_longer(here: Path, tokens: Path):
    run(tokens, here / "four", epochs=4)
    assert checkpoints(here) == [18, 20]
    run(tokens, here / "two", epochs=2)
    assert checkpoints(here) == [9, 10, 18, 20]


def test_more_epochs_of_a_cosine_differ_and_it_says_so(here: Path, tokens: Path, said: io.StringIO):
    run(tokens, here / "two", epochs=2, schedule={"type": "cosine"})
    outcome = run(tokens, here / "four", epochs=4, schedule={"type": "cosine"})
    text = said.getvalue()
    assert "continuing from step 10 of 20" in text
    assert "the result differs from a run in one go" in text
    assert len(outcome.state.epochs) == 4


@pytest.mark.parametrize("horizon", [None, 4])
def test_what_continues_from_an_inexact_run_says_so_too(
    here: Path, tokens: Path, said: io.StringIO, horizon: int | None
):
    """Also after its advice, to fix the horizon."""
    run(tokens, here / "two", epochs=2, schedule={"type": "cosine"})
    run(tokens, here / "four", epochs=4, schedule={"type": "cosine"})
    said.truncate(0)
    run(tokens, here / "again", epochs=4, schedule={"type": "cosine", "horizon_epochs": horizon})
    assert (
        "continuing from step 20 of 20 with the learning rates of a cosine schedule over 4 epochs; "
        "earlier steps followed another one, so the result differs" in said.getvalue()
    )


@pytest.mark.parametrize(
    "schedule", [{"decay_fraction": 1.0, "warmup_steps": 0}, {"warmup_steps": 99}]
)
def test_decay_without_a_pre_decay_step_ends_well(
    here: Path, tokens: Path, schedule: dict[str, Any]
):
    run(tokens, here / "model", schedule={"type": "wsd"} | schedule)
    assert [path.name for path in (here / "model" / "resume").iterdir()] == ["step-000000010"]


def test_missing_pre_decay_checkpoint_is_no_error(here: Path, tokens: Path):
    schedule = {"type": "wsd", "decay_fraction": 0.6}
    run(tokens, here / "fixed", schedule=schedule | {"horizon_epochs": 2})
    run(tokens, here / "model", schedule=schedule)
    assert [path.name for path in (here / "model" / "resume").iterdir()] == ["step-000000010"]


def test_damaged_newest_checkpoint_changes_no_byte(here: Path, tokens: Path, said: io.StringIO):
    run(tokens, here / "quiet", optimizer="muon")
    (here / ".resume").rename(here / "whole")
    run(tokens, here / "one", epochs=1, optimizer="muon")
    weights = next(here.glob(".resume/*/step-000000005")) / "optimizer.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    run(tokens, here / "model", optimizer="muon")
    text = said.getvalue()
    assert "step-000000005 is damaged (optimizer.safetensors changed" in text
    assert "continuing from step 3 of 10" in text
    assert digest(here / "model") == digest(here / "quiet")


@pytest.mark.parametrize("change", ["no file of weights", "empty", "one less", "renamed", "shape"])
def test_another_state_of_the_optimizer_is_refused(here: Path, tokens: Path, change: str):
    """Also if the checkpoint's own manifest agrees with it."""
    run(tokens, here / "model", epochs=2)
    (folder,) = here.glob(".resume/*/step-000000010")
    path = folder / OPTIMIZER
    state = safetensors.torch.load_file(path)
    name, tensor = state.popitem()
    others = {"renamed": {"another": tensor}, "shape": {name: tensor[None]}}
    content = {} if change == "empty" else state | others.get(change, {})
    damaged = safetensors.torch.save(content) if change != "no file of weights" else b"x" * 50
    replace_in_checkpoint(path, damaged)
    with pytest.raises(UserError, match=OPTIMIZER):
        run(tokens, here / "model", epochs=3)


@pytest.mark.parametrize("name", ["log_every_steps", "validate_every_steps"])
def test_more_rows_than_a_checkpoint_holds_are_refused(
    tokens: Path, here: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    """Ten steps, and room for three rows; the way out that is named works."""
    monkeypatch.setattr(run_module, "MOST_ROWS", 3)
    often: dict[str, Any] = {"log_every_steps": 4, name: 3}
    too_often: dict[str, Any] = often | {name: 2}
    with pytest.raises(UserError, match=rf"train\.{name} \(2\) .* at least 4"):
        run(tokens, here / "model", **too_often)
    assert not (here / ".resume").exists()
    run(tokens, here / "model", **often)


def test_a_checkpoint_of_most_rows_can_be_read(here: Path):
    rows = 500
    third = 1 / 3
    state = RunState(
        steps=[StepRow(10**9 + n, 1e4 + third, *[third] * 3) for n in range(rows)],
        validations=[ValidationRow(10**9 + n, 1e4 + third, third, third) for n in range(rows)],
    )
    write_json(here / "state.json", {"state": asdict(state), "resumable": {}})
    size = (here / "state.json").stat().st_size
    assert size / rows * run_module.MOST_ROWS < records.LARGEST_FILE


def test_context_longer_than_the_tokens_is_refused(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tokens = write_tokens(tmp_path / "short", sequences=3)
    monkeypatch.setattr("tokenmill.training.job.build", None)
    with pytest.raises(UserError, match=r"model\.context_length \(70\) .*train split"):
        run(tokens, here / "model", model={"context_length": 70})
    assert not (here / ".resume").exists()


def test_a_run_whose_precision_is_emulated_says_so(
    here: Path, tokens: Path, said: io.StringIO, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    run(tokens, here / "own")
    assert "train.precision" not in said.getvalue()
    run(tokens, here / "model", precision="bfloat16")
    assert "train.precision (bfloat16)" in said.getvalue()


def test_fingerprint_changes_with_numbers_only():
    text = {"train": "a" * 64, "val": "b" * 64}

    def print_of(model: dict[str, Any], train: dict[str, Any], **other: str) -> str:
        return fingerprint(identity_of(model_config(**model), train_params(**train), text | other))

    base = print_of({}, {})
    assert base == print_of({}, {"epochs": 9, "schedule": {"horizon_epochs": 3}})
    different = {
        print_of({"n_layer": 3}, {}),
        print_of({"vocab_size": VOCABULARY + 1}, {}),
        print_of({}, {"seed": 4}),
        print_of({}, {"schedule": {"type": "wsd"}}),
        print_of({}, {"precision": "bfloat16"}),
        print_of({}, {}, val="c" * 64),
    }
    assert len(different | {base}) == 7


def test_checkpoints_of_other_configurations_are_unused(here: Path, tokens: Path):
    run(tokens, here / "quiet", seed=8)
    expected = digest(here / "quiet")
    shutil.rmtree(here / ".resume")
    run(tokens, here / "other", seed=7)
    run(tokens, here / "model", seed=8)
    assert digest(here / "model") == expected
    assert len(list((here / ".resume").iterdir())) == 2


GONE = "gone"
"""Stands for a parameter that the other version does not have."""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"numerics": NUMERICS_VERSION - 1}, "other numbers"),
        ({"train": {"beta1": GONE}}, "others (train.beta1)"),
        ({"model": {"dropout": GONE}}, "others (model.dropout)"),
        ({"train": {"seed": 7}}, ""),
        ({"tokens": {"val": "0" * 64}}, ""),
        ({"start": "0" * 64}, ""),
    ],
)
def test_a_run_of_another_version_is_named(
    here: Path, tokens: Path, said: io.StringIO, changes: dict[str, Any], told: str
):
    """Numbers differ by version, and parameters by name; another value is another run."""
    manifest = run(tokens, here / "before", seed=8).manifest
    assert "another version" not in said.getvalue(), "nothing was there"
    newest = checkpoints(here)[-1]
    resume = here / ".resume"
    before = (resume / manifest.fingerprint).rename(resume / "0123456789abcdef")
    identity = json.loads((before / IDENTITY).read_text())
    assert identity["numerics"] == NUMERICS_VERSION
    assert fingerprint(identity) == manifest.fingerprint
    other = merged(identity, changes)
    for section in ("model", "train"):
        other[section] = {name: value for name, value in other[section].items() if value != GONE}
    (before / IDENTITY).write_text(json.dumps(other))
    run(tokens, here / "model", seed=8)
    folder = f".resume/{before.name}/step-{newest:09d}"
    named = f"{folder} is step {newest} of this run by another version" in said.getvalue()
    assert (named, told in said.getvalue()) == (bool(told), True)
    assert {path.name for path in resume.iterdir()} == {before.name, manifest.fingerprint}


@pytest.mark.parametrize("content", ["[", "[]", '{"train": 3}'])
def test_a_damaged_identity_ends_no_run(here: Path, tokens: Path, content: str):
    run(tokens, here / "before", seed=8)
    (file,) = here.glob(f".resume/*/{IDENTITY}")
    file.write_text(content)
    run(tokens, here / "other", seed=7)
    run(tokens, here / "model", seed=8)
    assert json.loads(file.read_text())["numerics"] == NUMERICS_VERSION


def test_another_machine_continues_from_dvc_s_output(here: Path, tokens: Path):
    run(tokens, here / "four", epochs=4, optimizer="muon")
    shutil.rmtree(here / ".resume")
    project = Project.new(here)
    project.run("dvc", "stage", "add", "-q", "-n", "train", "-o", "models/gpt", "true")
    run(tokens, Path("models/gpt"), epochs=2, optimizer="muon")
    project.run("dvc", "commit", "-q", "-f")
    shutil.rmtree(here / ".resume")
    shutil.rmtree(here / "models" / "gpt")
    told: list[str] = []
    store = run_module.CheckpointStore(here / ".resume" / "x")
    run_module.fill_from_previous(store, Path("models/gpt"), told.append)
    assert (told, store.steps()) == ([], [])
    outcome = run(tokens, Path("models/gpt"), epochs=4, optimizer="muon")
    assert digest(here / "models" / "gpt") == digest(here / "four")
    timing = [
        int(line.split(",")[0])
        for line in (here / "models" / "timing.csv").read_text().splitlines()[1:]
    ]
    assert min(timing) > 10, "the first two epochs were not trained again"
    assert (
        json.loads((here / "models/gpt/manifest.json").read_text())["epochs"]
        == outcome.manifest.epochs
        == 4
    )


@pytest.mark.parametrize(("device", "frozen"), [("cuda", 1), ("cpu", 0)])
def test_what_there_is_after_a_step_is_no_garbage_on_a_gpu(
    device: str, frozen: int, monkeypatch: pytest.MonkeyPatch
):
    freeze = mock.Mock()
    monkeypatch.setattr(loop.gc, "freeze", freeze)
    loop.settle(torch.device(device))
    assert freeze.call_count == frozen
