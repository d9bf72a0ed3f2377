"""params.yaml with other values: its parameters, and its text, of which all else stays as it is."""

import contextlib
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, YAMLError, events

from tokenmill.core.errors import UserError
from tokenmill.core.files import read_bytes
from tokenmill.core.params import parse_yaml, read_yaml, validate, yaml_problem, yaml_value
from tokenmill.schema import AllParams

SIGN_OR_COMMENT = re.compile(r"#[^\r\n]*|[^\s#]+")
"""What stands between the scalars of a YAML text, except blanks."""


def params_with(values: Mapping[str, Any], path: Path, overrides: Sequence[str] = ()) -> AllParams:
    """The parameters in a file with other values by their dotted names, and then with each
    `NAME=VALUE` of `overrides`. Nothing is written."""
    content = read_yaml(path)
    for name, value in values.items():
        section, key = _known(content, name, path)
        section[key] = value
    for text in overrides:
        apply_override(content, text)
    return validate(AllParams, content, path)


def text_with(values: Mapping[str, Any], path: Path) -> str:
    """The text of a params.yaml with other values by their dotted names. All else in it stays as it
    is: comments, order, blanks and line ends.

    Raises:
        UserError: the file cannot be read, lacks one of the names, or repeats a part of itself that
            has one of them.
    """
    wanted = read_yaml(path)
    text = read_bytes(path).decode("utf-8")
    try:
        places = _places(text)
    except YAMLError as error:  # of what C reads and Python does not, as a tab outside of quotes
        problem = yaml_problem(error, text)
        raise UserError(f"{path} cannot get these values: {problem}") from None
    edits: list[tuple[_Place, str]] = []
    for name, value in values.items():
        section, key = _known(wanted, name, path)
        if section[key] != value:
            section[key] = value
            if name in places:
                edits.append((places[name], _written(value)))
    for place, value in sorted(edits, key=lambda edit: -edit[0].after):
        text = place.replaced(text, value)
    with contextlib.suppress(UserError):
        if parse_yaml(text.encode(), path) == wanted:
            return text
    raise UserError(
        f"{path} cannot get these values, because it repeats parts of itself (`&name`, `*name`, "
        "`<<`); write them out."
    )


@dataclass(frozen=True)
class _Place:
    """Where a value stands in a YAML text."""

    after: int
    """The end of its name."""
    parts: list[tuple[int, int]]
    """Its beginning, the names and scalars in it, and its end."""
    is_in_braces: bool

    def replaced(self, text: str, value: str) -> str:
        """The text with another value right behind the name. Of the old one only comments stay."""
        colon = text.find(":", self.after) + 1
        if value:
            value = f" {value}"
        elif self.is_in_braces:
            value = " null"
        begin = end = self.parts[0][0]
        kept = ""  # with a NUL, which YAML cannot have, for what goes
        for first, last in self.parts:
            kept += SIGN_OR_COMMENT.sub(_only_comment, text[end:first])
            kept += "\0" * (last > first)
            end = last
        text = text[:colon] + value + text[colon:begin] + kept + text[end:]
        text = re.sub(r"(?m)^[ \t]*\0[\0 \t]*(\r?\n|\Z)", "", text)
        text = re.sub(r"(?m)^([ \t]*)\0[\0 \t]*", r"\1", text)
        return re.sub(r"[ \t]*\0(?:[ \t]*\0)*", "", text)


def _only_comment(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith("#") else "\0"


def _places(text: str) -> dict[str, _Place]:
    """The places of all values in a YAML text, by their dotted names."""
    found: dict[str, _Place] = {}
    stream: Iterator[Any] = YAML(typ="safe", pure=True).parse(text)

    def parts_of(value: Any, name: str) -> list[tuple[int, int]]:
        begin = value.start_mark.index
        if not isinstance(value, events.CollectionStartEvent):
            return [(begin, begin + len(text[begin : value.end_mark.index].rstrip()))]
        parts = [(begin, begin)]
        while not isinstance(each := next(stream), events.CollectionEndEvent):
            parts += parts_of(each, "")
            if isinstance(value, events.MappingStartEvent):
                inner = f"{name}{getattr(each, 'value', None)}"
                its = parts_of(next(stream), f"{inner}.")
                found[inner] = _Place(each.end_mark.index, its, bool(value.flow_style))
                parts += its
        end = each.end_mark.index
        return [*parts, (end, end)] if value.flow_style else parts

    for event in stream:
        if isinstance(event, events.CollectionStartEvent):
            parts_of(event, "")
    return found


def _written(value: Any) -> str:
    """A value as `dvc exp run -S` writes it; nothing for null."""
    writer = YAML()
    writer.width = sys.maxsize
    stream = io.StringIO()
    writer.dump({"": value}, stream)
    return stream.getvalue().partition(":")[2].strip()


def _known(content: Any, name: str, path: Path) -> tuple[dict[str, Any], str]:
    """The section that holds a parameter of the file, and the parameter's name in it."""
    section, key = _innermost(content, name)
    if section is None or key not in section:
        raise UserError(f"{path} has no {name}; add it (`tokenmill params` says what it means).")
    return section, key


def apply_override(content: dict[str, Any], text: str) -> None:
    """Put an override such as `model.n_layer=12`, as in `dvc exp run -S`, into the content of
    params.yaml."""
    name, equals, value = text.partition("=")
    section, key = _innermost(content, name)
    if not equals or section is None:
        raise UserError(
            f"-S {text} is not NAME=VALUE with the name of a parameter, as in -S model.n_layer=12."
        )
    section[key] = yaml_value(value, f"the value of -S {text}")


def _innermost(content: Any, name: str) -> tuple[dict[str, Any] | None, str]:
    """The section that holds a parameter, or None if there is none, and the parameter's name in
    it."""
    *parents, key = name.split(".")
    for parent in parents:
        content = content.get(parent) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else None, key
