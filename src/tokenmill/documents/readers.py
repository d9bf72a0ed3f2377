"""Any source as a stream of texts."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

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
    if source.format == ".parquet":
        rows = parquet_rows(source, params.columns, advance)
        return _mended(_found(rows, source, params, tally), tally)
    stream = utf8(blocks(source, advance), str(source.path))
    if source.format == ".jsonl":
        return texts_of_lines(stream, source, params, tally)
    if source.format in (".txt", ".md"):
        return _mended(map(decode, plain_text.documents(stream, params.text_file)), tally)
    if source.format == ".json":
        records: Iterable[Any] = json_values(stream, str(source.path))
    else:
        records = csv_rows(stream, str(source.path), tally)
    return _mended(_found(records, source, params, tally), tally)


def texts_of_lines(
    stream: Iterable[bytes], source: Source, params: CleanParams, tally: Tally, *, first: bool = True
) -> Iterator[str]:
    """The documents in JSON lines (UTF-8) of a file, which are the `first` ones or others."""
    records = json_lines(stream, str(source.path), tally, first=first)
    return _mended(_found(records, source, params, tally, first=first), tally)


def _mended(texts: Iterable[str], tally: Tally) -> Iterator[str]:
    for text in texts:
        whole, damaged = mend(text)
        tally.invalid_utf8 += damaged
        yield whole


def _found(
    records: Iterable[Any], source: Source, params: CleanParams, tally: Tally, *, first: bool = True
) -> Iterator[str]:
    """The texts of records; the `first` one of a file shows whether there are any."""
    columns = params.columns
    for record in records:
        if first and columns is not None and set(columns) - set(shapes.keys(record)):
            raise UserError(no_text(source.path, shapes.keys(record), columns))
        text = shapes.text_of(record) if columns is None else shapes.join(record, columns)
        if text is not None:
            yield text
        elif first:
            raise UserError(no_text(source.path, shapes.keys(record), columns))
        else:
            tally.drop("no_text", orjson.dumps(record, default=str).decode())
        first = False
