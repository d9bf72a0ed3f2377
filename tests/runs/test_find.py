"""Models of a real git and DVC project: of its work tree, of other revisions, from the cache and
from a remote."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.project import Project
from tests.reports.run_material import evaluation
from tests.runs.finished import EXPERIMENT, make_project, write_models
from tokenmill import git
from tokenmill.cli.main import main
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json, write_text
from tokenmill.model.gpt import build
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import read_config
from tokenmill.runs.epoch_refs import write_epoch_refs
from tokenmill.runs.find import FETCHED, Revision, available, find_model
from tokenmill.runs.table import find_runs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("kept") / "project")


@pytest.fixture
def project(made: Project, tmp_path: Path) -> Project:
    """A copy to change, with nothing fetched yet."""
    shutil.copytree(made.root.parent, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy/project" / FETCHED, ignore_errors=True)
    return Project(tmp_path / "copy/project")


def is_trained_by(folder: Path, *, seed: int, epoch: int) -> bool:
    fresh = build(read_config(folder), seed=10 * seed + epoch).parameters()
    return all(a.equal(b) for a, b in zip(load_model(folder).parameters(), fresh, strict=True))


@pytest.mark.parametrize(
    ("where", "seed", "epoch", "name"),
    [
        ({}, 2, 3, "epoch 3"),
        ({"epoch": 1}, 2, 1, "epoch 1"),
        ({"rev": "HEAD"}, 2, 3, "epoch 3 of HEAD"),
        ({"rev": "main", "epoch": 2}, 2, 2, "epoch 2 of main"),
        ({"rev": "HEAD~1"}, 1, 2, "epoch 2 of HEAD~1"),
        ({"rev": "HEAD~1", "epoch": 1}, 1, 1, "epoch 1 of HEAD~1"),
        ({"rev": EXPERIMENT}, 3, 1, f"epoch 1 of {EXPERIMENT}"),
    ],
)
def test_every_name_finds_its_model(
    made: Project, where: dict[str, Any], seed: int, epoch: int, name: str
):
    before = made.digest("models", "data", "dvc.lock")
    found = find_model(made.root, **where)
    assert found.name == name
    assert is_trained_by(found.folder, seed=seed, epoch=epoch)
    assert (
        found.tokenizer.read_bytes() == (made.root / "data/tokenizer/tokenizer.json").read_bytes()
    )
    assert made.digest("models", "data", "dvc.lock") == before
    assert made.run("git", "status", "--short") == ""


def test_models_and_experiments_are_listed(made: Project, tmp_path: Path):
    assert [one.name for one in available(made.root)] == ["epoch 1", "epoch 2", "epoch 3"]
    assert [one.name for one in git.experiments(made.root)] == [EXPERIMENT]
    assert available(tmp_path) == []
    assert git.experiments(tmp_path) == []


def test_model_is_fetched_once_and_without_resume_points(project: Project):
    project.run("git", "checkout", "-q", "HEAD~1")
    project.run("dvc", "push", "-q")
    project.run("git", "checkout", "-q", "main")
    shutil.rmtree(project.root / ".dvc/cache")
    found = find_model(project.root, rev="HEAD~1", epoch=1)
    assert is_trained_by(found.folder, seed=1, epoch=1)
    fetched = {
        p.relative_to(found.folder.parent).as_posix()
        for p in found.folder.parent.rglob("*")
        if p.is_file() and p.suffix != ".md5"
    }
    assert fetched == {".lock", "manifest.json", "epoch-1/config.json", "epoch-1/model.safetensors"}
    shutil.rmtree(project.root.parent / "remote")
    shutil.rmtree(project.root / ".dvc/cache", ignore_errors=True)
    assert find_model(project.root, rev="HEAD~1", epoch=1) == found
    assert project.run("git", "status", "--short") == ""


def test_a_damaged_copy_is_fetched_again(project: Project):
    found = find_model(project.root, rev="HEAD~1", epoch=1)
    weights = found.folder / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert find_model(project.root, rev="HEAD~1", epoch=1) == found
    assert weights.read_bytes() == content


def test_model_out_of_reach_is_a_user_error(project: Project):
    shutil.rmtree(project.root / ".dvc/cache")
    with pytest.raises(
        UserError,
        match=r"HEAD~1 \(\w{7}\) .*in DVC's cache nor in a remote.*`dvc push` where",
    ):
        find_model(project.root, rev="HEAD~1")


def test_a_lost_experiment_is_applied_as_it_is_no_branch(project: Project):
    shutil.rmtree(project.root / ".dvc/cache")
    with pytest.raises(
        UserError,
        match=rf"`dvc exp apply {EXPERIMENT}` and `dvc repro` here",
    ):
        find_model(project.root, rev=EXPERIMENT)
    committed = (project.root / "dvc.lock").read_text()
    said = project.run("dvc", "exp", "apply", EXPERIMENT, check=False)
    assert "models/gpt" in said, "which DVC misses, too"
    assert (project.root / "dvc.lock").read_text() != committed, "so `dvc repro` makes it"


def test_a_lost_experiment_is_found_after_what_the_sentence_says(project: Project):
    project.run("git", "init", "-q", "--bare", "../origin")
    project.run("git", "remote", "add", "origin", "../origin")
    elsewhere = project.copy("elsewhere")
    shutil.rmtree(elsewhere.root / ".dvc/cache")
    with pytest.raises(UserError, match="where it was trained") as told:
        find_model(elsewhere.root, rev=EXPERIMENT)
    for command in re.findall("`(.*?)`", str(told.value).partition(" where ")[0]):
        project.run(*command.split())
    assert is_trained_by(find_model(elsewhere.root, rev=EXPERIMENT).folder, seed=3, epoch=1)


def measure(root: Path) -> None:
    """Write the refs of the epochs in the work tree."""
    write_text(root / "params.yaml", "train: {}\n")
    train = json.loads((root / "metrics/train.json").read_text())
    rows = (root / "metrics/history.csv").read_text().splitlines()[1:]
    told = [row.split(",") for row in rows]
    write_epoch_refs(
        root,
        [
            {
                "train.json": train
                | {"tokens": int(r[2]), "train_loss": float(r[4]), "val_loss": float(r[5])}
            }
            for r in told
        ],
        root / "params.yaml",
    )


def test_revisions_of_a_project_in_a_folder_of_its_repository(tmp_path: Path):
    project = make_project(tmp_path / "libs/my mill", top=tmp_path)
    measure(project.root)
    compared = json.loads(project.run("dvc", "metrics", "diff", "epoch-1", "epoch-3", "--json"))
    assert compared["metrics/train.json"]["tokens"]["diff"] == 200
    found = find_model(project.root, rev=EXPERIMENT)
    assert is_trained_by(found.folder, seed=3, epoch=1)
    project.run("dvc", "push", "-q")
    for gone in ("models", "data/tokenizer", ".dvc/cache"):
        shutil.rmtree(project.root / gone)
    found = find_model(project.root, rev="epoch-2")
    assert found.name == "epoch 2 of HEAD"
    assert is_trained_by(found.folder, seed=2, epoch=2)


def test_ref_of_an_epoch_finds_the_model_it_measured(
    project: Project, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(project.root)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Test")
    measure(project.root)
    assert find_model(project.root, rev="epoch-2") == available(project.root)[1]
    write_models(project.root, seed=4, epochs=2)
    committed = find_model(project.root, rev="epoch-2")
    assert committed.name == "epoch 2 of HEAD"
    assert is_trained_by(committed.folder, seed=2, epoch=2)
    project.run("git", "commit", "-q", "-a", "-m", "another history, its model never kept")
    assert find_model(project.root, rev="refs/epoch-2").folder == committed.folder
    with pytest.raises(UserError, match=r"--rev epoch-2 .*--epoch 1"):
        find_model(project.root, rev="epoch-2", epoch=1)
    project.run("git", "update-ref", "refs/epoch-9", "HEAD")
    with pytest.raises(UserError, match=r"epoch-9 .* or `dvc repro -sf report`"):
        find_model(project.root, rev="epoch-9")


def test_a_card_knows_the_run_behind_a_ref(project: Project, monkeypatch: pytest.MonkeyPatch):
    """The ref of an epoch itself holds metrics alone."""
    monkeypatch.chdir(project.root)
    write_json(project.root / paths.EVALUATION, evaluation(3).model_dump())
    project.commit()
    measure(project.root)
    main(["export", "--rev", "epoch-2", "from-workspace"])
    write_models(project.root, seed=4, epochs=2)
    main(["export", "--rev", "epoch-2", "from-HEAD"])
    for folder in ("from-workspace", "from-HEAD"):
        assert "The capital of France is Paris." in Path(folder, "README.md").read_text()


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ({"epoch": 7}, r"there is no epoch 7 in the workspace: it has epochs 1 to 3"),
        ({"epoch": 0}, r"there is no epoch 0"),
        ({"rev": EXPERIMENT, "epoch": 2}, rf"there is no epoch 2 in {EXPERIMENT}: it has epoch 1"),
        ({"rev": "blest-jub"}, r"no revision or experiment blest-jub; near it: blest-jube"),
        ({"rev": "HEAD~9"}, r"no revision or experiment HEAD~9; near it: .*main"),
        ({"rev": "epoch-9"}, r"no revision or experiment epoch-9; `dvc repro -sf report`"),
        (
            {"rev": "main", "model": Path("x")},
            r"x is one model; leave out --epoch and --rev",
        ),
        ({"model": Path("x")}, r"x holds no config\.json"),
        ({"tokenizer": Path("x")}, r"--tokenizer goes with --model"),
    ],
)
def test_missing_model_is_a_user_error(made: Project, where: dict[str, Any], sentence: str):
    with pytest.raises(UserError, match=sentence):
        find_model(made.root, **where)


def test_folder_needs_a_tokenizer(made: Project, tmp_path: Path):
    folder = tmp_path / "model"
    shutil.copytree(made.root / "models/gpt/epoch-1", folder)
    with pytest.raises(UserError, match=r"tokenizer .*--tokenizer FILE"):
        find_model(made.root, model=folder)
    with pytest.raises(UserError, match=r"tokenizer .*nowhere"):
        find_model(made.root, model=folder, tokenizer=tmp_path / "nowhere")
    shutil.copy(made.root / "data/tokenizer/tokenizer.json", folder)
    assert find_model(made.root, model=folder).tokenizer == folder / "tokenizer.json"


def test_outside_a_project_there_is_no_model(tmp_path: Path):
    with pytest.raises(UserError, match=r"models/gpt.*`dvc repro`"):
        find_model(tmp_path)
    with pytest.raises(UserError, match="is no DVC project"):
        find_model(tmp_path, rev="HEAD")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("[core]\n    remote = gone\n", "DVC's default remote, gone, is none of its remotes"),
        ("[core\n", r"DVC: .*`tokenmill doctor`"),
    ],
)
def test_a_broken_configuration_of_dvc_is_an_error(config: str, sentence: str, tmp_path: Path):
    project = Project.new(tmp_path / "project")
    project.commit()
    (project.root / ".dvc/config.local").write_text(config)
    with pytest.raises(UserError, match=sentence):
        Revision(project.root, "HEAD")
    with pytest.raises(UserError, match=sentence):
        find_runs(project.root, commits=1)
