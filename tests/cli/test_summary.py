"""`tokenmill` alone: what it says of each state that a project can be in."""

import errno
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal
from unittest import mock

import pytest
import yaml

from tests.fresh import imported_by
from tests.imports import ROOT
from tests.pipeline.project import Project, change_params
from tests.runs.locks import write_lock
from tokenmill import git
from tokenmill.cli.main import build_parser, main
from tokenmill.cli.summary import (
    COMMIT,
    Status,
    activation,
    after_training,
    early_end_here,
    finetuned_lines,
    status,
    warnings,
)
from tokenmill.core.files import write_json, write_text
from tokenmill.core.params import ParamsError
from tokenmill.core.paths import EVALUATION, MODEL, STEPS
from tokenmill.evaluation.results import (
    Answer,
    EpochResult,
    Evaluation,
    Question,
)
from tokenmill.formats.records import read_record, write_rows
from tokenmill.model.manifest import read_manifest
from tokenmill.training.history import EpochRow, train_metrics

TOKENIZER = {
    "type": "bpe",
    "vocab_size": 512,
    "requested_vocab_size": 512,
    "sample_bytes": 9,
    "corpus_too_small": False,
    "bytes_per_token": 2.5,
}


def epoch_refs(root: Path, losses: list[float]) -> None:
    """The refs of a run with these losses, in a new repository."""
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
    for epoch, loss in enumerate(losses, start=1):
        measured = json.dumps(train_metrics(row(epoch, loss), parameters=1))
        git.execute(
            root,
            "fast-import",
            "--quiet",
            stdin=f"commit refs/epoch-{epoch}\ncommitter a <a@b> 0 +0000\ndata 0\n"
            f"M 100644 inline metrics/train.json\ndata {len(measured)}\n{measured}\n",
        )


def row(epoch: int, loss: float) -> EpochRow:
    return EpochRow(epoch, 10 * epoch, 80 * epoch, 0.01, loss, loss, 2.0, 1.0)


def commands(found: Status) -> list[str]:
    return [command for command, _ in found.commands]


def test_outside_a_project_it_says_how_to_get_one(tmp_path: Path):
    found = status(tmp_path)
    assert str(tmp_path) in found.sentence
    assert commands(found) == ["git clone URL tokenmill && cd tokenmill", "make repro"]


@pytest.mark.parametrize(
    ("command", "writes"),
    [("summary", "tokenmill.costs.write_text"), ("compare", "tokenmill.cli.compare.write_text")],
)
def test_a_project_that_is_only_to_be_read_has_its_figures(
    finished: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    writes: str,
):
    refuses = mock.Mock(side_effect=OSError(errno.EROFS, "Read-only file system"))
    monkeypatch.setattr(writes, refuses)
    monkeypatch.setattr("tokenmill.doctor.environment.is_writable", lambda _: False)
    monkeypatch.chdir(finished.root)
    main([command])
    assert refuses.called
    assert "What is the capital of France?" in capsys.readouterr().out
    assert "dvc repro" not in commands(status(finished.root))


def test_what_is_damaged_is_refused_before_anything_is_shown(
    finished: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (finished.root / "metrics/history.csv").write_bytes(b"\xff")
    monkeypatch.chdir(finished.root)
    with pytest.raises(SystemExit, match=r"history\.csv"):
        main(["summary"])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("target", "says"), [(99.0, True), (None, False)])
def test_a_run_that_came_to_its_target_says_so(
    finished: Project, monkeypatch: pytest.MonkeyPatch, target: float | None, says: bool
):
    monkeypatch.chdir(finished.root)
    train = read_manifest(MODEL).train.model_copy(update={"target_loss": target})
    assert bool(early_end_here(train)) == says
    steps = finished.root / STEPS
    whole = steps.read_text()
    write_text(steps, whole.splitlines(keepends=True)[0])
    assert early_end_here(train) == "", "a table without rows says nothing"
    write_text(steps, whole)


def test_below_the_root_it_leads_to_the_root(project: Project):
    assert commands(status(project.root / "src")) == [f"cd {project.root}"]


def test_commands_below_the_root_name_it(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(project.root / "src")
    for command in ("summary", "compare", "publish", "watch", "runs", "doctor", "generate"):
        with pytest.raises(SystemExit, match=re.escape(f"project {project.root};")):
            main([command])
    main(["completion", "bash"])
    assert "tokenmill" in capsys.readouterr().out


def test_in_a_fresh_project_everything_is_to_run(project: Project):
    found = status(project.root)
    assert commands(found) == ["dvc repro"]
    assert found.commands[0][1].endswith("train, evaluate, trace, benchmark, report")
    (project.root / "dvc.lock").write_text("schema: '2.0'\n")
    assert commands(status(project.root)) == ["dvc repro", "dvc pull && dvc repro"]


def test_it_imports_no_torch(project: Project):
    found = imported_by("-m", "tokenmill", cwd=project.root)
    assert "dvc.repo" in found
    assert "torch" not in found


def test_wrong_parameters_come_first(project: Project):
    project.set(model__n_layers=3)
    found = status(project.root)
    assert "model.n_layers" in found.sentence
    assert commands(found) == ["tokenmill params"]


def test_without_dvc_the_doctor_is_named(project: Project):
    (project.root / ".dvc").rename(project.root / "dvc")
    assert commands(status(project.root)) == ["tokenmill doctor"]


def test_another_run_is_waited_for(project: Project):
    (project.root / ".dvc" / "tmp").mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", "dvc repro"]
    ) as other:
        lock = {"write": {"models/gpt": {"pid": other.pid, "cmd": "dvc repro"}}, "read": {}}
        (project.root / ".dvc" / "tmp" / "rwlock").write_text(json.dumps(lock))
        found = status(project.root)
        other.kill()
    assert f"process {other.pid}" in found.sentence
    assert commands(found) == ["tokenmill doctor"]


def evaluated(epochs: int, kind: Literal["user", "text"] = "user") -> Evaluation:
    question = Question(prompt="O Romeo, my Romeo's love", expect=None, left_out="", kind=kind)
    answer = Answer(greedy="", sampled="", found=None, repetition=0.0)
    losses = {"train_loss": 1.0, "val_loss": 1.0, "perplexity": 3.0, "bits_per_byte": 1.0}
    results = [EpochResult(epoch=epoch + 1, **losses, answers=[answer]) for epoch in range(epochs)]
    return Evaluation(questions=[question], epochs=results)


def typed(root: Path, evaluation: Evaluation) -> list[str]:
    return [command for command, _ in after_training(evaluation, root=root)]


def changed(folder: Path, **values: object) -> Path:
    """A folder with the project's params.yaml, of which some values are changed, `__` for a dot."""
    path = folder / "params.yaml"
    shutil.copyfile(ROOT / "params.yaml", path)
    change_params(path, {name.replace("__", "."): value for name, value in values.items()})
    return folder


@pytest.mark.parametrize("kind", ["user", "text"])
def test_its_own_commands_are_valid_command_lines(kind: Literal["user", "text"]):
    ours = [
        shlex.split(command)
        for command in typed(ROOT, evaluated(4, kind))
        if command.startswith("tokenmill ")
    ]
    assert len(ours) >= 3
    for _, *arguments in ours:
        assert build_parser().parse_args(arguments).command == arguments[0]


def test_own_text_at_defaults_is_led_to_fit(tmp_path: Path):
    own = {"data__raw": "/texts"}
    for values, led in (({}, False), (own, True), (own | {"model__n_layer": 5}, False)):
        commands = typed(changed(tmp_path, **values), evaluated(4))
        assert any("tokenmill fit" in command for command in commands) is led


def test_advice_follows_from_epochs_text_and_prompts(tmp_path: Path):
    without_git = typed(changed(tmp_path), evaluated(3))
    assert "dvc repro" in without_git
    assert not any("exp run" in command or "report" in command for command in without_git)
    epoch_refs(tmp_path, [])
    sample = typed(changed(tmp_path), evaluated(1))
    assert not any("metrics diff" in command for command in sample)
    assert "tokenmill try /path/to/texts" in sample
    assert "tokenmill generate" in sample
    own = typed(changed(tmp_path, data__raw="/texts", model__n_layer=7), evaluated(3, "text"))
    assert "dvc repro -sf report" in own, "a clone has no refs of epochs"
    epoch_refs(tmp_path, [3.0, 2.0, 1.0])
    for last, offered in ((1.5, "dvc repro -sf report"), (1.0, "dvc metrics diff epoch-1 epoch-3")):
        losses = [3.0, 2.0, last]
        rows = [row(epoch, loss) for epoch, loss in enumerate(losses, start=1)]
        write_rows(tmp_path / "metrics/history.csv", EpochRow, rows)
        own = typed(tmp_path, evaluated(3, "text"))
        assert offered in own, "the refs may be of another run"
    assert not any("data.raw" in command for command in own)
    assert "dvc exp run -S model.n_layer=9" in own
    (asking,) = [command for command in own if command.startswith("tokenmill generate")]
    assert shlex.split(asking) == ["tokenmill", "generate", "--text", "O Romeo, my"]


def test_wrong_parameters_are_refused_by_name(tmp_path: Path):
    root = changed(tmp_path, model__n_layer="four")
    with pytest.raises(ParamsError) as refused:
        typed(root, evaluated(1))
    assert refused.value.parameters == ["model.n_layer"]
    older = yaml.safe_load((root / "params.yaml").read_text())
    del older["finetune"], older["model"]
    (root / "params.yaml").write_text(yaml.safe_dump(older))
    with pytest.raises(ParamsError) as refused:
        finetuned_lines(root)
    assert refused.value.parameters == ["model", "finetune"]


def test_a_fine_tuned_model_is_seen(tmp_path: Path):
    write_lock(tmp_path)
    assert finetuned_lines(changed(tmp_path)) == [], "what is left of an earlier experiment"
    root = changed(tmp_path, finetune__methods=["lora"], finetune__data="/chats")
    (name, said), (_, where) = finetuned_lines(root)
    assert name == "models/finetuned"
    assert all(part in said for part in ("lora", "3 epochs", "2.865", "4.522", "3.831"))
    assert "reports/finetuned.md" in where
    assert typed(root, evaluated(1))[0] == "tokenmill generate --model models/finetuned/epoch-3"
    write_lock(root, base="earlier")
    assert finetuned_lines(root) == [], "it was made from an earlier model"
    write_lock(root)
    write_json(tmp_path / "metrics/data.json", {"unigram_bits_per_byte": 2.0})
    write_json(tmp_path / "metrics/tokenizer.json", TOKENIZER)
    (warning,) = warnings(evaluated(1), root)
    assert {"1.20", "2.50"} <= set(warning.split())
    (root / "metrics/finetuned/train.json").unlink()
    assert finetuned_lines(root) == [], "`finetune` was killed"
    write_lock(root)
    changed(root, finetune__methods=["full"], finetune__data="/chats")
    assert finetuned_lines(root) == [], "it was made by another method"


def test_a_model_that_learned_nothing_is_warned_of(tmp_path: Path):
    for frequencies, count in ((0.9, 1), (1.1, 0)):
        write_json(tmp_path / "metrics/data.json", {"unigram_bits_per_byte": frequencies})
        assert len(warnings(evaluated(1), changed(tmp_path))) == count


@pytest.mark.parametrize("is_active", [True, False])
def test_only_an_environment_that_is_not_active_is_activated(
    monkeypatch: pytest.MonkeyPatch, is_active: bool
):
    monkeypatch.setattr(sys, "prefix", "/envs/my own")
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix if is_active else "/envs/other")
    found = [command for command, _ in activation()]
    assert found == ([] if is_active else [". '/envs/my own/bin/activate'"])


@pytest.mark.slow
def test_from_trained_to_committed_to_changed(finished: Project, monkeypatch: pytest.MonkeyPatch):
    trained = status(finished.root)
    assert trained.sentence.startswith("trained: 2 epochs")
    evaluation = read_record(finished.root / EVALUATION, Evaluation)
    assert trained.commands == after_training(evaluation, root=finished.root)
    assert "dvc exp run -S train.epochs=4" in commands(trained)
    summary = finished.run("python", "-m", "tokenmill", "summary").splitlines()
    assert all(
        any(line.strip().startswith(command) for line in summary) for command in commands(trained)
    )

    (finished.root / "metrics" / "new.json").write_text("{}")
    assert status(finished.root).commands == [
        COMMIT,
        *after_training(evaluation, root=finished.root),
    ]
    (finished.root / "metrics" / "new.json").unlink()

    finished.set(model__n_layer=2)
    changed = status(finished.root)
    assert changed.sentence == "to run: check, train, evaluate, trace, benchmark, report."
    assert commands(changed) == ["dvc repro", "dvc status"]

    monkeypatch.chdir(finished.root)
    main([])
