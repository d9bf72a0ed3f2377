"""Projects with finished runs, as DVC would have left them; nothing is trained."""

from pathlib import Path
from typing import Any

from tests.imports import ROOT
from tests.pipeline.project import Project, change_params
from tests.reports.run_material import evaluation, write_history
from tokenmill.core.files import write_json

PIPELINE = """\
stages:
  clean: {cmd: make, outs: [data/clean]}
  tokenizer: {cmd: make, outs: [data/tokenizer]}
  evaluate: {cmd: make, outs: [reports/evaluation.json]}
"""


def write_run(
    root: Path,
    *,
    epochs: int,
    prompts: slice = slice(None),
    clean: str = "text",
    tokenizer: str = "bpe",
    params: dict[str, Any] | None = None,
) -> None:
    """What a run leaves behind, in the work tree."""
    content = evaluation(epochs).model_dump()
    content["questions"] = content["questions"][prompts]
    for result in content["epochs"]:
        result["answers"] = result["answers"][prompts]
    write_json(root / "reports/evaluation.json", content)
    write_json(
        root / "metrics/train.json",
        {
            "epoch": epochs,
            "steps": epochs,
            "tokens": 1_000 * epochs,
            "parameters": 57_344,
            "val_loss": 1.5,
        },
    )
    write_history(root / "metrics", epochs)
    for name, text in (("data/clean", clean), ("data/tokenizer", tokenizer)):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "file").write_text(text)
    (root / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    change_params(root / "params.yaml", params or {})
    (root / "dvc.yaml").write_text(PIPELINE)


def make_project(root: Path) -> Project:
    """A project with a remote beside it.

    HEAD~2: nothing ran; HEAD~1: one epoch, other text; HEAD: three epochs; experiment `calm-oxen`:
    other tokenizer.
    """
    project = Project.new(root, remote=True)
    (root / ".gitignore").write_text("/data\n/reports\n")
    project.commit()
    write_run(root, epochs=1, prompts=slice(2), clean="other text")
    keep(project)
    project.commit()
    write_run(root, epochs=3)
    keep(project)
    project.commit()
    write_run(
        root, epochs=2, prompts=slice(1, 4), tokenizer="char", params={"tokenizer.type": "char"}
    )
    keep(project)
    project.run("dvc", "exp", "save", "-n", "calm-oxen")
    project.run("git", "checkout", "-q", "-f", "HEAD")
    project.run("dvc", "checkout", "--force")
    return project


def keep(project: Project) -> None:
    """Record what lies there as the stages' results, and push them (all at once, `dvc push -A`, DVC
    misplaces them)."""
    project.run("dvc", "commit", "--force")
    project.run("dvc", "push", "-q")
