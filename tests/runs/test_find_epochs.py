"""What names mean: epochs of the workspace, commits, experiments; and errors for everything
else."""

import shutil
from pathlib import Path

import pytest

from tests.pipeline.project import Project, change_params
from tests.runs.project_of_runs import make_project, write_run
from tokenmill.core.errors import UserError
from tokenmill.runs.comparison import Comparison, find_all, find_epochs


def places(root: Path, *names: str) -> list[tuple[str, int, int]]:
    """Name, epoch and number of epochs of what is compared."""
    return [
        (one.name, one.result.epoch, len(one.run.evaluation.epochs))
        for one in find_epochs(root, names)
    ]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("comparison") / "project")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], [("epoch-1", 1), ("epoch-3", 3)]),
        (["workspace"], [("epoch-1", 1), ("epoch-3", 3)]),
        (["epoch-2"], [("epoch-2", 2), ("workspace", 3)]),
        (["refs/epoch-2"], [("refs/epoch-2", 2), ("workspace", 3)]),
        (
            ["workspace:2", "epoch-1", "workspace"],
            [("workspace:2", 2), ("epoch-1", 1), ("workspace", 3)],
        ),
    ],
)
def test_epochs_of_the_workspace_need_no_git(
    workspace: Path, names: list[str], expected: list[tuple[str, int]]
):
    assert places(workspace, *names) == [(name, epoch, 3) for name, epoch in expected]


def test_a_run_of_one_epoch_stands_alone(tmp_path: Path):
    write_run(tmp_path, epochs=1)
    (tmp_path / "dvc.lock").write_text("stages: {}\n")
    assert places(tmp_path) == [("epoch-1", 1, 1)]
    with pytest.raises(UserError, match=r"epoch 2 in workspace.*epoch 1"):
        find_epochs(tmp_path, ["epoch-2"])


def test_missing_epoch_or_evaluation_is_an_error(workspace: Path):
    with pytest.raises(UserError, match=r"epoch 9 in workspace.*1 to 3"):
        find_epochs(workspace, ["workspace:9"])
    with pytest.raises(UserError, match=r"epoch-2:1 names two epochs; leave out :1\."):
        find_epochs(workspace, ["epoch-2:1"])
    (workspace / "reports/evaluation.json").unlink()
    with pytest.raises(UserError, match=r"evaluation\.json .*`dvc pull evaluate`"):
        find_epochs(workspace, [])


@pytest.mark.slow
def test_commits_and_experiments_are_found(project: Project):
    assert places(project.root, "HEAD~1", "calm-oxen", "main:2", "workspace") == [
        ("HEAD~1", 1, 1),
        ("calm-oxen", 2, 2),
        ("main:2", 2, 3),
        ("workspace", 3, 3),
    ]
    assert places(project.root, "calm-oxen") == [("calm-oxen", 2, 2), ("workspace", 3, 3)]
    assert project.run("git", "status", "--porcelain") == ""


@pytest.mark.slow
def test_all_runs_are_compared_each_once(project: Project, capsys: pytest.CaptureFixture[str]):
    names = ["workspace", "main", "calm-oxen", "HEAD~1", "HEAD~2"]
    found = [(one.name, one.result.epoch, one.same) for one in find_all(project.root, names)]
    assert found == [("workspace", 3, ["main"]), ("calm-oxen", 2, []), ("HEAD~1", 1, [])]
    assert "HEAD~2" in capsys.readouterr().err
    with pytest.raises(UserError, match="two"):
        find_all(project.root, ["workspace", "main"])
    change_params(project.root / "params.yaml", {"train.learning_rate": 0.004})
    found = find_all(project.root, ["workspace", "main"])
    project.run("git", "checkout", "-q", "params.yaml")
    assert Comparison(found).settings == {"train.learning_rate": ["0.004", "auto"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("calm-oxe", r"there is no revision or experiment calm-oxe; near it: calm-oxen\."),
        ("HEAD^{tree}", r"there is no revision or experiment HEAD\^\{tree\}; near it: "),
        ("", r"there is no revision or experiment ''; near it: "),
        (
            "HEAD~2",
            r"HEAD~2 \([0-9a-f]{7}\) has no reports/evaluation\.json: the pipeline had not run",
        ),
        ("calm-oxen:3", r"there is no epoch 3 in calm-oxen: it has epochs 1 to 2"),
    ],
)
def test_wrong_revision_is_an_error(project: Project, name: str, sentence: str):
    with pytest.raises(UserError, match=sentence):
        find_epochs(project.root, [name, "workspace"])


@pytest.mark.slow
def test_evaluation_comes_from_the_remote_too(project: Project, tmp_path: Path):
    shutil.copytree(project.root.parent, tmp_path / "both")
    here = Project(tmp_path / "both/project")
    shutil.rmtree(here.root / ".dvc/cache")
    assert places(here.root, "HEAD~1", "workspace") == [("HEAD~1", 1, 1), ("workspace", 3, 3)]
    shutil.rmtree(here.root / ".dvc/cache", ignore_errors=True)
    shutil.rmtree(tmp_path / "both/remote")
    with pytest.raises(
        UserError,
        match=r"evaluation\.json of HEAD~1 .* neither in DVC's cache nor in a remote; .*dvc push",
    ):
        find_epochs(here.root, ["HEAD~1"])


def test_revision_outside_a_project_is_an_error(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(workspace.parent))
    with pytest.raises(UserError, match="is no DVC project"):
        find_epochs(workspace, ["HEAD"])
