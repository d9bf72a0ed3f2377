"""The tables of validation losses: a row for each document, and sums by source and by language."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from tokenmill.core import paths
from tokenmill.core.params import Count, Finite
from tokenmill.formats.records import read_rows

if TYPE_CHECKING:
    import polars as pl

GROUPS: tuple["Group", ...] = ("source", "language")

Group: TypeAlias = Literal["source", "language"]
"""What documents are grouped by."""


@dataclass(frozen=True)
class DocumentLoss:
    """A document at an epoch; a row of `reports/validation_documents.csv`."""

    epoch: Count
    document: Count
    """Its number in the validation text, from 1."""
    source: str | None
    """Where it comes from, as metadata.json of the tokens has it; null if sources are not told
    apart."""
    language: str | None
    """Null if it is not clear."""
    tokens: Count
    """Its tokens, with end-of-text and the boundaries of turns."""
    bytes: Count
    """The UTF-8 bytes of its text."""
    loss: Finite
    """The sum of the losses of its tokens, in nats."""


@dataclass(frozen=True)
class GroupLoss:
    """The validation text of a source or in a language at an epoch; a row of
    `metrics/loss_by_source.csv` or of `loss_by_language.csv`."""

    epoch: Count
    documents: Count
    bytes: Count
    bits_per_byte: Finite
    source: str | None = None
    language: str | None = None

    @property
    def name(self) -> str | None:
        """The source or the language; None if it is not told apart, or not clear."""
        return self.language if self.source is None else self.source


def read_documents(path: Path) -> "pl.DataFrame":
    """Read `reports/validation_documents.csv`."""
    import polars as pl  # noqa: PLC0415 (takes 0.2 s)

    types = {"source": pl.String, "language": pl.String, "loss": pl.Float64}
    schema = {name: types.get(name, pl.Int64) for name in DocumentLoss.__dataclass_fields__}
    return pl.DataFrame(read_rows(path, DocumentLoss), schema=schema)


def loss_by(group: Group) -> Path:
    """The path of the table of `GroupLoss` by source or by language."""
    return paths.METRICS / f"loss_by_{group}.csv"
