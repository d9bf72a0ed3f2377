"""The state of a project in a sentence, and the commands to type next."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from tests.fresh import imported_by
from tests.imports import ROOT
from tests.pipeline.project import Project, change_params
from tokenmill import git
from tokenmill.cli.main import build_parser, main
from tokenmill.core.paths import EVALUATION
from tokenmill.doctor.next_steps import COMMIT, after_training
from tokenmill.doctor.status import Status, status
from tokenmill.evaluation.results import Answer, EpochResult, Evaluation, Question
from tokenmill.formats.records import read_record, write_rows
from tokenmill.training.history import EpochRow, train_metrics


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


def test_below_the_root_it_leads_to_the_root(project: Project):
    assert commands(status(project.root / "src")) == [f"cd {project.root}"]


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


def test_a_damaged_dvc_lock_is_told_with_what_mends_it(project: Project):
    """`dvc status` and `dvc repro` would say the same again."""
    (project.root / "dvc.lock").write_text("<<<<<<< HEAD\n")
    found = status(project.root)
    assert "dvc.lock" in found.sentence
    assert found.sentence.endswith(": rm dvc.lock")
    assert commands(found) == ["tokenmill doctor"]


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


def test_no_layers_are_added_to_a_model_to_start_from(tmp_path: Path):
    root = changed(tmp_path, model__start_from="models/start/gpt2")
    git.execute(root, "init", "--quiet")
    experiments = [each for each in typed(root, evaluated(1)) if each.startswith("dvc exp run")]
    assert experiments == [
        "dvc exp run -S train.batch_size=16",
        "dvc exp run -S train.epochs=3",
    ]


@pytest.mark.slow
def test_from_trained_to_committed_to_changed(finished: Project, monkeypatch: pytest.MonkeyPatch):
    trained = status(finished.root)
    assert trained.sentence.startswith("trained: 2 epochs")
    evaluation = read_record(finished.root / EVALUATION, Evaluation)
    assert trained.commands == after_training(evaluation, root=finished.root)
    assert "dvc exp run -S train.epochs=4" in commands(trained)
    summary = finished.typed("summary").splitlines()
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
