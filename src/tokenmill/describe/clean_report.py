"""What the stage `clean` says about its work in data/clean_report.json."""

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from tokenmill.errors import UserError
from tokenmill.files import read_json
from tokenmill.params import Section


class Files(Section):
    """Files below data.raw."""

    read: int
    skipped: dict[str, int]
    """Files of unknown format, by extension."""
    bytes: int
    """Of the files read, as they lie on disk."""


class Documents(Section):
    """Documents, all or of one source."""

    read: int
    kept: int


class Characters(Section):
    """Unicode code points."""

    into: int = Field(alias="in")
    """Of all documents, before cleaning."""
    out: int
    """Of those kept, after cleaning."""


class Lengths(Section):
    """How many documents have how many characters."""

    edges: list[int]
    """Where each bin begins; it ends where the next one begins, the last one nowhere."""
    read: list[int]
    kept: list[int]

    @model_validator(mode="after")
    def _as_many(self) -> "Lengths":
        if not len(self.edges) == len(self.read) == len(self.kept) > 0:
            raise ValueError("edges, read and kept must be of one length")
        return self


class CleanReport(Section):
    """data/clean_report.json."""

    files: Files
    documents: Documents
    characters: Characters
    invalid_utf8: int
    """Documents in which something that is no valid Unicode was replaced."""
    dropped: dict[str, int]
    """Documents by reason; every reason that `clean` knows."""
    meanings: dict[str, str]
    """The reasons in words."""
    examples: dict[str, list[str]]
    """Beginnings of a few dropped documents, by reason."""
    lengths: Lengths
    languages: dict[str, int]
    """Documents by language, of those kept documents that were asked."""
    sources: dict[str, Documents]
    """The largest files."""
    params: dict[str, Any]
    """Of the stage `clean`."""


def read_clean_report(path: Path) -> CleanReport:
    """Read what `clean` wrote.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        return CleanReport.model_validate(read_json(path))
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"]))
        raise UserError(
            f"{path}: {name or 'the file'} is wrong ({problem['msg']}); `dvc repro -f clean` makes it anew."
        ) from None
