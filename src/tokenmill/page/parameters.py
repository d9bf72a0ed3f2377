"""Parameters as rows of a name and a value."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def flat(section: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Parameters by their dotted names; text as it stands, anything else as JSON.

    Example:
        >>> list(flat({"model": {"n_layer": 4}, "prompts": [{"user": "Why?"}]}))
        [('model.n_layer', '4'), ('prompts[0].user', 'Why?')]
    """
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                yield from flat(item, f"{before}{name}[{number}].")
        else:
            yield f"{before}{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
