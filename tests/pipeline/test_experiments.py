"""Experiments under real DVC: what their commits hold, what the cache gives back, what more epochs
cost."""

import json
import time
from dataclasses import dataclass

import pytest

from tests.pipeline.project import KEPT_IN_GIT, Project, ran
from tests.pipeline.test_repro import TIMES
from tokenmill.demo.models import Models
from tokenmill.runs.table import find_runs

pytestmark = pytest.mark.slow


def experiment_files(project: Project) -> list[str]:
    """Every file in the commits of all experiments."""
    names = [entry["rev"] for entry in experiments(project)]
    return [
        file
        for name in names
        for file in project.run("git", "ls-tree", "-r", "--name-only", name).splitlines()
    ]


def experiments(project: Project) -> list[dict[str, str]]:
    """Name and revision of each experiment."""
    refs = project.run("git", "for-each-ref", "--format=%(objectname)", "refs/exps").split()
    return [{"rev": rev} for rev in refs]


@dataclass(frozen=True)
class State:
    """What the last command said, and what it left in the workspace."""

    said: str
    model: str
    page: str

    @classmethod
    def of(cls, project: Project, said: str) -> "State":
        page = (project.root / "reports/index.html").read_text()
        return cls(said, project.output("train", "models/gpt"), page)


def test_an_experiment_and_back_comes_from_the_cache(finished: Project) -> None:
    before = State.of(finished, "")
    there, back = [
        State.of(finished, finished.run("dvc", "exp", "run", "-S", f"model.n_layer={count}"))
        for count in (2, 1)
    ]
    assert ran(there.said) == ["check", "train", "evaluate", "trace", "benchmark", "report"]
    assert there.model != before.model
    assert "Stage 'train' is cached" in back.said
    assert ran(back.said) == ["check", "report"]
    assert back.model == before.model
    assert TIMES.search(before.page)
    assert there.page != before.page
    assert back.page == before.page, "metrics/timing.csv is the other run's"
    run = json.loads((finished.root / "models/gpt/manifest.json").read_text())["fingerprint"]
    found = finished.run(
        "git", "log", "--all", "--format=%H", "-S", run, "--", "reports/index.html"
    )
    assert finished.run("git", "rev-parse", "HEAD") in found
    the_demo_offers_both(finished)
    files = experiment_files(finished)
    assert files
    assert not [
        name for name in files if name.endswith((".bin", ".safetensors", ".parquet", ".zst"))
    ]


def the_demo_offers_both(project: Project) -> None:
    """Each epoch of both experiments."""
    models = Models(project.root)
    run, *experiments = models.offers()
    assert len(experiments) == 2
    assert [offer.epochs for offer in experiments] == [run.epochs, run.epochs]
    assert sum("model.n_layer 2" in offer.facts for offer in experiments) == 1
    found = models.find(experiments[0], run.epochs)
    assert found.folder.joinpath("model.safetensors").is_file()


def test_temporary_and_queued_runs_use_what_is_beside_them(finished: Project) -> None:
    """The code, for the editable install of the test environment points elsewhere and a queued run
    must not import that; and the checkpoints."""
    finished.run("dvc", "exp", "run", "--queue", "-S", "evaluate.temperature=0.4", "evaluate")
    finished.run("dvc", "queue", "start")
    wait_for_queue(finished, 1)
    before = {path.name for path in finished.root.glob(".resume/*/step-*")}
    (folder,) = finished.root.glob(".resume/*/epochs")
    epochs = len(list(folder.iterdir()))
    (weights,) = folder.glob(f"epoch-{epochs}-*/model.safetensors")
    written = weights.stat().st_mtime_ns
    more = ("-S", "evaluate.temperature=0.6", "-S", f"train.epochs={epochs + 1}")
    assert "continuing from step" in finished.run("dvc", "exp", "run", "--temp", *more, "train")
    assert list(folder.glob(f"epoch-{epochs + 1}-*/model.safetensors"))
    assert weights.stat().st_mtime_ns == written, "an epoch that was there is not trained again"
    assert {path.name for path in finished.root.glob(".resume/*/step-*")} != before
    shown = json.loads(finished.run("dvc", "exp", "show", "--json"))
    runs = [run for entry in shown for run in entry.get("experiments") or []]
    params = [run["revs"][0]["data"]["params"]["params.yaml"]["data"] for run in runs]
    assert sorted(entry["evaluate"]["temperature"] for entry in params) == [0.4, 0.6]
    files = set(experiment_files(finished)) - KEPT_IN_GIT
    assert not [name for name in files if name.startswith(("data/", "models/"))]
    assert finished.run("git", "status", "--porcelain") == ""


def test_every_command_of_dvc_leaves_what_tokenmill_reads(finished: Project) -> None:
    """Apply, queue and the others keep refs of their own beside those of experiments."""
    finished.run("git", "clone", "-q", "--bare", str(finished.root), "../bare.git")
    finished.run("git", "remote", "add", "origin", "../bare.git")
    for command, listed in (
        (("run", "-n", "one", "-S", "evaluate.temperature=0.5", "evaluate"), {"one"}),
        (("apply", "one"), {"one"}),
        (("branch", "one", "of-one"), {"one"}),
        (("save", "-n", "two", "--force"), {"one", "two"}),
        (("rename", "two", "three"), {"one", "three"}),
        (("push", "--no-cache", "origin", "three"), {"one", "three"}),
        (("remove", "three"), {"one"}),
        (("pull", "--no-cache", "origin", "three"), {"one", "three"}),
        (("run", "--queue", "-n", "later", "-S", "evaluate.temperature=0.6"), {"one", "three"}),
    ):
        finished.run("dvc", "exp", *command)
        names = set(find_runs(finished.root, commits=1).run)
        assert names - {"workspace", "main", "later"} == listed, command
    assert "apply" in finished.run("git", "for-each-ref", "refs/exps/apply")
    finished.run("dvc", "exp", "apply", "not-there", check=False)
    asked = (["runs"], ["compare", "main", "one"], ["generate", "--rev", "one", "Hello"])
    for ask in asked:
        finished.typed(*ask)
    finished.run("git", "update-ref", "refs/exps/a", "HEAD")
    way_out = "git update-ref -d refs/exps/a"
    for ask in asked:
        said = finished.typed(*ask, check=False)
        assert way_out in said
        assert "Traceback" not in said
    assert way_out in finished.typed("doctor", check=False)


def wait_for_queue(project: Project, count: int) -> None:
    """Until so many experiments are there and DVC's queue, which takes a second to ask, has nothing
    more to do."""
    for _ in range(1200):
        if len(experiments(project)) == count:
            break
        time.sleep(0.2)
    for _ in range(60):
        status = project.run("dvc", "queue", "status")
        assert "Failed" not in status, status
        if "Running" not in status and "Queued" not in status:
            return
    raise AssertionError("the queue did not end")
