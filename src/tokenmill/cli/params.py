"""`tokenmill params`: docs/parameters.md, generated from the parameter models, so that it agrees
with the code."""

import argparse
import itertools
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.main import Parser
from tokenmill.core.errors import UserError, did_you_mean
from tokenmill.core.files import write_text
from tokenmill.display import console, print_columns, say

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

HEAD = """\
# Parameters

Every parameter in params.yaml, generated from the code
(`tokenmill params --write docs/parameters.md`). The column «default» is what params.yaml holds as
it comes; there are no other defaults. Set one for an experiment with
`dvc exp run -S NAME=VALUE`."""

BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}

EXAMPLES = """\
  tokenmill params                                 every parameter with its range and its meaning
  tokenmill params model.n_layer                   one of them
  tokenmill params train.schedule                  those of a section
  tokenmill params --write docs/parameters.md      the same into a file
"""


def add_arguments(parser: Parser) -> None:
    """Declare what is explained, and where the reference goes."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "name", nargs="?", metavar="NAME", help="one parameter or section, as model.n_layer"
    )
    what.add_argument("--write", type=Path, metavar="FILE", help="write the reference to FILE")
    what.add_argument(
        "--check", type=Path, metavar="FILE", help="fail if FILE is not the reference"
    )


def run(options: argparse.Namespace) -> None:
    """Check params.yaml; print, write or compare the reference, or explain some parameters."""
    if options.name:
        explain(options.name)
        return
    text = reference()
    if options.check:
        file = options.check
        if not file.exists() or file.read_text(encoding="utf-8", errors="replace") != text:
            raise UserError(
                f"{file} is not the reference of this params.yaml; `tokenmill params --write "
                f"{file}` writes it."
            )
    elif options.write:
        write_text(options.write, text)
    else:
        say(text.rstrip("\n"))


def reference(path: Path = Path("params.yaml")) -> str:
    """The whole reference as Markdown, with the values in a file as the defaults."""
    parts = [HEAD]
    for name, section, facts in _sections(path):
        rows = ["| parameter | default | values | meaning |", "| --- | --- | --- | --- |"]
        for each, value, allowed, meaning in facts:
            rows.append(f"| `{each}` | {value + ' ' if value else ''}| {allowed} | {meaning} |")
        parts += [f"## {name}", _prose(section.__doc__), "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def explain(name: str) -> None:
    """Print the parameters that are called `name` or belong to the section of that name: value,
    values and meaning.

    Raises:
        UserError: there is no such parameter; the nearest one is named.
    """
    from tokenmill.core.params import PARAMS_FILE

    found = {each: rest for *_, facts in _sections(PARAMS_FILE) for each, *rest in facts}
    chosen = [each for each in found if each == name or each.startswith((f"{name}.", f"{name}["))]
    if not chosen:
        above = (itertools.accumulate(each.split("."), "{}.{}".format) for each in found)
        known = dict.fromkeys(itertools.chain.from_iterable(above))
        hint = did_you_mean(name, known) or "`tokenmill params` lists them all."
        raise UserError(f"{name} is not a parameter; {hint}")
    for each in chosen:
        value, values, meaning = (text.replace("`", "") for text in found[each])
        console().print(f"{each}: {value}" if value else each, style="bold")
        print_columns([("  ", values), ("  ", meaning.replace("\\|", "|"))], gap=0)


def _sections(path: Path) -> Iterator[tuple[str, Any, Iterator[tuple[str, str, str, str]]]]:
    """Yield the name of each section of params.yaml, its model, and what `_facts` says of it."""
    from tokenmill.core.params import read_yaml
    from tokenmill.schema import AllParams, check_all

    check_all(path)
    values = read_yaml(path)
    for name, field in AllParams.model_fields.items():
        yield name, field.annotation, _facts(field.annotation, name, values[name])


def _facts(
    section: Any, prefix: str, values: Mapping[str, Any]
) -> Iterator[tuple[str, str, str, str]]:
    """Of each parameter of a section its dotted name, value, allowed values and meaning."""
    descriptions = section.descriptions()
    for name, field in section.model_fields.items():
        full = f"{prefix}.{name}"
        value = values[name]
        meaning = _prose(descriptions.get(name))
        if _is_section(field.annotation):
            yield from _facts(field.annotation, full, value)
            continue
        is_long = isinstance(value, list) and value
        shown = f"{len(value)} entries" if is_long else f"`{_yaml(value)}`"
        yield full, shown, _values(field), meaning
        for entry in _entries(field.annotation):
            of_entry = entry.descriptions()
            for key, part in entry.model_fields.items():
                yield f"{full}[].{key}", "", _values(part), _prose(of_entry.get(key))


def _entries(annotation: Any) -> Iterator[Any]:
    """The section of which a parameter is a list, also if the list is only one of its choices."""
    if typing.get_origin(annotation) is list:
        yield from filter(_is_section, typing.get_args(annotation))
    else:
        for choice in typing.get_args(annotation):
            yield from _entries(choice)


def _is_section(kind: Any) -> bool:
    return hasattr(kind, "model_fields")


def _values(field: "FieldInfo") -> str:
    """The allowed values of a parameter: its type and bounds, or its choices."""
    return f"{_type(field.annotation)} {_bounds(field)}".strip()


def _bounds(field: "FieldInfo") -> str:
    return ", ".join(
        f"{BOUNDS[k]} {getattr(m, k)}" for m in field.metadata for k in BOUNDS if hasattr(m, k)
    )


def _type(annotation: Any) -> str:
    if annotation is type(None):
        return "null"
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        bounds = (_bounds(one) for one in arguments[1:] if hasattr(one, "metadata"))
        return " ".join(filter(None, [_type(arguments[0]), *bounds]))
    if origin is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin in (list, dict):
        kind = "list of" if origin is list else "map of names to"
        return "list" if _is_section(arguments[-1]) else f"{kind} {_type(arguments[-1])}"
    if arguments:
        return " or ".join(_type(argument) for argument in arguments)
    return {"int": "integer", "float": "number", "str": "text", "bool": "true or false"}[
        annotation.__name__
    ]


def _yaml(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _prose(docstring: str | None) -> str:
    return " ".join((docstring or "").split()).replace("|", "\\|")
