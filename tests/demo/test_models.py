"""The models on offer: this run, folders, experiments with their epochs; and errors for other
names."""

import shutil
from pathlib import Path

import pytest

from tests.demo.demo_project import EXPERIMENT
from tests.pipeline.project import Project
from tests.runs.unfinished import begin
from tokenmill.core.errors import UserError
from tokenmill.core.paths import MODEL
from tokenmill.demo.models import EXPERIMENT as KIND
from tokenmill.demo.models import THIS_RUN, Models
from tokenmill.model.manifest import MANIFEST


def test_this_run_and_folders_need_no_git(project: Path):
    reciter = project.parent / "reciter"
    models = Models(project, [reciter])
    assert models.names() == [THIS_RUN, f"folder {reciter}"]
    assert models.epochs(THIS_RUN) == [1, 2]
    assert models.epochs(f"folder {reciter}") == []
    assert models.checkpoint(THIS_RUN, 1).folder == project / MODEL / "epoch-1"
    assert models.checkpoint(THIS_RUN, None).folder == project / MODEL / "epoch-2"
    assert models.checkpoint(f"folder {reciter}", None).folder == reciter


def test_a_training_under_way_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "project").mkdir()
    begin(tmp_path / "project")
    models = Models(tmp_path / "project")
    assert (models.names(), models.epochs(THIS_RUN)) == ([THIS_RUN], [1])
    assert models.checkpoint(THIS_RUN, 1).folder.name == "epoch-1"


@pytest.mark.slow
def test_experiments_have_their_own_epochs(kept: Path, tmp_path: Path):
    name = f"{KIND}{EXPERIMENT}"
    models = Models(kept)
    assert models.names() == [THIS_RUN, name]
    assert [value for _, value in models.labels()] == [THIS_RUN, name]
    assert models.epochs(name) == [1, 2, 3]
    found = models.checkpoint(name, 3)
    assert found.name == f"epoch 3 of {EXPERIMENT}"
    assert found.folder.joinpath("model.safetensors").exists()
    assert models.checkpoint(name, 3) is found
    with pytest.raises(UserError, match="no epoch 4"):
        models.checkpoint(name, 4)


@pytest.mark.slow
def test_removed_experiment_is_refused(kept: Path, tmp_path: Path):
    root = shutil.copytree(kept, tmp_path / "project")
    models = Models(root)
    assert models.checkpoint(f"{KIND}{EXPERIMENT}", 1)
    Project(root).run("dvc", "exp", "remove", EXPERIMENT)
    with pytest.raises(UserError, match=f"'{KIND}{EXPERIMENT}'.* this run"):
        models.checkpoint(f"{KIND}{EXPERIMENT}", 1)
    assert models.names() == [THIS_RUN]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["", "folder /etc", f"{KIND}--output=stolen", f"{KIND}HEAD", "none", "../../etc"]
)
def test_only_offered_names_are_looked_up(kept: Path, name: str):
    models = Models(kept)
    assert models.epochs(name) == []
    with pytest.raises(UserError, match="there is no model"):
        models.checkpoint(name, None)
    assert not list(kept.glob("stolen*"))


def test_no_model_at_all_is_an_error(tmp_path: Path, project: Path):
    with pytest.raises(UserError, match="`dvc repro` trains one"):
        Models(tmp_path).check()
    with pytest.raises(UserError, match=r"holds no config\.json"):
        Models(project, [tmp_path]).check()
    Models(tmp_path, [project.parent / "reciter"]).check()


def test_damaged_manifest_is_an_error_when_used(project: Path, tmp_path: Path):
    root = shutil.copytree(project, tmp_path / "project")
    (root / MODEL / MANIFEST).write_text('{"format_version": 1}', encoding="utf-8")
    models = Models(root)
    assert models.names() == [THIS_RUN]
    with pytest.raises(UserError, match="is damaged"):
        models.epochs(THIS_RUN)
