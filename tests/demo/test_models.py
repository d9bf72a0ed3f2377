"""The models on offer: this run, folders, experiments, each with its epochs."""

import shutil
from pathlib import Path

import pytest

from tests.demo.demo_project import EXPERIMENT
from tests.pipeline.project import Project
from tests.runs.unfinished import begin
from tokenmill.core.errors import UserError
from tokenmill.core.paths import MODEL
from tokenmill.demo.models import THIS_RUN, Models
from tokenmill.model.manifest import MANIFEST


def test_this_run_and_folders_need_no_git(project: Path):
    reciter = project.parent / "reciter"
    models = Models(project, [reciter])
    run, folder = models.offers()
    assert (run.label, run.epochs) == (f"{THIS_RUN} · loss 2.0000", 2)
    assert (folder.label, folder.epochs, folder.name_of(0)) == (str(reciter), 0, str(reciter))
    assert [run.name_of(n) for n in (1, 2)] == ["epoch 1", "epoch 2"]
    assert models.find(run, 1).folder == project / MODEL / "epoch-1"
    assert models.find(folder, 0).folder == reciter
    with pytest.raises(UserError, match="no epoch 3"):
        models.find(run, 3)


def test_a_training_under_way_is_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "project").mkdir()
    begin(tmp_path / "project")
    models = Models(tmp_path / "project")
    (run,) = models.offers()
    assert (run.name, run.epochs) == (THIS_RUN, 1)
    assert models.find(run, 1).folder.name.startswith("epoch-1-")
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_experiments_have_their_own_epochs(kept: Path):
    models = Models(kept)
    run, experiment = models.offers()
    assert run.name == THIS_RUN
    assert (experiment.name, experiment.epochs) == (EXPERIMENT, 3)
    assert experiment.facts == "loss 12.0000"
    found = models.find(experiment, 3)
    assert found.name == f"epoch 3 of {EXPERIMENT}"
    assert found.folder.joinpath("model.safetensors").exists()
    with pytest.raises(UserError, match="no epoch 4"):
        models.find(experiment, 4)


@pytest.mark.slow
def test_removed_experiment_is_refused(kept: Path, tmp_path: Path):
    root = shutil.copytree(kept, tmp_path / "project")
    models = Models(root)
    experiment = models.offers()[1]
    Project(root).run("dvc", "exp", "remove", EXPERIMENT)
    assert [offer.name for offer in models.offers()] == [THIS_RUN]
    with pytest.raises(UserError, match=EXPERIMENT):
        models.find(experiment, 1)


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
    (run,) = models.offers()
    with pytest.raises(UserError, match="is damaged"):
        models.find(run, 1)
