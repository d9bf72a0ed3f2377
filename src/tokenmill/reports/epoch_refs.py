"""Git refs `epoch-1` ... `epoch-N`, with which `dvc metrics diff epoch-1 epoch-4` compares epochs of one run.

Each ref points at a small commit with the metrics of that epoch, params.yaml, and a dvc.yaml that names the metrics.
Git's plumbing commands write it with an index of their own, so no lock, branch, index or work tree changes, and it
works inside any `dvc repro` or `dvc exp run`. A ref directly under `refs/` resolves by its last name and, unlike a tag,
is neither listed nor pushed by default.
"""

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenmill.core import git
from tokenmill.core.units import masked

ROOT = Path()
"""Stages run in the root of the project."""

AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "TokenMill"), ("EMAIL", "tokenmill@localhost"), ("DATE", "2000-01-01T00:00:00Z"))
}
"""Fixed, so that the same metrics on the same commit give the same ref."""


def write_epoch_refs(epochs: Sequence[Mapping[str, Mapping[str, Any]]], params: Path) -> list[str]:
    """Point `epoch-N` at the metrics of each epoch, and remove refs of epochs that no longer exist.

    Args:
        epochs: for each epoch, the content of its metrics files by name (`train.json`, `eval.json`).
        params: the file of parameters, the same for all epochs.

    Returns:
        The names of the refs; empty where there is no git repository.
    """
    if git.ask(ROOT, "rev-parse", "--git-dir") is None:
        return []
    parent = (git.ask(ROOT, "rev-parse", "--verify", "--quiet", "HEAD") or "").strip()
    shared, names = masked(params.read_text(encoding="utf-8")), []
    for number, metrics in enumerate(epochs, start=1):
        files = {f"metrics/{name}": json.dumps(dict(content), indent=2) + "\n" for name, content in metrics.items()}
        pipeline = "metrics:\n" + "".join(f"  - {name}\n" for name in sorted(files))
        files |= {"params.yaml": shared, "dvc.yaml": pipeline}
        commit = _commit(files, parent, f"Metrics after epoch {number}")
        names.append(f"epoch-{number}")
        git.run(ROOT, "update-ref", f"refs/{names[-1]}", commit)
    for ref in git.references(ROOT, "refs/epoch-*"):
        if re.fullmatch(r"refs/epoch-\d+", ref) and ref.removeprefix("refs/") not in names:
            git.run(ROOT, "update-ref", "-d", ref)
    return names


def _commit(files: Mapping[str, str], parent: str, message: str) -> str:
    """Commit exactly these files and return the commit's hash. An empty `parent` means none."""
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        for path, content in sorted(files.items()):
            blob = git.run(ROOT, "hash-object", "-w", "--stdin", stdin=content).strip()
            git.run(ROOT, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", env=index)
        tree = git.run(ROOT, "write-tree", env=index).strip()
    ancestry = ["-p", parent] if parent else []
    return git.run(ROOT, "commit-tree", tree, *ancestry, "-m", message, env=AUTHOR).strip()
