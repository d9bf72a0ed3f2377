"""The loss of each document of the measured validation text, and sums by source and by language.

Tables here are data frames of polars, which functions import when they are called, because it takes
0.2 s. `reports/validation_documents.csv` has a row for each epoch and document.
"""

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field

from tokenmill.core.files import rounded, write_text
from tokenmill.formats.measured import MeasuredText
from tokenmill.formats.records import read_rows
from tokenmill.formats.token_file import SourceRun
from tokenmill.formats.tokenizer import TextTokenizer, token_bytes

if TYPE_CHECKING:
    import polars as pl

GROUPS: tuple["Group", ...] = ("source", "language")

Group: TypeAlias = Literal["source", "language"]
"""What documents are grouped by."""

MOST_ROWS = 100_000
"""The most rows of the table of documents. Of more, it has the newest epochs that fit, and none if
one does not; the sums by source and by language are of all."""

Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


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
class MeasuredDocuments:
    """The documents of a measured text."""

    text: MeasuredText
    begins: np.ndarray
    """The number of the first target of each document in those of the text; (documents,) int64."""
    bytes: np.ndarray
    """The UTF-8 bytes of each; (documents,) int64."""

    @classmethod
    def of(cls, text: MeasuredText, tokenizer: TextTokenizer) -> "MeasuredDocuments":
        """Divide a measured text into its documents."""
        ids = text.ids[1:]
        begins = np.append(0, np.flatnonzero(ids == tokenizer.eot_id)[:-1] + 1)
        lengths = np.array([len(token) for token in token_bytes(tokenizer)])
        return cls(text, begins, np.add.reduceat(lengths[ids], begins))

    def openings(self, most_tokens: int) -> Iterator[list[int]]:
        """The first tokens of each document, without end-of-text."""
        ids = self.text.ids[1:]
        ends = np.append(self.begins[1:], len(ids)) - 1
        stops = np.minimum(ends, self.begins + most_tokens)
        for begin, stop in zip(self.begins.tolist(), stops.tolist(), strict=True):
            yield ids[begin:stop].tolist()

    def sums(self, losses: np.ndarray) -> np.ndarray:
        """The loss of each document, (documents,) float64, from that of each target, (targets,)
        float32."""
        return np.add.reduceat(losses, self.begins, dtype=np.float64)

    def table(
        self,
        losses: Sequence[np.ndarray],
        sources: Sequence[SourceRun],
        languages: Sequence[str | None],
    ) -> "pl.DataFrame":
        """The columns of `DocumentLoss`, by epoch and document.

        Args:
            losses: for each epoch the loss of each document; (documents,) float64 each.
            sources: of all documents of the split.
            languages: of each document.
        """
        import polars as pl  # noqa: PLC0415 (see above)

        names = np.repeat(
            np.array([run.source for run in sources], dtype=object),
            [run.documents for run in sources],
        )
        tokens = np.diff(self.begins, append=len(self.text.ids) - 1)
        documents = pl.DataFrame(
            {
                "document": self.text.numbers + 1,
                "source": pl.Series(names[self.text.numbers].tolist(), dtype=pl.String),
                "language": pl.Series(languages, dtype=pl.String),
                "tokens": tokens,
                "bytes": self.bytes,
            }
        )
        return pl.concat(
            documents.select(
                pl.lit(epoch, pl.Int64).alias("epoch"),
                pl.all(),
                pl.Series("loss", each),
            )
            for epoch, each in enumerate(losses, 1)
        )


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
