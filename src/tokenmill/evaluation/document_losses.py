"""The loss of each document of the measured validation text, and sums by source and by language.

Tables here are data frames of polars, which functions import when they are called, because it takes
0.2 s. `reports/validation_documents.csv` has a row for each epoch and document.
"""

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field

from tokenmill.core import paths
from tokenmill.core.files import write_text
from tokenmill.core.params import Finite
from tokenmill.formats.records import read_rows, rounded

if TYPE_CHECKING:
    import polars as pl

GROUPS: tuple["Group", ...] = ("source", "language")

Group: TypeAlias = Literal["source", "language"]
"""What documents are grouped by."""

MOST_ROWS = 100_000
"""The most rows of the table of documents. Of more, it has the newest epochs that fit, and none if
one does not; the sums by source and by language are of all."""

Count = Annotated[int, Field(ge=0, lt=1 << 53)]


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


def by_group(documents: "pl.DataFrame", group: Group) -> "pl.DataFrame":
    """For each epoch and source, or language, the number of documents, their bytes and bits per
    byte; the largest group first."""
    import polars as pl  # noqa: PLC0415 (see above)

    sums = documents.group_by("epoch", group, maintain_order=True).agg(
        documents=pl.len(), bytes=pl.sum("bytes"), loss=pl.sum("loss")
    )
    return (
        sums.filter(pl.col("bytes") > 0)
        .with_columns(bits_per_byte=pl.col("loss") / (math.log(2) * pl.col("bytes")))
        .sort("epoch", "bytes", group, descending=[False, True, False], nulls_last=True)
        .drop("loss")
    )


def write_documents(path: Path, documents: "pl.DataFrame") -> None:
    """Write `reports/validation_documents.csv`."""
    import polars as pl  # noqa: PLC0415 (see above)

    epochs = documents["epoch"].n_unique()
    left_out = epochs - MOST_ROWS * epochs // len(documents)
    write_table(path, documents.filter(pl.col("epoch") > left_out))


def write_table(path: Path, table: "pl.DataFrame") -> None:
    """Write a table as CSV, numbers with six significant digits."""
    import polars as pl  # noqa: PLC0415 (see above)
    import polars.selectors as columns  # noqa: PLC0415

    content = io.StringIO()
    table.with_columns(
        columns.float().map_elements(rounded, return_dtype=pl.Float64),
        # Names of folders may have any character, and readers end a line at several
        columns.string().map_elements(
            lambda name: " ".join(name.splitlines()), return_dtype=pl.String
        ),
    ).write_csv(content)
    write_text(path, content.getvalue())


def read_documents(path: Path) -> "pl.DataFrame":
    """Read `reports/validation_documents.csv`."""
    import polars as pl  # noqa: PLC0415 (see above)

    types = {"source": pl.String, "language": pl.String, "loss": pl.Float64}
    schema = {name: types.get(name, pl.Int64) for name in DocumentLoss.__dataclass_fields__}
    return pl.DataFrame(read_rows(path, DocumentLoss), schema=schema)


def loss_by(group: Group) -> Path:
    """The path of the table of `GroupLoss` by source or by language."""
    return paths.METRICS / f"loss_by_{group}.csv"
