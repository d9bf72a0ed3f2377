"""Read what a stage wrote: JSON files and tables, each checked against its form before use.

There is no other way to read them, so each damage ends in the same sentence: the file, what is
wrong, the way out.
"""

import contextlib
import csv
import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from tokenmill.core.errors import UserError, first_line
from tokenmill.core.files import open_regular

LARGEST_FILE = 1 << 28
"""Bytes of such a file at most; the largest ones, tables of steps and evaluations, have some
megabytes."""

Form = TypeVar("Form")


@functools.cache
def adapter(form: type[Form]) -> TypeAdapter[Form]:
    """What checks values against a form; to make it takes longer than most checks."""
    return TypeAdapter(form)


def read_record(path: Path, form: type[Form], *, way_out: str) -> Form:
    """The content of a JSON file in the given form: a pydantic model, a dataclass, or a type such
    as `dict[str, int]`.

    Args:
        path: the file.
        form: what must be in it.
        way_out: what to do about a damaged file, as "`dvc repro -f train` makes it".

    Raises:
        UserError: the file is missing, damaged, or of another form.
    """
    return parse_record(_content(path, way_out), form, source=path, way_out=way_out)


def parse_record(content: bytes, form: type[Form], *, source: object, way_out: str) -> Form:
    """The same for JSON that comes from elsewhere; `source` is what the sentence calls it.

    Raises:
        UserError: it is damaged, or of another form.
    """
    with _damage_named("JSON", source, way_out):
        return adapter(form).validate_python(json.loads(content))


def checked(value: Any, form: type[Form], *, source: object, way_out: str) -> Form:
    """A value that was read before, in the given form.

    Raises:
        UserError: it is of another form.
    """
    with _damage_named("JSON", source, way_out):
        return adapter(form).validate_python(value)


def read_rows(path: Path, form: type[Form], *, way_out: str) -> list[Form]:
    """The rows of a CSV file with a head; an empty cell is null, and other columns than those of
    `form` do not count.

    Raises:
        UserError: the file is missing, damaged, or has rows of another form.
    """
    return parse_rows(_content(path, way_out), form, source=path, way_out=way_out)


def parse_rows(content: bytes, form: type[Form], *, source: object, way_out: str) -> list[Form]:
    """The same for a table that comes from elsewhere.

    Raises:
        UserError: it is damaged, or has rows of another form.
    """
    with _damage_named("a table", source, way_out):
        rows = csv.DictReader(content.decode("utf-8").splitlines(), strict=True)
        # A form that is known only now
        table: Any = list[form]  # pyright: ignore[reportInvalidTypeForm]
        return adapter(table).validate_python([_cells(row) for row in rows])


def _cells(row: dict[str | Any, Any]) -> dict[str, str | None]:
    """A row without empty cells' texts.

    Raises:
        ValueError: it has more or fewer cells than the head.
    """
    if None in row or None in row.values():
        raise ValueError("a row has not as many cells as the head")
    return {name: cell or None for name, cell in row.items()}


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
        problem = f"is damaged ({'.'.join(map(str, first['loc'])) or 'all of it'}: {first['msg']})"
    except RecursionError:
        problem = f"is not {kind} (nested too deeply)"
    except (ValueError, csv.Error) as error:
        problem = f"is not {kind} ({first_line(error)})"
    raise UserError(f"{source} {problem}; {way_out}.")
