"""All commits and experiments in one table: what each changed, how good it became, what it took.

DVC collects parameters and metrics (`dvc.api.exp_show`). Times are those that this machine keeps in `.resume`; a run
that was trained elsewhere has none.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from dvc.api import exp_show
from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.scm import SCMError
from pydantic import BaseModel, Field

from tokenmill import git
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.records import read_record
from tokenmill.costs import AMOUNTS, COSTS, TIMING, find_times, read_costs, read_timing
from tokenmill.model.manifest import MANIFEST
from tokenmill.schema import AllParams

METRICS = {
    "epochs": "epoch",
    "steps": "steps",
    "parameters": "parameters",
    "train_loss": "train_loss",
    "val_loss": "val_loss",
    "bits_per_byte": "bits_per_byte",
    "right": "expected_found",
    "seen_right": "seen_right",
    "held_out_right": "held_out_right",
}
"""Columns of the table, and the metrics in metrics/train.json and metrics/eval.json that they show."""

COLUMNS = ["run", "rev", "created", "state", "changed", *METRICS, *AMOUNTS, "currency", "tokens_per_second"]


def find_runs(root: Path, *, commits: int) -> pd.DataFrame:
    """A row of COLUMNS for the workspace, the newest `commits` that changed the model, and every experiment.

    Raises:
        UserError: the folder is no DVC project in git, or DVC cannot read it.
    """
    logging.getLogger("dvc").setLevel(logging.ERROR)
    baselines = git.ask(root, "for-each-ref", "--format=%(refname)", git.EXPERIMENTS) or ""
    newest = (git.ask(root, "rev-list", "--first-parent", f"--max-count={commits}", "HEAD") or "").split()
    older = {"".join(ref.split("/")[2:4]) for ref in baselines.split() if ref.split("/")[2] not in ("celery", "exec")}
    try:
        shown = exp_show(str(root), revs=[*newest, *sorted(older - set(newest))])
        with Repo(str(root)) as repo:
            rows = [_row(entry, before, repo, root) for entry, before in _with_base(shown)]
    except (DvcException, SCMError) as error:
        raise UserError(f"{root.resolve()}: {' '.join(str(error).split())}; `tokenmill doctor` says more.") from None
    return pd.DataFrame(rows, columns=COLUMNS)


def _with_base(shown: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Runs that got as far as a model or are on their way, each with the commit that it is compared with."""
    commits = [entry for entry in shown if entry["typ"] == "baseline"]
    trained = list({_model(entry): entry for entry in reversed(commits[1:]) if _metric(entry, "val_loss")}.values())
    base = None
    for entry in shown:
        if entry["typ"] != "baseline":
            if entry["State"] or _metric(entry, "val_loss"):
                yield entry, base
            continue
        base = entry
        if entry is commits[0]:
            yield entry, commits[1] if len(commits) > 1 else None
        elif entry in trained:
            number = trained.index(entry)
            yield entry, trained[number - 1] if number else None


def _row(entry: dict[str, Any], base: dict[str, Any] | None, repo: Repo, root: Path) -> dict[str, Any]:
    row = {name: _metric(entry, metric) for name, metric in METRICS.items()}
    if row["val_loss"] is None:  # a run under way: what `evaluate` found is of the run before
        row = dict.fromkeys(METRICS)
    named = {
        "run": entry["Experiment"] or entry["rev"],
        "rev": entry["rev"],
        "created": entry["Created"],
        "state": (entry["State"] or "").lower().removeprefix("success"),
        "changed": " ".join(_changes(entry, base)) if base else "",
    }
    return named | row | _times(entry, repo, root)


def _metric(entry: Mapping[str, Any], name: str) -> float | None:
    """A metric, which DVC calls by its file too where another file or a parameter has the same name."""
    found = (entry.get(key) for key in (name, f"metrics/train.json:{name}", f"metrics/eval.json:{name}"))
    return next((float(value) for value in found if isinstance(value, int | float)), None)


def _model(entry: Mapping[str, Any]) -> str:
    return str(entry.get(paths.MODEL.as_posix()))


def _changes(entry: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[str]:
    """Parameters with other values than in the base: `model.n_layer=2`; of long ones only the name."""
    for name, value in entry.items():
        section = name.partition(".")[0]
        if section in AllParams.model_fields and section != "runtime" and value != base.get(name):
            text = f"{value:g}" if isinstance(value, float) else str(value)
            yield f"{name}={text}" if len(text) <= 40 else name


def _times(entry: Mapping[str, Any], repo: Repo, root: Path) -> dict[str, Any]:
    """What training took up to the last step of the run, if this machine knows."""
    run = _fingerprint(repo, _model(entry))
    if run is None:
        return {}
    timing, costs = (find_times(root / paths.resume_root(), run, name) for name in (TIMING, COSTS))
    rows = read_timing(timing)
    rows = rows.loc[rows["step"] <= (_metric(entry, "steps") or 0)]
    if rows.empty:
        return {}
    spent = {name: float(rows[name].iloc[-1]) for name in AMOUNTS}
    rate = float(rows.loc[:, "tokens_per_second"].median())
    currencies = [row["currency"] for row in read_costs(costs).to_dict("records")]
    return spent | {"tokens_per_second": rate, "currency": next(iter(currencies), "")}


class CachedFile(BaseModel):
    """An entry of a folder in DVC's cache."""

    md5: str = Field(pattern="^[0-9a-f]{32}$")
    relpath: str


class Named(BaseModel):
    """What is read of a manifest of any version."""

    fingerprint: str = Field(pattern=r"^\w[\w-]*$")


def _fingerprint(repo: Repo, model: str) -> str | None:
    """The fingerprint in the manifest of a model, if DVC's cache has it."""
    path_of, unknown = repo.cache.local.oid_to_path, "its times are not known"
    with contextlib.suppress(OSError, UserError, StopIteration):
        files = read_record(Path(path_of(model)), list[CachedFile], way_out=unknown)
        manifest = next(file.md5 for file in files if file.relpath == MANIFEST)
        return read_record(Path(path_of(manifest)), Named, way_out=unknown).fingerprint
    return None
