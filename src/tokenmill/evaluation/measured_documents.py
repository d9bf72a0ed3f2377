"""The documents of the measured validation text: where each comes from, its language, its loss at
every epoch; and sums by source and by language."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from tokenmill.core.files import write_text
from tokenmill.formats.chat_columns import as_lines
from tokenmill.formats.measured import MeasuredText
from tokenmill.formats.records import csv_line
from tokenmill.formats.token_file import SourceRun
from tokenmill.formats.token_row import document_ends
from tokenmill.formats.tokenizer import TextTokenizer, token_lengths
from tokenmill.languages import LANGUAGE_CHARS, detect_languages

SURE = 0.65
"""How sure the detection of a document's language must be, from 0 to 1, as FineWeb has it."""

LEAST_BYTES = 60
"""The UTF-8 bytes of a document below which its language is not clear: a few words may surely look
like any."""

MOST_ROWS = 100_000
"""The most rows of the table of documents. Of more, it has the newest epochs that fit, and none if
one does not; the sums by source and by language are of all."""


class MeasuredDocuments:
    """The documents of a measured text, and the loss of each at every epoch."""

    def __init__(self, text: MeasuredText, tokenizer: TextTokenizer, sources: Sequence[SourceRun]):
        """Divide a measured text into its documents; `sources` are those of the whole split."""
        self._tokenizer = tokenizer
        self._numbers = text.numbers
        self._sources = sources
        self._ids = text.ids[1:]
        self._ends = document_ends(self._ids, tokenizer.eot_id)
        self._begins = np.append(0, self._ends[:-1])
        self._bytes = np.add.reduceat(token_lengths(tokenizer)[self._ids], self._begins)
        self._losses: list[np.ndarray] = []

    def add(self, losses: np.ndarray) -> None:
        """Add the next epoch by the loss of each target of the text, (targets,) float32, in
        nats."""
        self._losses.append(np.add.reduceat(losses, self._begins, dtype=np.float64))

    def table(self) -> pl.DataFrame:
        """The columns of `DocumentLoss`, by epoch and document."""
        names = np.repeat(
            np.array([run.source for run in self._sources], dtype=object),
            [run.documents for run in self._sources],
        )
        documents = pl.DataFrame(
            {
                "document": self._numbers + 1,
                "source": pl.Series(names[self._numbers].tolist(), dtype=pl.String),
                "language": pl.Series(self._languages(), dtype=pl.String),
                "tokens": self._ends - self._begins,
                "bytes": self._bytes,
            }
        )
        return pl.concat(
            documents.select(
                pl.lit(epoch, pl.Int64).alias("epoch"),
                pl.all(),
                pl.Series("loss", each),
            )
            for epoch, each in enumerate(self._losses, 1)
        )

    def _languages(self) -> list[str | None]:
        """The language of each document, where it is clear."""
        texts = as_lines(pl.Series(self._openings(), dtype=pl.String))
        found = detect_languages(texts)
        is_sure = (pl.col("confidence") >= SURE) & pl.Series(self._bytes >= LEAST_BYTES)
        return found.select(pl.when(is_sure).then("language"))["language"].to_list()

    def _openings(self) -> list[str]:
        """The first characters of each document, and the marks of turns between them."""
        # A character has four bytes at most, and a token of text one at least
        stops = np.minimum(self._ends - 1, self._begins + 4 * LANGUAGE_CHARS)
        return [
            self._tokenizer.decode_document(self._ids[begin:stop].tolist())[: 2 * LANGUAGE_CHARS]
            for begin, stop in zip(self._begins.tolist(), stops.tolist(), strict=True)
        ]


def by_group(documents: pl.DataFrame, group: str) -> pl.DataFrame:
    """For each epoch and value of the column `group` (source or language) the number of documents,
    their bytes and bits per byte; the largest group first."""
    sums = documents.group_by("epoch", group, maintain_order=True).agg(
        documents=pl.len(), bytes=pl.sum("bytes"), loss=pl.sum("loss")
    )
    return (
        sums.filter(pl.col("bytes") > 0)
        .with_columns(bits_per_byte=pl.col("loss") / (math.log(2) * pl.col("bytes")))
        .sort("epoch", "bytes", group, descending=[False, True, False], nulls_last=True)
        .drop("loss")
    )


def write_documents(path: Path, documents: pl.DataFrame) -> None:
    """Write `reports/validation_documents.csv`."""
    epochs = documents["epoch"].n_unique()
    left_out = epochs - MOST_ROWS * epochs // len(documents)
    write_table(path, documents.filter(pl.col("epoch") > left_out))


def write_table(path: Path, table: pl.DataFrame) -> None:
    """Write a table as CSV, numbers with six significant digits."""
    # Names of folders may have any character, and readers end a line at several
    rows = (
        [" ".join(cell.splitlines()) if isinstance(cell, str) else cell for cell in row]
        for row in table.iter_rows()
    )
    write_text(path, csv_line(table.columns) + "".join(map(csv_line, rows)))
