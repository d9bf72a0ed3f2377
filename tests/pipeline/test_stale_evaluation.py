"""What commands say between `tokenize` and `train`, or `train` and `evaluate`: nothing of the
earlier model beside the new text or model."""

from typing import Any

import pytest

from tests.pipeline.project import Project, ran
from tokenmill.core.paths import EVALUATION
from tokenmill.doctor.checks import run_checks
from tokenmill.doctor.status import status
from tokenmill.evaluation.results import Evaluation
from tokenmill.formats.records import read_record
from tokenmill.runs.table import find_runs

pytestmark = pytest.mark.slow


def rows(project: Project) -> dict[str, dict[str, Any]]:
    """What `tokenmill runs` knows of each run, by its name."""
    table = find_runs(project.root, commits=2).set_index("run")
    return {str(name): row.dropna().to_dict() for name, row in table.iterrows()}


def card(project: Project, *options: str) -> str:
    folder = "-".join(("card", *options))
    project.typed("export", *options, folder)
    return (project.root / folder / "README.md").read_text()


def test_nothing_of_an_earlier_model_is_shown_with_the_new_one(finished: Project):
    loss = f"{read_record(finished.root / EVALUATION, Evaluation).epochs[-1].val_loss:.4f}"
    assert loss in card(finished)
    finished.set(train__epochs=3)
    assert ran(finished.repro("train")) == ["check", "train"]
    for command in (["summary"], ["compare"], ["compare", "HEAD"], ["publish"]):
        said = finished.typed(*command, check=False)
        assert EVALUATION.as_posix() in said
        assert "`dvc repro`" in said
    told = finished.typed("export", "folder")
    assert EVALUATION.as_posix() in told
    assert loss not in (finished.root / "folder/README.md").read_text()
    finished.run("dvc", "repro", "-sf", "report", check=False)
    runs = rows(finished)
    assert runs["workspace"]["epochs"] == 3
    assert "bits_per_byte" not in runs["workspace"]
    assert "bits_per_byte" in runs["main"]

    assert ran(finished.repro("evaluate")) == ["evaluate"]
    assert EVALUATION.as_posix() not in finished.typed("compare", "HEAD")
    assert "epoch 3" in finished.typed("summary")


def test_parameters_that_were_only_recorded_have_no_results(finished: Project):
    """`dvc exp save` runs no stage, and records the model beside the changed parameter."""
    finished.set(model__n_layer=2)
    finished.run("dvc", "exp", "save", "-n", "saved")
    runs = rows(finished)
    for name in ("workspace", "saved"):
        assert "val_loss" not in runs[name]
        assert "model.n_layer" in finished.typed("compare", "main", name, check=False)
    assert "val_loss" in runs["main"]
    ((command, _),) = status(finished.root).commands
    findings = {one.name: one for one in run_checks(finished.root)}
    assert (findings["model"].level, findings["model"].fix) == ("problem", command)
    finished.run("sh", "-c", f"{command} evaluate")  # the others would take seconds
    assert "model" not in {one.name for one in run_checks(finished.root)}
    runs = rows(finished)
    assert runs["workspace"]["parameters"] > runs["main"]["parameters"]


def test_an_experiment_of_train_alone_has_no_evaluation(finished: Project):
    loss = f"{read_record(finished.root / EVALUATION, Evaluation).epochs[-1].val_loss:.4f}"
    finished.run("dvc", "exp", "run", "-n", "alone", "-S", "train.epochs=3", "train")
    finished.run("git", "checkout", "-q", "-f", ".")
    finished.run("dvc", "checkout", "-q", "-f")
    said = finished.typed("compare", "alone", check=False)
    assert EVALUATION.as_posix() in said
    assert loss not in card(finished, "--rev", "alone")
    assert loss in card(finished, "--rev", "main")
    alone = rows(finished)["alone"]
    assert "val_loss" in alone
    assert "bits_per_byte" not in alone


def test_an_experiment_up_to_the_tokens_has_no_losses(finished: Project):
    here = rows(finished)["workspace"]
    finished.run("dvc", "exp", "run", "-n", "text", "-S", "sample.conversations=150", "tokenize")
    said = finished.typed("summary", check=False)
    assert "another text than data/clean" in said
    finished.run("git", "checkout", "-q", ".")
    finished.run("dvc", "checkout", "-q")
    runs = rows(finished)
    assert runs["text"].keys() == {"rev", "created", "state", "changed", "text"}
    assert runs["workspace"] == here
    assert here.keys() >= {"val_loss", "seconds"}
    said = finished.typed("compare", "text", check=False)
    assert EVALUATION.as_posix() in said
    said = finished.typed("compare", "--all", check=False)
    assert "there are no two runs to compare" in said
