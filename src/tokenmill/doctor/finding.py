"""What a check takes and returns: what is known of the project, and findings."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # `tokenmill` alone uses some checks and does without PyTorch
    from dvc.repo import Repo

    from tokenmill.data.sources import Found
    from tokenmill.model.device import Compute
    from tokenmill.schema import AllParams

BUILT_IN = "data/raw/sample"
"""What the stage `sample` writes."""

ONE_COMMIT = ("dvc.lock", "dvc.yaml", "params.yaml", "metrics", "reports")
"""What belongs into one commit: a clone in which they do not match trains again."""

Level = Literal["ok", "warning", "problem"]

TOKEN_STAGES = ("clean", "tokenizer", "tokenize", "unpack")
"""The stages that make the tokens."""

STAGES = (*TOKEN_STAGES, "train")
"""The stages with large outputs."""


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    level: Level
    name: str
    """What was checked, in one word."""
    text: str
    fix: str | None = None
    """The command, or the few words, that fix it; None if all is well."""


def ok(name: str, text: str) -> Finding:
    """All is well."""
    return Finding("ok", name, text)


def warning(name: str, text: str, fix: str) -> Finding:
    """A run works, but something is not as it should be."""
    return Finding("warning", name, text, fix)


def problem(name: str, text: str, fix: str) -> Finding:
    """A run would stop, or its result would not be the expected one."""
    return Finding("problem", name, text, fix)


@dataclass
class Project:
    """The project that is checked. A check writes down here what later checks need; None: not known."""

    root: Path
    params: "AllParams | None" = None
    raw: "Found | None" = None
    """The files of data.raw."""
    repo: "Repo | None" = None
    outdated: Collection[str] = STAGES
    """The stages that `dvc repro` would run."""
    compute: "Compute | None" = None


Check = Callable[[Project], Iterable[Finding]]
"""Looks at one thing and changes nothing. It finds nothing if it lacks what an earlier check could not provide."""
