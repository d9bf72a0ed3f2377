"""What dvc.lock records, and whether the evaluation that lies beside a model is of that model.

`dvc repro train`, or a run that stops after any stage, leaves the results of later stages as they
were. They are of an earlier model or text then, and dvc.lock says so: a stage's dependency has
another hash than the output that it was. All who show such results together ask here.

`dvc exp save` and `dvc commit` run no stage: they record what lies here with the parameters that
stand in params.yaml then. What the model was trained with, its manifest says.
"""

import contextlib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from tokenmill import git
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_bytes
from tokenmill.core.params import PARAMS_FILE, dotted, parse_yaml
from tokenmill.evaluation.results import Evaluation, read_evaluation
from tokenmill.formats.records import read_record
from tokenmill.model.manifest import MANIFEST

if TYPE_CHECKING:
    from dvc.repo import Repo

LOCK = Path("dvc.lock")

TO_THE_TEXT = (
    ("train", paths.TOKENS, "unpack"),
    ("unpack", paths.PACKED, "tokenize"),
    ("tokenize", paths.TOKENIZER.parent, "tokenizer"),
    ("tokenize", paths.CLEAN, "clean"),
)
"""The stages between a model and its clean text and tokenizer, each with the output that it reads
and the stage that writes that."""

TO_THE_MODEL = ("clean", "tokenizer", "tokenize", "train")
"""The stages with parameters between the raw text and a model."""

TRAIN_AGAIN = "dvc repro -sf train && dvc repro"
"""The command that trains the model that params.yaml asks for, whatever dvc.lock says."""


@dataclass(frozen=True)
class Lock:
    """What a dvc.lock records."""

    written: Mapping[tuple[str, str], str | None]
    """The hash of every output, by the name of its stage and its path."""
    read_by: Mapping[tuple[str, str], str | None]
    """The hash of what a stage read when it ran last, by its name and the path."""
    files: Mapping[str, int]
    """The number of files in every output that is a folder, by its path."""
    trained_with: Mapping[str, Any]
    """The parameters with which the stages from the text to the model ran last, by their dotted
    names."""

    @classmethod
    def read(cls, root: Path, rev: str | None = None) -> "Lock":
        """Read the file in the workspace of `root` or at a revision. Without it nothing is
        recorded."""
        data = _content(root, LOCK, rev)
        return cls.parse(data, root / LOCK) if data else cls({}, {}, {}, {})

    @classmethod
    def parse(cls, data: bytes, source: object) -> "Lock":
        """The same from the content of the file; error messages call it `source`."""
        try:
            content = parse_yaml(data, source, ["stages"])
            stages = content.get("stages", {}) if "schema" in content else content["stages"]
            outs, deps = (
                [(name, each) for name, stage in stages.items() for each in stage.get(kind) or []]
                for kind in ("outs", "deps")
            )
            sections = [
                stages.get(name, {}).get("params", {}).get(PARAMS_FILE.name) or {}
                for name in TO_THE_MODEL
            ]
            return cls(
                {(name, each["path"]): each.get("md5") for name, each in outs},
                {(name, each["path"]): each.get("md5") for name, each in deps},
                {each["path"]: each["nfiles"] for _, each in outs if "nfiles" in each},
                {name: value for section in sections for name, value in dotted(section)},
            )
        except (LookupError, AttributeError, TypeError):
            raise UserError(
                f"{source} is damaged; `git checkout {LOCK}` brings back the last commit's."
            ) from None

    @property
    def outputs(self) -> dict[str, str | None]:
        """The hash of every output, by its path."""
        return {path: md5 for (_, path), md5 in self.written.items()}

    def has_read(self, reader: str, output: Path, writer: str) -> bool:
        """Whether a stage has not written its output anew since another one read it. What is not
        recorded counts as unchanged."""
        path = output.as_posix()
        now, then = self.written.get((writer, path)), self.read_by.get((reader, path))
        return now == then or None in (now, then)

    @property
    def is_evaluated(self) -> bool:
        """Whether the evaluation is of the model."""
        return self.has_read("evaluate", paths.MODEL, "train")

    @property
    def is_of_text(self) -> bool:
        """Whether the model was trained on the clean text, as the tokenizer encodes it."""
        return all(self.has_read(*one) for one in TO_THE_TEXT)

    def is_of_raw(self, raw: str, root: Path) -> bool:
        """Whether `clean` ran last on what `data.raw` names in the project at `root`. What is not
        recorded counts so."""
        read = {os.path.realpath(root / path) for stage, path in self.read_by if stage == "clean"}
        return not read or os.path.realpath(root / raw) in read

    def is_finetuned(self, method: str, root: Path, rev: str | None = None) -> bool:
        """Whether the metrics of fine-tuning, in the workspace of `root` or at a revision, are of a
        model that this method made from the model.

        The stages of all methods write the same files, so these are compared with what is recorded.
        """
        finetune, evaluate = f"finetune@{method}", f"evaluate_finetuned@{method}"
        metrics = (
            (finetune, paths.FINETUNED_METRICS / "train.json"),
            (evaluate, paths.FINETUNED_METRICS / "eval.json"),
        )
        return (
            self.has_read(finetune, paths.MODEL, "train")
            and self.has_read(evaluate, paths.FINETUNED, finetune)
            and all(
                self.written.get((stage, file.as_posix())) == _md5(_content(root, file, rev))
                for stage, file in metrics
            )
        )


def _content(root: Path, file: Path, rev: str | None) -> bytes:
    """A file in the workspace or at a revision; empty where there is none."""
    if rev is not None:
        return (git.content(root, rev, file) or "").encode()
    return read_bytes(root / file) if (root / file).exists() else b""


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


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


class _Listed(BaseModel):
    """A file in DVC's list of a folder."""

    relpath: str
    # It becomes a part of a path, so nothing else may pass
    md5: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = None


def listed(path: Path, *, way_out: str = paths.DEEP) -> dict[str, str]:
    """The MD5 of each file that an object of DVC's cache lists for a folder, by its path in that
    folder. Objects in S3, of which DVC records the ETag, have none.

    Raises:
        UserError: the object is missing or damaged.
    """
    files = read_record(path, list[_Listed], way_out=way_out)
    return {file.relpath: file.md5 for file in files if file.md5}


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
    evaluation = read_evaluation(path)
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
