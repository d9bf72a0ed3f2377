"""Any source as a stream of texts."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tokenmill.documents import plain_text, shapes
from tokenmill.documents.params import CleanParams
from tokenmill.documents.records import csv_rows, json_lines, json_values
from tokenmill.documents.report import Tally
from tokenmill.documents.sources import Source, blocks
from tokenmill.documents.tables import no_text, parquet_rows
from tokenmill.documents.unicode import decode, mend, utf8
from tokenmill.errors import UserError


def texts(
    source: Source, params: CleanParams, tally: Tally, advance: Callable[[int], None] = lambda _: None
) -> Iterator[str]:
    """The documents of one file as valid Unicode, in order, as they stand; what is not one is counted in `tally`.

    Raises:
        UserError: the file cannot be read or holds no text in a known shape.
    """
    for text in _raw_texts(source, params, tally, advance):
        whole, damaged = mend(text)
        tally.invalid_utf8 += damaged
        yield whole


def _raw_texts(source: Source, params: CleanParams, tally: Tally, advance: Callable[[int], None]) -> Iterator[str]:
    if source.format == ".parquet":
        rows = parquet_rows(source, params.columns, advance)
        yield from _found(rows, source, params.columns, tally)
        return
    name = str(source.path)
    stream = utf8(blocks(source, advance), name)
    if source.format in (".txt", ".md"):
        yield from map(decode, plain_text.documents(stream, params.text_file))
        return
    if source.format == ".jsonl":
        records: Iterable[Any] = json_lines(stream, name, tally)
    elif source.format == ".json":
        records = json_values(stream, name)
    else:
        records = csv_rows(stream, name, tally)
    yield from _found(records, source, params.columns, tally)


def _found(records: Iterable[Any], source: Source, columns: list[str] | None, tally: Tally) -> Iterator[str]:
    """The texts of records; the first record shows whether the file has any."""
    for number, record in enumerate(records):
        if number == 0 and columns is not None and set(columns) - set(shapes.keys(record)):
            raise UserError(no_text(source.path, shapes.keys(record), columns))
        text = shapes.text_of(record) if columns is None else shapes.join(record, columns)
        if text is None:
            if number == 0:
                raise UserError(no_text(source.path, shapes.keys(record), columns))
            tally.dropped["no_text"] += 1
            continue
        yield text
