"""What dvc.lock says of the results beside a model."""

from pathlib import Path
from typing import Any

import pytest

from tests.reports.run_material import evaluation
from tests.runs.locks import write_lock
from tokenmill import git
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.runs.dvc_lock import Lock, false_parameters, listed, read_own_evaluation


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ({}, (True, True, True)),
        ({"evaluated": "earlier"}, (False, True, True)),
        ({"tokenized": "earlier"}, (True, False, True)),
        ({"encoded_by": "earlier"}, (True, False, True)),
        ({"trained": "earlier"}, (True, False, True)),
        ({"base": "earlier"}, (True, True, False)),
        ({"asked": "earlier"}, (True, True, False)),
    ],
)
def test_a_result_of_an_earlier_output_is_known(
    earlier: dict[str, Any], expected: tuple[bool, ...], tmp_path: Path
):
    write_lock(tmp_path, **earlier)
    lock = Lock.read(tmp_path)
    is_finetuned = lock.is_finetuned("lora", tmp_path)
    assert (lock.is_evaluated, lock.is_of_text, is_finetuned) == expected


def test_a_lock_without_stages_records_nothing(tmp_path: Path):
    """DVC takes it for one."""
    (tmp_path / "dvc.lock").write_text("schema: '2.0'\n")
    assert Lock.read(tmp_path) == Lock({}, {}, {}, {})


def test_a_merge_in_it_is_named_with_its_line():
    with pytest.raises(UserError, match=r"dvc\.lock .*\(line 3\)"):
        Lock.parse(b"stages:\n  sample:\n<<<<<<< HEAD\n    outs: []\n", "dvc.lock")


def test_a_listed_hash_leads_nowhere_else(tmp_path: Path):
    listing = tmp_path / "listing"
    md5 = "0" * 32
    write_json(listing, [{"relpath": "a", "md5": md5}, {"relpath": "b", "etag": "1"}])
    assert listed(listing) == {"a": md5}
    for other in ("/etc/passwd", f"../{md5}", f"{md5}\n"):
        write_json(listing, [{"relpath": "a", "md5": other}])
        with pytest.raises(UserError, match=r"listing is damaged .*--deep"):
            listed(listing)


@pytest.mark.parametrize("name", ["train", "eval"])
def test_metrics_of_another_method_are_known(name: str, tmp_path: Path):
    write_lock(tmp_path)
    lock = Lock.read(tmp_path)
    assert not lock.is_finetuned("full", tmp_path), "it is not evaluated yet"
    git.execute(tmp_path, "init", "-q")
    git.execute(tmp_path, "add", ".")
    git.execute(tmp_path, "-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "lora")
    file = tmp_path / f"metrics/finetuned/{name}.json"
    for change in (lambda: write_json(file, {"val_loss": 1.0}), file.unlink):
        change()
        assert not lock.is_finetuned("lora", tmp_path)
        assert lock.is_finetuned("lora", tmp_path, "HEAD")


@pytest.mark.parametrize(
    "stages",
    [
        None,
        "{}",
        "{evaluate: {deps: [{path: models/gpt, md5: a}]}}",
        "{train: {outs: [{path: models/gpt, md5: a}]}}",
        "{train: {outs: [{path: models/gpt, md5: a}]}, evaluate: {deps: [{path: models/gpt}]}}",
    ],
)
def test_what_is_not_recorded_counts_as_the_same(stages: str | None, tmp_path: Path):
    if stages:
        (tmp_path / "dvc.lock").write_text(f"stages: {stages}\n")
    assert Lock.read(tmp_path).is_evaluated
    assert Lock.read(tmp_path).is_of_text


def test_the_evaluation_must_be_that_of_the_model(tmp_path: Path):
    write_json(tmp_path / "reports/evaluation.json", evaluation(2).model_dump())
    write_lock(tmp_path)
    assert read_own_evaluation(tmp_path) == evaluation(2)
    write_lock(tmp_path, evaluated="earlier")
    with pytest.raises(UserError, match=r"evaluation\.json .*another model.*`dvc repro`"):
        read_own_evaluation(tmp_path)


def test_the_model_must_be_that_of_the_text(tmp_path: Path):
    write_json(tmp_path / "reports/evaluation.json", evaluation(2).model_dump())
    write_lock(tmp_path, trained="earlier")
    with pytest.raises(UserError, match=r"models/gpt .*another text.*data/clean.*`dvc repro`"):
        read_own_evaluation(tmp_path)


@pytest.mark.parametrize(
    ("manifest", "false"),
    [
        ({}, []),
        ({"model": {"vocab_size": 400}, "train": {"epochs": 2, "target_loss": None}}, []),
        ({"train": {"epochs": 1, "target_loss": 2.5}}, ["train.epochs", "train.target_loss"]),
    ],
)
def test_the_model_must_be_that_of_the_parameters(
    manifest: dict[str, Any], false: list[str], tmp_path: Path
):
    """As they are not after `dvc exp save` of a change that no stage has run."""
    write_json(tmp_path / "reports/evaluation.json", evaluation(2).model_dump())
    write_json(tmp_path / "models/gpt/manifest.json", manifest)
    write_lock(tmp_path)
    recorded = Lock.read(tmp_path).trained_with
    assert false_parameters(manifest, recorded) == false
    assert not false_parameters(manifest, dict.fromkeys(recorded, "auto"))
    if not false:
        assert read_own_evaluation(tmp_path) == evaluation(2)
        return
    with pytest.raises(UserError, match=r"models/gpt .*train\.epochs.*dvc\.lock.*`dvc repro -sf"):
        read_own_evaluation(tmp_path)


def test_the_evaluation_must_be_that_of_the_metrics(tmp_path: Path):
    """Git brings the metrics of another revision, and DVC the evaluation only when it is asked."""
    write_json(tmp_path / "reports/evaluation.json", evaluation(2).model_dump())
    measured = evaluation(2).metrics(evaluation(2).epochs[-1])
    of_an_older_version = {"bits_per_byte": measured["bits_per_byte"], "renamed since": 1.0}
    for known in (measured, of_an_older_version):
        write_json(tmp_path / "metrics/eval.json", known)
        assert read_own_evaluation(tmp_path) == evaluation(2)
    write_json(tmp_path / "metrics/eval.json", measured | {"bits_per_byte": 1.0})
    with pytest.raises(UserError, match=r"evaluation\.json .*metrics/eval\.json.*`dvc checkout`"):
        read_own_evaluation(tmp_path)
