"""`tokenmill runs` on a real project whose stages are quick."""

import errno
import io
import json
import re
import shutil
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest
from dvc.api import exp_show
from dvc.repo import Repo
from scmrepo.exceptions import SCMError
from scmrepo.git import Git

from tests.imports import ROOT
from tests.pipeline.project import Project
from tests.runs.locks import write_lock
from tests.terminal import Terminal
from tokenmill import git
from tokenmill.cli.main import main
from tokenmill.cli.runs import COMMITS, ranked
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_text
from tokenmill.runs.table import (
    COLUMNS,
    COUNTS,
    EVALUATED,
    FINETUNED_METRICS,
    SHOWN_METRICS,
    TRAINED,
    VALIDATION,
    find_runs,
    names_of_runs,
    of_own_model,
    read_whole,
)

PIPELINE = """\
stages:
  train:
    cmd: python train.py
    deps: [train.py]
    params: [model, train]
    outs: [models/gpt]
    metrics: [metrics/train.json: {cache: false}, metrics/eval.json: {cache: false}]
  report: {cmd: ls, deps: [models/gpt]}
"""

TRAIN = """\
import json, pathlib, re
layers = int(re.search(r"n_layer: (\\d+)", pathlib.Path("params.yaml").read_text())[1])
files = {
    "models/gpt/manifest.json": {"fingerprint": f"run-{layers}"},
    "metrics/train.json": {
        "epoch": 1, "steps": 20, "parameters": layers << 20, "train_loss": 1, "val_loss": 8 / layers
    },
    "metrics/eval.json": {"bits_per_byte": 2 / layers, "expected_found": layers / 10},
}
for name, content in files.items():
    pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(name).write_text(json.dumps(content))
"""

TIMING = (
    "step,seconds,tokens_per_second,units,money,currency\n"
    "10,30,1000,,0.1,EUR\n20,60,2000,,0.2,EUR\n30,90,9000,,0.3,EUR\n"
)
IN_PART = (
    "step,seconds,tokens_per_second,units,money,after\n20,5,1000,,0.1,12\n30,10,1000,,0.2,12\n"
)
"""The times of a run of 30 steps that continued a model of 20 from elsewhere."""

MEASURED = ["metrics/train.json:val_loss", "bits_per_byte", "metrics/eval.json:seen_right"]
"""Metrics of a model as DVC names them; but for the first, `evaluate` writes them."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """main~1: nothing ran; main: 4 layers, from elsewhere; main after a commit of notes only;
    experiment `calm-oxen`: 2 layers, all validation bytes; experiment `no-layer`: failed."""
    project = Project.new(tmp_path_factory.mktemp("runs"))
    shutil.copy(ROOT / "params.yaml", project.root)
    (project.root / "dvc.yaml").write_text(PIPELINE)
    (project.root / "train.py").write_text(TRAIN)
    (project.root / ".gitignore").write_text("/models\n/.resume\n")
    project.commit()
    project.run("dvc", "repro")
    project.commit()
    for name, layers in {"calm-oxen": 2, "no-layer": 0}.items():
        values = ["-S", f"model.n_layer={layers}", "-S", "runtime.device=cpu"]
        values += ["-S", "train.validation_bytes=null"]
        project.run("dvc", "exp", "run", "--queue", "-n", name, *values)
    project.run("dvc", "exp", "run", "--run-all")
    project.run("git", "checkout", "-q", "-f", "HEAD")
    (project.root / "notes.txt").write_text("nothing new")
    project.commit()
    (project.root / ".resume/run-2").mkdir(parents=True)
    (project.root / ".resume/run-2/timing.csv").write_text(TIMING)
    (project.root / ".resume/run-4.timing.csv").write_text(IN_PART)
    return project


def test_runs_of_different_texts_are_not_ranked_together():
    rows = [("a", "x", 2.0), ("b", "y", 0.5), ("c", "x", 1.0), ("d", "y", None), ("e", "x", None)]
    table = pd.DataFrame(rows, columns=["run", "text", "seconds"])
    assert list(ranked(table, "seconds", ascending=True)["run"]) == ["c", "a", "e", "b", "d"]
    assert list(ranked(table, "seconds", ascending=False)["run"]) == ["a", "c", "e", "b", "d"]


def test_losses_are_ranked_by_validation_text_and_tokenizer():
    rows = [
        ("a", "s", "v", "t", 2.0),
        ("b", "s", "other", "t", 0.5),
        ("c", "s", "v", "other", 1.0),
        ("d", "moved", "v", "t", 1.5),
    ]
    names = ["run", "text", "validation_text", "tokenizer", "val_loss"]
    table = pd.DataFrame(rows, columns=names).assign(bits_per_byte=lambda found: found["val_loss"])
    assert list(ranked(table, "bits_per_byte", ascending=True)["run"]) == list("cdab")
    assert list(ranked(table, "val_loss", ascending=True)["run"]) == list("dacb")


@pytest.mark.parametrize(
    ("changed", "hashes", "is_same"),
    [
        ({"model.n_layer": 2.0, "data.raw": "moved"}, {}, True),
        ({"train.validation_bytes": "None"}, {}, False),
        ({"tokenize.val_fraction": 0.1}, {}, False),
        ({}, {"clean": "filtered"}, False),
    ],
)
def test_the_validation_text_is_told_by_what_decides_it(
    changed: dict[str, Any], hashes: dict[str, str], is_same: bool, tmp_path: Path
):
    entry = {"rev": "workspace", "train.epochs": 2.0, "train.target_loss": "None"}
    entry |= {"data.raw": "texts", "train.validation_bytes": 1e5, "tokenize.val_fraction": 0.05}
    write_lock(tmp_path)
    first = of_own_model(entry, tmp_path)[VALIDATION]
    if hashes:
        lock = tmp_path / "dvc.lock"
        lock.write_text(re.sub("md5: text\n", f"md5: {hashes['clean']}\n", lock.read_text()))
    assert (of_own_model(entry | changed, tmp_path)[VALIDATION] == first) is is_same


def test_costs_of_different_currencies_are_not_ranked_together():
    rows = [
        ("a", "x", 3.0, "EUR"),
        ("b", "x", 1.0, "USD"),
        ("c", "x", None, None),
        ("d", "y", 0.5, "USD"),
        ("e", "x", 2.0, None),
        ("f", "x", 2.0, "EUR"),
        ("g", "x", 0.5, "USD"),
    ]
    table = pd.DataFrame(rows, columns=["run", "text", "money", "currency"])
    assert list(ranked(table, "money", ascending=True)["run"]) == list("fagbecd")


@pytest.mark.parametrize(("out", "is_whole"), [(Terminal(), False), (io.StringIO(), True)])
def test_only_a_terminal_gets_a_long_name_shortened(
    out: io.StringIO, is_whole: bool, monkeypatch: pytest.MonkeyPatch
):
    known = {"state": "", "changed": "", "text": "", "val_loss": 2.5}
    table = pd.DataFrame([{"run": name} | known for name in ("main", "n" * 200)], columns=COLUMNS)
    monkeypatch.setattr("tokenmill.runs.table.find_runs", lambda *_, **__: table)
    monkeypatch.setattr(sys, "stdout", out)
    main(["runs"])
    lines = [line for line in out.getvalue().splitlines() if "2.5000" in line]
    assert len(lines) == 2
    assert all((len(line) > 200) is is_whole for line in lines)


@pytest.mark.parametrize(("file", "columns"), [("train.json", TRAINED), ("eval.json", EVALUATED)])
def test_the_columns_are_metrics_of_their_stage(file: str, columns: dict[str, str]):
    assert set(columns.values()) <= json.loads((ROOT / "metrics" / file).read_bytes()).keys()


@pytest.mark.parametrize(
    ("earlier", "lacking"),
    [
        ({}, set()),
        ({"evaluated": "earlier"}, set(MEASURED[1:])),
        ({"base": "earlier"}, set(FINETUNED_METRICS.values())),
        ({"asked": "earlier"}, set(FINETUNED_METRICS.values())),
        ({"tokenized": "earlier"}, set(MEASURED)),
        ({"encoded_by": "earlier"}, set(MEASURED)),
        ({"trained": "earlier"}, set(MEASURED)),
        ({"epochs": 1}, set(MEASURED)),
        ({"raw": "other texts"}, set(MEASURED)),
    ],
)
def test_what_was_measured_of_an_earlier_model_is_left_out(
    earlier: dict[str, Any], lacking: set[str], tmp_path: Path
):
    write_lock(tmp_path, **earlier)
    entry = dict.fromkeys([*MEASURED, *FINETUNED_METRICS.values()], 1.0)
    entry |= {"rev": "workspace", "finetune.methods": "['lora']", "models/gpt": "read by report"}
    entry |= {"train.epochs": 2.0, "train.target_loss": "None"}  # as DVC shows them
    entry |= {"data.raw": f"{tmp_path}/texts"}
    own = of_own_model(entry, tmp_path)
    assert entry.keys() - own.keys() == lacking
    assert own["models/gpt"] == "model"


def test_a_text_beside_the_code_has_its_losses(tmp_path: Path):
    write_lock(tmp_path, raw="src/texts")
    entry = dict.fromkeys(MEASURED, 1.0) | {"rev": "workspace", "data.raw": "src/texts"}
    entry |= {"train.epochs": 2.0, "train.target_loss": "None"}
    assert of_own_model(entry, tmp_path).keys() >= set(MEASURED)


def test_what_was_measured_of_another_method_is_left_out(tmp_path: Path):
    write_lock(tmp_path)
    lock = tmp_path / "dvc.lock"
    lock.write_text(re.sub(r"  finetune@full:\n(?:    .*\n)+", "", lock.read_text()))
    entry = dict.fromkeys(FINETUNED_METRICS.values(), 1.0) | {"rev": "workspace"}
    for method in ("full", "lora"):
        own = of_own_model(entry | {"finetune.methods": f"['{method}']"}, tmp_path)
        assert (own.keys() >= set(FINETUNED_METRICS.values())) is (method == "lora")


@pytest.mark.slow
def test_each_run_stands_with_what_it_changed_and_took(project: Project):
    runs = find_runs(project.root, commits=5)
    finished = runs.dropna(subset="val_loss")["run"].tolist()
    assert names_of_runs(project.root, commits=COMMITS) == finished
    assert list(runs["run"]) == ["workspace", "main", "calm-oxen", "no-layer"]
    rows = runs.set_index("run").to_dict("index")
    changed = "model.n_layer=2 train.validation_bytes=null"
    assert rows["calm-oxen"]["changed"] == changed, "as DVC takes them; runtime changes no result"
    assert list(runs["state"]) == ["", "", "", "failed"], "a success need not be said"
    assert (rows["main"]["val_loss"], rows["main"]["right"]) == (2.0, 0.4)
    assert (rows["calm-oxen"]["bits_per_byte"], rows["calm-oxen"]["epochs"]) == (1.0, 1)
    took = [
        rows["calm-oxen"][name] for name in ("seconds", "money", "currency", "tokens_per_second")
    ]
    assert took == [60.0, 0.2, "EUR", 1500.0], "up to the last step of the run"
    assert pd.isna(rows["main"]["seconds"])


@pytest.mark.slow
def test_a_run_under_way_has_no_results_of_the_one_before(project: Project):
    metrics = project.root / "metrics/train.json"
    content = metrics.read_bytes()
    metrics.unlink()
    workspace = find_runs(project.root, commits=1).set_index("run").loc["workspace"]
    metrics.write_bytes(content)
    assert workspace[list(SHOWN_METRICS)].isna().all()


@pytest.mark.slow
def test_a_run_that_failed_or_is_not_trained_has_no_results(project: Project):
    shutil.copytree(project.root / ".resume/run-2", project.root / ".resume/run-4")
    parameters = (project.root / "params.yaml").read_text()
    (project.root / "params.yaml").write_text(parameters.replace("n_layer: 4", "n_layer: 3"))
    runs = find_runs(project.root, commits=1).set_index("run")
    (project.root / "params.yaml").write_text(parameters)
    shutil.rmtree(project.root / ".resume/run-4")
    assert runs.loc["main", ["val_loss", "seconds"]].notna().all()
    assert runs.loc[["workspace", "no-layer"], [*SHOWN_METRICS, "seconds"]].isna().all(axis=None)


@pytest.mark.slow
def test_an_experiment_that_dvc_sets_up_is_named_as_such(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shown = exp_show(str(project.root))
    new = dict.fromkeys(shown[0]) | {"Experiment": "new", "rev": "0" * 40, "State": "Running"}
    monkeypatch.setattr("tokenmill.runs.table.exp_show", lambda *_, **__: [*shown, new])
    row = find_runs(project.root, commits=1).iloc[-1].dropna().to_dict()
    assert row == {"run": "new", "rev": "0" * 40, "state": "running", "changed": "", "text": ""}
    monkeypatch.setattr("tokenmill.runs.table.MOMENT", 0)
    copy = project.root / ".dvc/tmp/exps/tmp1"
    answers = [Repo, open, lambda _: Git.init(str(tmp_path)).get_rev(), lambda _: shown]
    monkeypatch.setattr("tokenmill.runs.table.exp_show", lambda *_, **__: answers.pop(0)(str(copy)))
    assert len(find_runs(project.root, commits=1)) == len(shown), "asked until the copy is whole"
    monkeypatch.setattr("tokenmill.runs.table.exp_show", lambda *_, **__: Repo(str(copy)))
    with pytest.raises(UserError, match=r"tmp1.*try again"):
        find_runs(project.root, commits=1)
    monkeypatch.setattr(
        "tokenmill.runs.table.exp_show", lambda *_, **__: (copy / "1.run").read_text()
    )
    with pytest.raises(UserError, match=r"1\.run.*dvc queue kill"):
        find_runs(project.root, commits=1)
    refuses = mock.Mock(side_effect=OSError(errno.EROFS, "Read-only file system", str(copy)))
    monkeypatch.setattr("tokenmill.runs.table.exp_show", refuses)
    with pytest.raises(OSError, match="Read-only"):
        find_runs(project.root, commits=1)


def test_a_file_in_git_is_read_whole_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """DVC waited for ever for one whose repository is removed meanwhile."""
    monkeypatch.setattr("pygit2.BlobIO", read_whole)
    text = "a: 1\n" * 100_000
    write_text(tmp_path / "params.yaml", text)
    git.execute(tmp_path, "init", "-q")
    git.execute(tmp_path, "add", ".")
    git.execute(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    files = Git(str(tmp_path)).get_fs("HEAD")
    assert files.open("params.yaml", "r").read() == text
    shutil.rmtree(tmp_path / ".git/objects")
    with pytest.raises(SCMError):
        files.open("params.yaml", "r")


@pytest.mark.slow
def test_times_are_of_the_model_trained_last(project: Project):
    parameters = (project.root / "params.yaml").read_text()
    (project.root / "params.yaml").write_text(parameters.replace("n_layer: 4", "n_layer: 2"))
    project.run("dvc", "repro", "train")  # `report` has not read it yet
    workspace = find_runs(project.root, commits=1).set_index("run").loc["workspace"]
    project.run("git", "checkout", "-q", "-f", "HEAD")
    project.run("dvc", "checkout", "-q")
    assert workspace["seconds"] == 60


@pytest.mark.slow
def test_the_table_is_sorted_and_fits_80_columns(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(project.root)
    main(["runs", "--sort", "speed"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == [
        "run",
        "calm-oxen",
        "model.n_layer=2",
        "workspace",
    ]
    assert not [line for line in lines if len(line) > 80]
    assert sum("`dvc queue logs no-layer`" in line for line in lines) == 1
    main(["runs", "--csv", "--sort", "bits"])
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert list(table.columns) == COLUMNS
    assert table["bits_per_byte"].dropna().is_monotonic_increasing


@pytest.mark.slow
def test_programs_get_whole_counts_and_the_time_of_commits(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(project.root)
    main(["runs", "--csv"])
    rows = pd.read_csv(io.StringIO(capsys.readouterr().out), dtype=str).set_index("run")
    assert list(rows.loc["main", list(COUNTS)]) == ["1", "20", "4194304"]
    main(["runs", "--json"])
    workspace, commit, experiment, _ = json.loads(capsys.readouterr().out)["runs"]
    assert [type(commit[name]) for name in COUNTS] == [int] * 3
    assert experiment["parameters"] == 2 << 20
    assert workspace["created"] is None
    for row in (commit, experiment):
        age = datetime.now().astimezone() - datetime.fromisoformat(row["created"])
        assert timedelta(0) <= age < timedelta(hours=1)
        assert rows.loc[row["run"], "created"] == row["created"]


@pytest.mark.slow
def test_a_currency_that_is_not_known_is_null(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    timing = project.root / ".resume/run-2/timing.csv"
    timing.write_text(TIMING.replace(",currency", "").replace(",EUR", ""))
    monkeypatch.chdir(project.root)
    main(["runs", "--json"])
    *_, experiment, _ = json.loads(capsys.readouterr().out)["runs"]
    main(["runs"])
    timing.write_text(TIMING)
    assert (experiment["money"], experiment["currency"]) == (0.2, None)
    assert re.search(r"^calm-oxen .* 0\.20$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.slow
def test_before_the_first_run_the_cells_are_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    project = Project.new(tmp_path)
    shutil.copy(ROOT / "params.yaml", project.root)
    (project.root / "dvc.yaml").write_text(PIPELINE)
    monkeypatch.chdir(project.root)
    main(["runs", "--sort", "bits"])
    assert capsys.readouterr().out.split() == ["run"], "no commit, no row"
    project.commit()
    main(["runs"])
    assert capsys.readouterr().out.splitlines()[:2] == ["run", "workspace"], "no empty columns"


def test_outside_a_project_it_says_so(tmp_path: Path):
    with pytest.raises(UserError, match="doctor"):
        find_runs(tmp_path, commits=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["eval.json", "finetuned/train.json"])
def test_cut_metrics_are_named(project: Project, capsys: pytest.CaptureFixture[str], name: str):
    metrics = project.root / "metrics" / name
    write_text(metrics, '{"val_loss": 1')
    find_runs(project.root, commits=1)
    project.run("git", "clean", "-qfd", "metrics")
    project.run("git", "checkout", "-q", "metrics")
    assert name in capsys.readouterr().err
