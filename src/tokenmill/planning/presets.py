"""Presets: known configurations in `presets/*.yaml`, each a set of values for params.yaml.

A preset is put over `default`, so nothing of another preset stays. Comments and the order of params.yaml stay, because
ruamel.yaml reads and writes them, formatted as `dvc exp run -S` formats the file.
"""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tokenmill.core.errors import UserError
from tokenmill.core.paths import SAMPLE

FOLDER = Path(__file__).parent.parent / "presets"

DEFAULT = "default"

ORDER = [DEFAULT, "phase1", "phase2", "phase3", "modern-124m", "gpt2-medium"]
"""By the size of the model."""


@dataclass(frozen=True)
class Preset:
    """A known configuration."""

    name: str
    about: str
    text: str
    """What it is made to be trained on."""
    tokens: int
    """The training tokens that it is made for."""
    vocab_size: int
    """Entries of the tokenizer that it would get."""
    values: dict[str, Any]
    """What it puts into params.yaml, by dotted names."""


@dataclass(frozen=True)
class Change:
    """The text of params.yaml before a preset and with it, and what it then holds."""

    before: str
    after: str
    content: dict[str, Any]


def names() -> list[str]:
    """All presets, in the order of their size."""
    return sorted((path.stem for path in FOLDER.glob("*.yaml")), key=ORDER.index)


def read(name: str) -> Preset:
    """The preset `name`, with the values of `default` that it does not change."""
    content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    below = {} if name == DEFAULT else read(DEFAULT).values
    return Preset(
        name,
        content["about"],
        content["text"],
        content["tokens"],
        content["vocab_size"],
        below | dict(_dotted(content["params"])),
    )


def _dotted(section: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def apply(values: Mapping[str, Any], path: Path) -> Change:
    """The text of a params.yaml with other values, by dotted names; nothing is written.

    Raises:
        UserError: the file cannot be read, or a parameter is missing in it.
    """
    from ruamel.yaml import YAML  # noqa: PLC0415 (completion needs only the names)

    from tokenmill.core.params import read_yaml  # noqa: PLC0415

    read_yaml(path)  # raises the errors of a file that cannot be read
    before = path.read_text(encoding="utf-8")
    writer = YAML()
    writer.default_flow_style, writer.preserve_quotes, writer.width = False, True, 1000
    content = writer.load(before)
    changes = [_set(content, name, value, path) for name, value in values.items()]
    stream = io.StringIO()
    writer.dump(content, stream)
    after = stream.getvalue() if any(changes) else before
    return Change(before, after, YAML(typ="safe", pure=True).load(after))


def is_own_text_at_defaults(content: Mapping[str, Any]) -> bool:
    """Whether params.yaml holds the values made for the built-in text, and another text."""
    default = read(DEFAULT).values
    found = {name: innermost(content, name) for name in default}
    as_default = all(section is not None and section.get(key) == default[n] for n, (section, key) in found.items())
    return as_default and content["data"]["raw"] != SAMPLE.as_posix()


def innermost(content: Any, name: str) -> tuple[dict[str, Any] | None, str]:
    """The section that holds a parameter, None if there is none, and the parameter's name in it."""
    *parents, key = name.split(".")
    for parent in parents:
        content = content.get(parent) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else None, key


def _set(content: Any, name: str, value: Any, path: Path) -> bool:
    """Set a parameter; False if it has this value already."""
    section, key = innermost(content, name)
    if section is None or key not in section:
        raise UserError(f"{path} has no {name}; add it (`tokenmill params` says what it means).")
    if section[key] == value:
        return False
    section[key] = value
    comment = section.ca.items.get(key)  # type: ignore[attr-defined] (of ruamel's mapping)
    if comment and comment[2]:
        comment[2].column = 0  # one blank before it, wherever the old value ended
    return True
