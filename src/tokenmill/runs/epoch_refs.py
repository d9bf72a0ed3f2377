"""Point the refs `epoch-1` ... `epoch-N` at the metrics of a run's epochs.

With these refs `dvc metrics diff epoch-1 epoch-4` compares epochs of one run. Each ref points at a
small commit with the metrics of that epoch, params.yaml, and a dvc.yaml that names the metrics.
`git fast-import` writes them, so no branch, index or work tree changes, and it works inside any run
of DVC. A ref directly under `refs/` resolves by its last name and, unlike a tag, is neither listed
nor pushed by default.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenmill import git
from tokenmill.core.files import read_bytes
from tokenmill.words.units import masked

EPOCH = re.compile(r"(?:refs/)?epoch-(\d+)")
"""Matches the name of an epoch of the workspace's run, which is also the name of the git ref that
holds its metrics."""

AUTHOR = "TokenMill <tokenmill@localhost> 946684800 +0000"
"""The author of the commits. The date is fixed to the beginning of the year 2000, so that the same
metrics on the same commit give the same ref."""


def write_epoch_refs(
    root: Path, epochs: Sequence[Mapping[str, Mapping[str, Any]]], params: Path
) -> list[str]:
    """Point `epoch-N` at the metrics of each epoch, and remove refs of epochs that no longer exist.

    Args:
        root: the folder of the project.
        epochs: for each epoch, the content of its metrics files by name (`train.json`,
            `eval.json`).
        params: the file of parameters, the same for all epochs.

    Returns:
        The names of the refs; empty where there is no git repository.
    """
    if git.ask(root, "rev-parse", "--git-dir") is None:
        return []
    parent = (git.ask(root, "rev-parse", "--verify", "--quiet", "HEAD") or "").strip()
    shared = masked(read_bytes(params).decode("utf-8"))
    folder = git.folder(root)
    commits = dict[str, str]()
    for number, metrics in enumerate(epochs, start=1):
        files = {
            f"metrics/{name}": json.dumps(dict(content), indent=2) + "\n"
            for name, content in metrics.items()
        }
        pipeline = "metrics:\n" + "".join(f"  - {name}\n" for name in sorted(files))
        files |= {"params.yaml": shared, "dvc.yaml": pipeline}
        name = f"epoch-{number}"
        tree = {folder + file: content for file, content in files.items()}
        commits[name] = _commit(f"refs/{name}", tree, parent, f"Metrics after epoch {number}\n")
    git.execute(root, "fast-import", "--quiet", "--force", stdin="".join(commits.values()))
    for ref in git.references(root, "refs/epoch-*"):
        if EPOCH.fullmatch(ref) and ref.removeprefix("refs/") not in commits:
            git.execute(root, "update-ref", "-d", ref)
    return list(commits)


def _commit(ref: str, files: Mapping[str, str], parent: str, message: str) -> str:
    """The commands by which `git fast-import` commits exactly these files to a ref. An empty
    `parent` means none."""
    origin = f"from {parent}\n" if parent else ""
    contents = (
        f"M 100644 inline {json.dumps(path, ensure_ascii=False)}\n{_data(content)}"
        for path, content in files.items()
    )
    return (
        f"commit {ref}\ncommitter {AUTHOR}\n{_data(message)}{origin}deleteall\n{''.join(contents)}"
    )


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"
