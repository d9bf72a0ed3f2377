"""`-S NAME=VALUE`: another value of a parameter, for one command."""

from typing import Any

from ruamel.yaml import YAML, YAMLError

from tokenmill.core.errors import UserError


def change(content: dict[str, Any], wish: str) -> None:
    """Put `model.n_layer=12` into the content of params.yaml.

    Raises:
        UserError: it is not of this form, or there is no such section.
    """
    name, equals, value = wish.partition("=")
    *parents, key = name.split(".")
    section: Any = content
    for parent in parents:
        section = section.get(parent) if isinstance(section, dict) else None
    if not equals or not isinstance(section, dict):
        raise UserError(f"-S {wish} is not NAME=VALUE with the name of a parameter, as in -S model.n_layer=12.")
    try:
        section[key] = YAML(typ="safe", pure=True).load(value)
    except YAMLError:
        raise UserError(f"-S {wish}: the value is not YAML.") from None
