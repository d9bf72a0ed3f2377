"""Text that comes from elsewhere is a dependency: DVC knows where it is from, and when the source
has another."""

import pytest

from tests.pipeline.project import Project, ran

pytestmark = pytest.mark.slow


def test_a_dataset_comes_at_a_revision_and_is_updated(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder that is laid out as Hugging Face is."""
    monkeypatch.setenv("HF_ENDPOINT", str(project.root.parent / "hub"))
    hub = Project(project.root.parent / "hub/datasets/ada/books")
    (hub.root / "data").mkdir(parents=True)
    hub.run("git", "init", "-q")
    for version in ("v1", "v2"):
        (hub.root / "data" / "train.jsonl").write_text(f'{{"text": "The text of {version}."}}\n')
        hub.commit()
        hub.run("git", "tag", version)
    project.run("python", "-m", "tokenmill", "fetch", "hf://datasets/ada/books@v1/data")
    project.set(data__raw="data/raw/books")
    assert ran(project.repro("clean")) == ["check", "clean"]
    project.commit()
    assert hub.run("git", "rev-parse", "v1") in project.run(
        "git", "show", "HEAD:data/raw/books.dvc"
    )
    project.run("dvc", "update", "-q", "data/raw/books.dvc", "--rev", "v2")
    assert ran(project.repro("clean")) == ["clean"]
