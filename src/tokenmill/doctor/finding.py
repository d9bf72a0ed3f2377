"""What a check found."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's."""

    level: Level
    name: str
    """What was looked at."""
    text: str
    mend: str | None = None
    """The command, or the few words, that mend it; None only where all is well."""


def ok(name: str, text: str) -> Finding:
    """All is well."""
    return Finding("ok", name, text)


def warning(name: str, text: str, mend: str) -> Finding:
    """A run goes on, but something is not as it should be."""
    return Finding("warning", name, text, mend)


def problem(name: str, text: str, mend: str) -> Finding:
    """A run would stop, or give something else than was meant."""
    return Finding("problem", name, text, mend)
