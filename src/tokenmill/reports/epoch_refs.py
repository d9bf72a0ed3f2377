"""Git refs `epoch-1` ... `epoch-N`, so that `dvc metrics diff epoch-1 epoch-4` says what three epochs bought.

Each ref points at a small commit that holds the metrics as they stood at that epoch, params.yaml, and a dvc.yaml that
names both. Made by git's plumbing with an index of its own: no lock, branch, index or work tree is touched, so it works
inside any `dvc repro` or `dvc exp run`. A ref directly under `refs/` resolves by its last name and, unlike a tag, is
neither listed nor pushed by default.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "TokenMill"), ("EMAIL", "tokenmill@localhost"), ("DATE", "2000-01-01T00:00:00Z"))
}
"""Fixed, so that the same metrics on the same commit are the same ref."""


def write_epoch_refs(epochs: Sequence[Mapping[str, Mapping[str, Any]]], params: Path) -> list[str]:
    """Point `epoch-N` at the metrics of each epoch; refs of epochs there are no longer are removed.

    Args:
        epochs: for each epoch, in order, the content of metrics files by their name (`train.json`, `eval.json`).
        params: the parameters that all of them share.

    Returns:
        The names of the refs; empty where there is no git repository.
    """
    if _git("rev-parse", "--git-dir", check=False) is None:
        return []
    parent = _git("rev-parse", "--verify", "--quiet", "HEAD", check=False)
    names = []
    for number, metrics in enumerate(epochs, start=1):
        files = {f"metrics/{name}": json.dumps(dict(content), indent=2) + "\n" for name, content in metrics.items()}
        named = "".join(f"  - {name}\n" for name in sorted(files))
        files |= {"params.yaml": params.read_text(encoding="utf-8"), "dvc.yaml": f"metrics:\n{named}"}
        commit = _commit(files, parent, f"Metrics after epoch {number}")
        names.append(f"epoch-{number}")
        _git("update-ref", f"refs/{names[-1]}", commit)
    for ref in (_git("for-each-ref", "--format=%(refname)", "refs/epoch-*") or "").split():
        if re.fullmatch(r"refs/epoch-\d+", ref) and ref.removeprefix("refs/") not in names:
            _git("update-ref", "-d", ref)
    return names


def _commit(files: Mapping[str, str], parent: str | None, message: str) -> str:
    """Commit exactly these files; give the commit's hash."""
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        for path, content in sorted(files.items()):
            blob = _git("hash-object", "-w", "--stdin", stdin=content)
            _git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", env=index)
        tree = _git("write-tree", env=index)
        ancestry = ["-p", parent] if parent else []
        return _git("commit-tree", str(tree), *ancestry, "-m", message, env=AUTHOR) or ""


def _git(*arguments: str, stdin: str = "", env: Mapping[str, str] | None = None, check: bool = True) -> str | None:
    """Run git here; give what it prints, or None where it failed and need not succeed."""
    done = subprocess.run(
        ["git", *arguments],
        input=stdin.encode(),
        capture_output=True,
        env=os.environ | (env or {}),
        check=check,
    )
    return done.stdout.decode().strip() if done.returncode == 0 else None
