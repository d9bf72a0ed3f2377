"""docs/parameters.md, generated from the parameter models, so that it cannot differ from what the code obeys."""

import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from tokenmill.core.params import PARAMS_FILE, Section, read_yaml
from tokenmill.schema import AllParams, check_all

HEAD = """\
# Parameters

Every parameter in params.yaml, generated from the code (`tokenmill params --write docs/parameters.md`). The column
«default» is what params.yaml holds as it comes; there are no other defaults. Set one for an experiment with
`dvc exp run -S NAME=VALUE`."""


SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def render(path: Path = PARAMS_FILE) -> str:
    """The whole reference as Markdown, with the values in a file as the defaults.

    Raises:
        UserError: the file is not right.
    """
    check_all(path)
    values, parts = read_yaml(path), [HEAD]
    for name, field in AllParams.model_fields.items():
        section = _section(field)
        assert section
        title = f"## {name}\n\n{_prose(section.__doc__ or '')}"
        head = ["| parameter | default | values | meaning |", "| --- | --- | --- | --- |"]
        parts.append(title + "\n\n" + "\n".join([*head, *_rows(section, name, values[name])]))
    return "\n\n".join(parts) + "\n"


def _rows(kind: type[Section], prefix: str, values: Mapping[str, Any]) -> typing.Iterator[str]:
    for name, field in kind.model_fields.items():
        value = values[name]
        full = f"{prefix}.{name}"
        if section := _section(field):
            yield from _rows(section, full, value)
        elif entry := _entry(field):
            yield f"| `{full}` | {len(value)} entries | list | {_prose(field.description or '')} |"
            for key, part in entry.model_fields.items():
                yield f"| `{full}[].{key}` | | {_values(part)} | {_prose(part.description or '')} |"
        else:
            yield f"| `{full}` | `{_yaml(value)}` | {_values(field)} | {_prose(field.description or '')} |"


def _section(field: FieldInfo) -> type[Section] | None:
    """The model of a section, if it is one."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _entry(field: FieldInfo) -> type[Section] | None:
    """The model of a list's entries, if it is a list of sections."""
    arguments = typing.get_args(field.annotation)
    is_list = typing.get_origin(field.annotation) is list
    return arguments[0] if is_list and isinstance(arguments[0], type) and issubclass(arguments[0], Section) else None


def _values(field: FieldInfo) -> str:
    """What a parameter may be: its type and bounds, or its choices."""
    return f"{_type(field.annotation)} {_bounds(field)}".strip()


def _bounds(field: FieldInfo) -> str:
    return ", ".join(f"{SIGNS[k]} {getattr(m, k)}" for m in field.metadata for k in SIGNS if hasattr(m, k))


def _type(annotation: Any) -> str:
    if annotation is type(None):
        return "null"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return " ".join([_type(arguments[0]), *(_bounds(field) for field in arguments[1:])])
    if origin is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if arguments:
        return " or ".join(_type(argument) for argument in arguments)
    return {"int": "integer", "float": "number", "str": "text", "bool": "true or false"}[annotation.__name__]


def _yaml(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _prose(docstring: str) -> str:
    return " ".join(docstring.split()).replace("|", "\\|")
