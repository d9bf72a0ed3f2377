"""The parts that the page reads when somebody talks to an epoch, each a text with a name.

An epoch is described by one part in JSON: where its tensors are, the name of the part that holds
its tokenizer, and the names of those that hold its weights in base64. A part lies in the page, or
it is a script beside the page, which a browser also reads from a disk.
"""

import base64
import json
from dataclasses import dataclass
from typing import Any

from tokenmill.formats.chat import SHOWN, START, TURN_END, TURN_TOKENS
from tokenmill.formats.tokenizer import TextTokenizer
from tokenmill.publish.classes import character_classes

PART_BYTES = 6_000_000
"""The bytes of weights in each part; in base64 8 MB."""


@dataclass(frozen=True)
class PackedEpoch:
    """The weights of an epoch as the page reads them."""

    name: str
    """Begins the names of its parts."""
    data: bytes
    about: dict[str, Any]
    """How the page reads them (publish/weights.py)."""
    tokenizer: str
    """The name of the part with its tokenizer."""

    @property
    def parts(self) -> list[str]:
        """The names of the parts of its weights, in order."""
        return [f"{self.name}-{n}" for n in range(-(-len(self.data) // PART_BYTES))]

    def part(self, name: str) -> str:
        """A part of its weights in base64."""
        start = int(name.rpartition("-")[2]) * PART_BYTES
        return base64.b64encode(self.data[start : start + PART_BYTES]).decode()

    def description(self) -> str:
        """The part that describes the epoch."""
        return as_json({"about": self.about, "tokenizer": self.tokenizer, "parts": self.parts})


def tokenizer_name(sha256: str) -> str:
    """The name of the part that holds the tokenizer with this hash."""
    return f"tokenizer-{sha256[:12]}"


def tokenizer_part(tokenizer: TextTokenizer) -> str:
    """The part that holds a tokenizer: what `page/tokenizer.js` needs."""
    turns = {role: tokenizer.turn_ids[mark] for role, mark in START.items()}
    content = {
        "layout": json.loads(tokenizer.backend.to_str()),
        "classes": character_classes(),
        "end": tokenizer.eot_id,
        "spellings": {tokenizer.turn_ids[mark]: SHOWN[mark] for mark in TURN_TOKENS},
        "turns": turns | {"end": tokenizer.turn_ids[TURN_END]},
    }
    return as_json(content)


def as_json(value: Any) -> str:
    """JSON that no HTML parser takes for the end of its script."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def script(name: str, text: str | None, problem: str | None = None) -> str:
    """A script beside the page that hands it the part `name`, or a sentence why there is none."""
    values = (name, text) if problem is None else (name, None, problem)
    return f"tokenmillPart({','.join(map(json.dumps, values))});\n"
