"""What a check takes and what it finds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # `tokenmill` alone uses some checks and does without PyTorch
    from dvc.repo import Repo

    from tokenmill.data.sources import Found
    from tokenmill.model.device import Compute
    from tokenmill.schema import AllParams

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    level: Level
    name: str
    """The subject of the check, in one word."""
    text: str
    fix: str | None = None
    """The command, or the few words, that fix the problem; None if all is well."""


def ok(name: str, text: str) -> Finding:
    """A finding that all is well."""
    return Finding("ok", name, text)


def warning(name: str, text: str, fix: str) -> Finding:
    """A finding that a run works although something is not as it should be."""
    return Finding("warning", name, text, fix)


def problem(name: str, text: str, fix: str) -> Finding:
    """A finding that a run would stop, or that its result would not be the expected one."""
    return Finding("problem", name, text, fix)


@dataclass(frozen=True)
class Pipeline:
    """What DVC says of the stages, and of what `dvc add` tracks, which is named by its place."""

    outdated: Sequence[str] = ()
    """The stages that `dvc repro` would run."""
    unfetched: Sequence[str] = ()
    """The places of what `dvc add` tracks and is not here. Without it DVC runs no stage."""
    uncached: Sequence[str] = ()
    """Those whose outputs are here as DVC recorded them, but not in its cache."""
    frozen: Mapping[str, bool] = field(default_factory=dict)
    """The stages that DVC does not run whatever changes, each with whether it can unfreeze it."""


@dataclass
class Project:
    """The project that is checked, with what checks found for later checks. None means not
    known."""

    root: Path
    params: "AllParams | None" = None
    raw: "Found | None" = None
    """The files at data.raw."""
    repo: "Repo | None" = None
    pipeline: Pipeline | None = None
    uncommitted: list[str] | None = None
    """The files of ONE_COMMIT that differ from the last commit."""
    compute: "Compute | None" = None


Check = Callable[[Project], Iterable[Finding]]
"""A check looks at one thing and changes nothing. It yields no finding if it lacks what an earlier
check could not provide."""


def few(names: list[str]) -> str:
    """At most four of the names, and the number of the others."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
