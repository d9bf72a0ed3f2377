"""What dvc.lock records, and DVC's lists of folders in its cache.

A stage's dependency may have another hash than the output that it was: `dvc repro train`, or a run
that stops after any stage, leaves the results of later stages as they were.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from tokenmill import git
from tokenmill.core import paths
from tokenmill.core.files import read_bytes
from tokenmill.core.params import PARAMS_FILE, PathText, dotted, parse_yaml
from tokenmill.formats.records import checked, read_record

LOCK = Path("dvc.lock")

OBJECT = re.compile(r"[0-9a-f]{32}(\.dir)?")
"""Matches the name of an object in DVC's cache: the MD5 of its content."""

FOLDER = ".dir"
"""What ends the name of an object that lists the files of a folder, each with its MD5."""

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


class Entry(BaseModel):
    """A file or folder that a stage read or wrote, as it was then."""

    path: PathText
    md5: str | None = None
    size: int | None = None
    """Its bytes."""
    nfiles: int | None = None
    """The number of files in a folder."""


class LastRun(BaseModel):
    """What is recorded of the last run of a stage."""

    deps: list[Entry] = Field(default_factory=list)
    outs: list[Entry] = Field(default_factory=list)
    params: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Its parameters, by their file and then by name; some are whole sections."""

    @property
    def values(self) -> dict[str, Any]:
        """Its parameters in params.yaml by their dotted names."""
        return dict(dotted(self.params.get(PARAMS_FILE.name, {})))


class Lock(BaseModel):
    """What a dvc.lock records."""

    stages: dict[str, LastRun] = Field(default_factory=dict)

    @classmethod
    def read(cls, root: Path, rev: str | None = None) -> "Lock":
        """Read the file in the workspace of `root` or at a revision. Without it nothing is
        recorded."""
        data = _content(root, LOCK, rev)
        source = f"{root / LOCK} of {rev}" if rev else root / LOCK
        return cls.parse(data, source) if data else cls()

    @classmethod
    def parse(cls, data: bytes, source: object) -> "Lock":
        """The same from the content of the file; error messages call it `source`."""
        content = parse_yaml(data, source, ["stages"])
        if "schema" not in content:  # then it is of DVC only if it has stages
            content = {"stages": content.get("stages")}
        way_out = f"`git checkout {LOCK}` brings back the last commit's"
        return checked(content, cls, source=source, way_out=way_out)

    def of(self, stage: str) -> LastRun:
        """What is recorded of a stage; nothing if it has not run."""
        return self.stages.get(stage, LastRun())

    @property
    def outputs(self) -> dict[str, str | None]:
        """The hash of every output, by its path."""
        return {entry.path: entry.md5 for run in self.stages.values() for entry in run.outs}

    @property
    def trained_with(self) -> dict[str, Any]:
        """The parameters with which the stages from the text to the model ran last, by their dotted
        names."""
        sections = [self.of(stage).values for stage in TO_THE_MODEL]
        return {name: value for section in sections for name, value in section.items()}

    def has_read(self, reader: str, output: Path, writer: str) -> bool:
        """Whether a stage has not written its output anew since another one read it. What is not
        recorded counts as unchanged."""
        now = _md5_of(self.of(writer).outs, output)
        then = _md5_of(self.of(reader).deps, output)
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
        read = self.read_paths("clean", root)
        return not read or os.path.realpath(root / raw) in read

    def read_paths(self, reader: str, root: Path) -> dict[str, int | None]:
        """The size of what a stage of the project at `root` read, by the real path. DVC shortens a
        path that is in the project."""
        return {os.path.realpath(root / entry.path): entry.size for entry in self.of(reader).deps}

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
                _md5_of(self.of(stage).outs, file) == _md5(_content(root, file, rev))
                for stage, file in metrics
            )
        )


def _md5_of(entries: Sequence[Entry], path: Path) -> str | None:
    """The recorded hash of a file or folder; None if there is none."""
    return next((entry.md5 for entry in entries if entry.path == path.as_posix()), None)


def _content(root: Path, file: Path, rev: str | None) -> bytes:
    """A file in the workspace or at a revision; empty where there is none."""
    if rev is not None:
        return git.content(root, rev, file)
    return read_bytes(root / file) if (root / file).exists() else b""


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


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
