"""The report's numbers as tables for `dvc plots`."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tokenmill.describe.measures import Measures
from tokenmill.files import write_text
from tokenmill.page.text import token_text

FREQUENT = 30
"""Tokens in frequent_tokens.csv."""


def write_tables(folder: Path, measures: Measures, vocabulary: Sequence[bytes]) -> None:
    """Write document_lengths.csv, dropped.csv, frequent_tokens.csv and languages.csv."""
    clean = measures.clean
    lengths = zip(clean.lengths.edges, clean.lengths.read, clean.lengths.kept, strict=True)
    _write(
        folder / "document_lengths.csv",
        ("log2_characters", "read", "kept"),
        ((edge.bit_length() - 1, read, kept) for edge, read, kept in lengths if edge),
    )
    _write(folder / "dropped.csv", ("reason", "documents"), _falling(clean.dropped))
    order = np.argsort(-measures.by_id, kind="stable")[:FREQUENT]
    _write(
        folder / "frequent_tokens.csv",
        ("token", "occurrences"),
        ((token_text(vocabulary[token_id]), int(measures.by_id[token_id])) for token_id in order),
    )
    _write(folder / "languages.csv", ("language", "documents"), _falling(clean.languages))


def _falling(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The largest count first."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(head)
    table.writerows(rows)
    write_text(path, text.getvalue())
