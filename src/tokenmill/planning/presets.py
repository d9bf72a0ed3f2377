"""Known configurations, in `presets/*.yaml`. The command line knows their names, so this imports
nothing that takes long."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.core.paths import SAMPLE

FOLDER = Path(__file__).parent.parent / "presets"

DEFAULT = "default"

PRESETS = (DEFAULT, "phase1", "phase2", "phase3", "modern-124m", "gpt2-medium")
"""The names of the files in FOLDER, by the size of the model."""


@dataclass(frozen=True)
class Preset:
    """A known configuration."""

    name: str
    about: str
    text: str
    """The text that the preset is made for, in words."""
    tokens: int
    """The number of training tokens that the preset is made for."""
    vocab_size: int
    """The number of entries that the tokenizer would get."""
    values: dict[str, Any]
    """The values for params.yaml, by their dotted names."""


def read_preset(name: str) -> Preset:
    """The preset `name`, with the values of `default` that it does not change."""
    from tokenmill.core.params import dotted, read_yaml  # noqa: PLC0415 (pydantic)

    content = read_yaml(FOLDER / f"{name}.yaml")
    below = {} if name == DEFAULT else read_preset(DEFAULT).values
    values = below | dict(dotted(content.pop("params")))
    return Preset(name=name, values=values, **content)


def is_own_text_at_defaults(content: Mapping[str, Any]) -> bool:
    """Whether params.yaml combines the values made for the built-in text with another text."""
    from tokenmill.core.params import dotted  # noqa: PLC0415

    here = dict(dotted(content))
    as_default = all(here.get(name) == value for name, value in read_preset(DEFAULT).values.items())
    return as_default and here["data.raw"] != SAMPLE.as_posix()
