"""Whether the evaluation that lies beside a model is of that model.

Results of later stages may be of an earlier model or text, and dvc.lock says so. All who show such
results together ask here.

`dvc exp save` and `dvc commit` run no stage: they record what lies here with the parameters that
stand in params.yaml then. What the model was trained with, its manifest says.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.params import dotted
from tokenmill.dvc_lock import LOCK, Lock, listed
from tokenmill.evaluation.results import Evaluation
from tokenmill.formats.records import read_record
from tokenmill.model.manifest import MANIFEST

if TYPE_CHECKING:
    from dvc.repo import Repo

TRAIN_AGAIN = "dvc repro -sf train && dvc repro"
"""The command that trains the model that params.yaml asks for, whatever dvc.lock says."""


def false_parameters(manifest: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[str]:
    """The dotted names of recorded parameters in the sections `model` and `train` that have other
    values in the manifest of the model. A recorded `auto` is none of them: training has replaced
    it."""
    said = {section: manifest.get(section) or {} for section in ("model", "train")}
    return [
        name
        for name, value in dotted(said)
        if name in recorded and recorded[name] not in (value, "auto")
    ]


def falsely_recorded(manifest: Mapping[str, Any], lock: Lock) -> str:
    """A phrase about the parameters with which a model was not trained, by its manifest, although
    dvc.lock says so; empty if there are none."""
    names = false_parameters(manifest, lock.trained_with)
    if not names:
        return ""
    return (
        f"{paths.MODEL} was trained with another {', '.join(names)} than {LOCK} says, as after "
        "`dvc exp save` or `dvc commit`, which run nothing"
    )


def own_manifest(root: Path) -> dict[str, Any]:
    """The manifest of the model in the project at `root`, unchecked; empty without a model."""
    file = root / paths.MODEL / MANIFEST
    return read_record(file, dict[str, Any]) if file.exists() else {}


def cached_manifest(repo: "Repo", model: str) -> dict[str, Any]:
    """The manifest of the model with this hash, unchecked; empty if DVC's cache does not have
    it."""
    cached = repo.cache.local.oid_to_path
    with contextlib.suppress(OSError, UserError, KeyError):
        return read_record(Path(cached(listed(Path(cached(model)))[MANIFEST])), dict[str, Any])
    return {}


def read_own_evaluation(root: Path) -> Evaluation:
    """The evaluation in the project at `root`, which must be that of its text, its model and its
    metrics, and the model that of the recorded parameters.

    Raises:
        UserError: it is of another text, model or run, missing or damaged.
    """
    path = root / paths.EVALUATION
    lock = Lock.read(root)
    if not lock.is_evaluated:
        raise UserError(
            f"{path} is of another model than {root / paths.MODEL}; `dvc repro` evaluates this one."
        )
    if not lock.is_of_text:
        raise UserError(
            f"{root / paths.MODEL} was trained on another text than {root / paths.CLEAN}, or with "
            f"another tokenizer than {root / paths.TOKENIZER.parent}; `dvc repro` trains on these."
        )
    evaluation = read_record(path, Evaluation)
    metrics = root / paths.METRICS / "eval.json"
    known = read_record(metrics, dict[str, float]) if metrics.exists() else {}
    measured = evaluation.metrics(evaluation.epochs[-1])
    # Another version of this project may have had other metrics
    if any(known[name] != measured[name] for name in known.keys() & measured.keys()):
        raise UserError(
            f"{path} is of another run than {metrics}, as after `git switch` or `git stash`; "
            "`dvc checkout` brings the one that dvc.lock records; if that is here, `dvc repro` "
            "makes the metrics of params.yaml."
        )
    if phrase := falsely_recorded(own_manifest(root), lock):
        raise UserError(f"{phrase}; `{TRAIN_AGAIN}` trains it again.")
    return evaluation
