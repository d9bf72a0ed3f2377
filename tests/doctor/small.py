"""A repository with git, DVC, a remote and one stage; and single checks of it."""

import shutil
from pathlib import Path

from tests.imports import ROOT
from tests.pipeline.project import Project as Repository
from tokenmill.doctor import dvc
from tokenmill.doctor.finding import Check, Finding, Project

PIPELINE = "stages: {train: {cmd: make, deps: [params.yaml], outs: [models/gpt]}}\n"


def make_repository(root: Path) -> Path:
    repository = Repository.new(root, remote=True)
    shutil.copy(ROOT / "params.yaml", root)
    (root / "dvc.yaml").write_text(PIPELINE)
    repository.commit()
    return root


def opened(repository: Repository) -> Project:
    """The project as the checks of DVC see it."""
    project = Project(repository.root)
    assert single(dvc.check_repository, project).level == "ok"
    return project


def single(check: Check, project: Project) -> Finding:
    """The only finding of a check."""
    (finding,) = check(project)
    assert (finding.fix is None) == (finding.level == "ok")
    return finding
