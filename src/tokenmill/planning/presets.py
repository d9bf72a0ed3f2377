"""The names of the presets; apart from their values, for every command line begins with them.

A preset: values for params.yaml that belong together, and params.yaml with them, the rest untouched to the byte.

Values are put into the text where YAML's own parser says that the old ones stand, so comments, order and spelling stay.
Each preset is laid over `default`: what came before it, another preset for example, leaves nothing behind.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from tokenmill.core.errors import UserError
from tokenmill.core.params import read_yaml

FOLDER = Path(__file__).parent.parent / "presets"


DEFAULT = "default"


def names() -> list[str]:
    """All there are, in the order of their size."""
    order = [DEFAULT, "phase1", "phase2", "phase3", "modern-124m", "gpt2-medium"]
    return sorted((path.stem for path in FOLDER.glob("*.yaml")), key=order.index)


@dataclass(frozen=True)
class Preset:
    """A known configuration."""

    name: str
    about: str
    tokens: float
    """To train on, that it is made for."""
    vocab_size: int
    """Of the tokenizer that it would get."""
    values: dict[str, str]
    """What it puts into params.yaml: dotted names and values, as YAML writes them."""


def read(name: str) -> Preset:
    """The preset of that name, over the default one."""
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    content = YAML(typ="safe", pure=True).load(text)
    own = {".".join(path[1:]): text[a:b] for path, a, b in _scalars(text) if path[0] == "params"}
    below = {} if name == DEFAULT else read(DEFAULT).values
    return Preset(name, content["about"], float(content["tokens"]), content["vocab_size"], below | own)


@dataclass(frozen=True)
class Changed:
    """A params.yaml before a preset and with it."""

    before: str
    after: str

    @property
    def content(self) -> dict[str, Any]:
        """What it holds with the preset."""
        return YAML(typ="safe", pure=True).load(self.after)


def put_into(path: Path, preset: Preset) -> Changed:
    """The text of a params.yaml with the preset's values; one that is equal already keeps its spelling.

    Raises:
        UserError: the file cannot be read, or a parameter is missing in it.
    """
    read_yaml(path)
    before = path.read_bytes().decode()
    return Changed(before, _put(before, preset, path))


def _put(text: str, preset: Preset, path: Path) -> str:
    places = {".".join(names): (a, b) for names, a, b in _scalars(text)}
    for name in preset.values:
        if name not in places:
            raise UserError(f"{path} has no single value {name}; add one (`tokenmill params` says what it means).")
    for name, (start, end) in sorted(places.items(), key=lambda item: -item[1][0]):
        new = preset.values.get(name)
        if new is not None and _value(new) != _value(text[start:end]):
            text = text[:start] + new + text[end:]
    return text


def _value(scalar: str) -> object:
    return YAML(typ="safe", pure=True).load(scalar)


def _scalars(text: str) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Every single value in nested mappings: its keys, and where in the text it stands."""
    root = YAML(typ="safe", pure=True).compose(text)
    yield from _below(root, ())


def _below(node: Node | None, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int, int]]:
    if isinstance(node, ScalarNode):
        yield keys, node.start_mark.index, node.end_mark.index
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _below(value, (*keys, str(key.value)))
