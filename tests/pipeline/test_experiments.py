"""Experiments under real DVC: what their commits hold, what the cache gives back, what more epochs cost."""

import json
import time

import pytest

from tests.pipeline.project import Project, ran

pytestmark = pytest.mark.slow


def experiment_files(project: Project) -> list[str]:
    """Every file in the commits of all experiments."""
    names = [entry["rev"] for entry in experiments(project)]
    return [file for name in names for file in project.run("git", "ls-tree", "-r", "--name-only", name).splitlines()]


def experiments(project: Project) -> list[dict[str, str]]:
    """Name and revision of each experiment."""
    refs = project.run("git", "for-each-ref", "--format=%(objectname)", "refs/exps").split()
    return [{"rev": rev} for rev in refs]


def test_an_experiment_and_back_comes_from_the_cache(finished: Project) -> None:
    model = finished.output("train", "models/gpt")
    assert ran(finished.run("dvc", "exp", "run", "-S", "model.n_layer=2")) == ["train", "evaluate", "epochs"]
    assert finished.output("train", "models/gpt") != model
    back = finished.run("dvc", "exp", "run", "-S", "model.n_layer=1")
    assert "Stage 'train' is cached" in back
    assert ran(back) == ["epochs"]
    assert finished.output("train", "models/gpt") == model
    assert experiment_files(finished)
    assert not [
        name for name in experiment_files(finished) if name.endswith((".bin", ".safetensors", ".parquet", ".zst"))
    ]


def test_temporary_and_queued_runs_use_the_code_beside_them(finished: Project) -> None:
    """The editable install of the test environment points elsewhere; a queued run must not import that."""
    where = "import stages, tokenmill; print(tokenmill.__file__)"
    assert str(finished.root) in finished.run("python", "-c", where)
    finished.run("dvc", "exp", "run", "--queue", "-S", "train.learning_rate=0.001,0.002")
    finished.run("dvc", "queue", "start", "-j", "2")
    wait_for_queue(finished)
    finished.run("dvc", "exp", "run", "--temp", "-S", "train.learning_rate=0.003")
    shown = json.loads(finished.run("dvc", "exp", "show", "--json"))
    runs = [run for entry in shown for run in entry.get("experiments") or []]
    rates = {run["revs"][0]["data"]["params"]["params.yaml"]["data"]["train"]["learning_rate"] for run in runs}
    assert rates == {0.001, 0.002, 0.003}
    assert not [name for name in experiment_files(finished) if name.startswith(("data/", "models/"))]
    assert finished.run("git", "status", "--porcelain") == ""


def wait_for_queue(project: Project) -> None:
    """Until no queued experiment is left or running."""
    for _ in range(240):
        status = project.run("dvc", "queue", "status")
        if "Running" not in status and "Queued" not in status:
            assert "Failed" not in status, status
            return
        time.sleep(1)
    raise AssertionError("the queue did not end")


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        ({"train__schedule__type": "constant"}, "2 epochs done, 2 to go"),
        ({"train__schedule__type": "wsd"}, "where the decay of 2 epochs had not begun"),
        ({"train__schedule__type": "cosine", "train__schedule__horizon_epochs": 4}, "2 epochs done, 2 to go"),
    ],
)
def test_more_epochs_continue_bit_for_bit(project: Project, schedule: dict[str, object], sentence: str) -> None:
    other = project.clone("other")
    for each in (project, other):
        each.set(**schedule)
        each.commit()
    project.repro("train")
    longer = project.run("dvc", "exp", "run", "-S", "train.epochs=4", "train")
    assert sentence in longer
    other.set(train__epochs=4)
    assert "starting from scratch" in other.repro("train")
    assert project.digest("models", "metrics/history.csv", "metrics/steps.csv") == other.digest(
        "models", "metrics/history.csv", "metrics/steps.csv"
    )


def test_a_schedule_over_all_epochs_says_what_it_does(project: Project) -> None:
    project.set(train__schedule__type="cosine")
    project.repro("train")
    project.set(train__epochs=3)
    assert "the result differs from a run in one go" in project.repro("train")
