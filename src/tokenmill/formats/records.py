"""Read what a stage wrote: JSON files and tables, each checked against its form before use. And
write tables of such rows.

There is no other way to read them, so each damage ends in the same sentence: the file, what is
wrong, the way out.
"""

import contextlib
import csv
import functools
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from tokenmill.core import paths
from tokenmill.core.errors import UserError, first_line
from tokenmill.core.files import append_text, open_regular, read_bytes, write_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LARGEST_FILE = 1 << 28
"""The most bytes that such a file may have. The largest ones, tables of steps and evaluations, have
some megabytes."""

OF_ANOTHER_VERSION = {"missing": "has no", "extra_forbidden": "has an unknown"}
"""The kinds of pydantic's errors about a file that another version may have written, each with how
it is said."""

Form = TypeVar("Form")
Row = TypeVar("Row", bound="DataclassInstance")


@functools.cache
def adapter(form: type[Form]) -> TypeAdapter[Form]:
    """The validator of a form. It is cached, because making one takes longer than most checks."""
    return TypeAdapter(form)


def read_record(path: Path, form: type[Form], *, way_out: str = "") -> Form:
    """The content of a JSON file in the given form: a pydantic model, a dataclass, or a type such
    as `dict[str, int]`.

    Args:
        path: the file.
        form: what must be in it.
        way_out: what to do about a damaged file; as `paths.way_out` says if it is not given.
    """
    way_out = way_out or paths.way_out(path)
    return parse_record(_content(path, way_out), form, source=path, way_out=way_out)


def parse_record(content: bytes, form: type[Form], *, source: object, way_out: str) -> Form:
    """Check JSON that comes from elsewhere against a form; error messages call it `source`."""
    with _damage_named("JSON", source, way_out):
        return adapter(form).validate_python(json.loads(content))


def checked(value: Any, form: type[Form], *, source: object, way_out: str) -> Form:
    """Check a value that was parsed before against a form; error messages call it `source`."""
    with _damage_named("JSON", source, way_out):
        return adapter(form).validate_python(value)


def read_rows(path: Path, form: type[Form]) -> list[Form]:
    """The rows of a CSV file with a header. An empty cell is null; columns that `form` does not
    have are ignored."""
    way_out = paths.way_out(path)
    return parse_rows(_content(path, way_out), form, source=path, way_out=way_out)


def read_whole_rows(path: Path, form: type[Form], *, way_out: str) -> list[Form]:
    """The rows of a table to which a program appends; see `read_rows`. A last row that is still
    being written, or that a crash cut off, is left out. Without a file there are none.

    Raises:
        UserError: also if the file is a link.
    """
    content = read_bytes(path, follow=False) if os.path.lexists(path) else b""
    whole = content[: content.rfind(b"\n") + 1]
    return parse_rows(whole, form, source=path, way_out=way_out)


def parse_rows(content: bytes, form: type[Form], *, source: object, way_out: str) -> list[Form]:
    """The rows of a table that comes from elsewhere; see `read_rows`."""
    with _damage_named("a table", source, way_out):
        rows = csv.reader(content.decode("utf-8").splitlines(), strict=True)
        head = next(rows, [])
        # `form` is known only at run time
        forms: Any = list[form]  # pyright: ignore[reportInvalidTypeForm]
        return adapter(forms).validate_python([_cells(head, row) for row in rows if row])


def write_rows(path: Path, form: type[Row], rows: Sequence[Row]) -> None:
    """Write rows as the CSV file that `read_rows` reads, numbers with six significant digits."""
    write_text(path, table(form, rows))


def append_rows(path: Path, rows: Sequence[Row]) -> None:
    """Append rows to such a file.

    Raises:
        OSError: it is missing, a link or a pipe.
    """
    append_text(path, _lines(rows))


def table(form: type[Row], rows: Sequence[Row]) -> str:
    """The content of such a file."""
    return csv_line(column.name for column in fields(form)) + _lines(rows)


def _lines(rows: "Sequence[DataclassInstance]") -> str:
    return "".join(csv_line(astuple(row)) for row in rows)


def csv_line(values: Iterable[str | float | None]) -> str:
    """A row of a table as CSV, numbers with six significant digits; None is an empty cell."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(
        rounded(value) if isinstance(value, float) else value for value in values
    )
    return line.getvalue()


def rounded(value: float) -> float:
    """The value with six significant digits, as metrics and tables hold it."""
    return float(f"{value:.6g}")


def _cells(head: list[str], row: list[str]) -> dict[str, str | None]:
    """The cells of a row by the names in the head; an empty one is null.

    Raises:
        ValueError: it has more or fewer cells than the head.
    """
    if len(row) != len(head):
        raise ValueError("a row has not as many cells as the head")
    return dict(zip(head, [cell or None for cell in row], strict=True))


def _content(path: Path, way_out: str) -> bytes:
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > LARGEST_FILE:
                raise UserError(
                    f"{path} has more than {LARGEST_FILE:,} bytes, so no stage wrote it; {way_out}."
                )
            return file.read(size)  # (with a bound instead, Python takes memory for so many bytes)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; `dvc repro` makes it.") from None


@contextlib.contextmanager
def _damage_named(kind: str, source: object, way_out: str) -> Iterator[None]:
    """Within this block, turn the errors of reading and checking into one sentence."""
    try:
        yield
        return
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        problem = f"is damaged ({where}: {first['msg'].removeprefix('Value error, ')})"
        if first["type"] in OF_ANOTHER_VERSION:
            has = OF_ANOTHER_VERSION[first["type"]]
            problem = f"{has} {where}: another version of TokenMill wrote it, or it is damaged"
    except RecursionError:
        problem = f"is not {kind} (nested too deeply)"
    except (ValueError, csv.Error) as error:
        problem = f"is not {kind} ({first_line(error)})"
    raise UserError(f"{source} {problem}; {way_out}.")
