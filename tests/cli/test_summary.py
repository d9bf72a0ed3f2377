"""`tokenmill summary`: what it prints of a project, and what it refuses."""

import errno
import re
import sys
from pathlib import Path
from unittest import mock

import pytest
import yaml

from tests.doctor.test_status import changed, commands, evaluated, typed
from tests.pipeline.project import Project
from tests.runs.locks import write_lock
from tokenmill.cli.main import main
from tokenmill.cli.summary import activation, early_end_here, finetuned_lines, warnings
from tokenmill.core.files import write_json, write_text
from tokenmill.core.params import ParamsError
from tokenmill.core.paths import MODEL, STEPS
from tokenmill.doctor.status import status
from tokenmill.model.manifest import read_manifest

TOKENIZER = {
    "type": "bpe",
    "vocab_size": 512,
    "requested_vocab_size": 512,
    "sample_bytes": 9,
    "corpus_too_small": False,
    "bytes_per_token": 2.5,
}


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


def test_commands_below_the_root_name_it(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(project.root / "src")
    for command in ("summary", "compare", "publish", "watch", "runs", "doctor", "generate"):
        with pytest.raises(SystemExit, match=re.escape(f"project {project.root};")):
            main([command])
    main(["completion", "bash"])
    assert "tokenmill" in capsys.readouterr().out


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
