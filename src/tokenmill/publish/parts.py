"""The parts that the page reads when somebody talks to an epoch, each a text with a name.

An epoch is described by one part in JSON: where its tensors are, the name of the part that holds
its tokenizer, and the names of those that hold its weights in base64. A part lies in the page, or
it is a script beside the page, which a browser also reads from a disk.
"""

import base64
import functools
import json
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from tokenmill.formats.chat import SHOWN, START, TURN_END, TURN_TOKENS
from tokenmill.formats.tokenizer import TextTokenizer

PART_BYTES = 6_000_000
"""The bytes of weights in each part; in base64 8 MB."""

CLASSES = {"letters": r"\p{L}", "numbers": r"\p{N}", "spaces": r"\s"}
"""The classes of characters by which `tokenizers` cuts a text into words."""

SURROGATES = range(0xD800, 0xE000)
"""Code points that are no characters."""

PLANES_END = 0x40000
"""Behind the first four planes nothing is assigned but tags, selectors of variants, and code points
for private use (Unicode 17, section 2.8)."""


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


@functools.cache
def character_classes() -> dict[str, str]:
    r"""The ranges of each class in `tokenizers`, as JavaScript's regular expressions have them:
    `\u{41}-\u{5a}…`.

    The tables of Unicode there are older than those of most browsers, and browsers differ; so the
    page cuts every text into the same words.
    """
    codes = [code for code in range(PLANES_END) if code not in SURROGATES]
    every = "".join(map(chr, codes))
    return {
        name: "".join(
            f"\\u{{{codes[start]:x}}}-\\u{{{codes[end - 1]:x}}}"
            for start, end in _runs(every, pattern)
        )
        for name, pattern in CLASSES.items()
    }


def _runs(text: str, pattern: str) -> list[tuple[int, int]]:
    """The start and end of each run of characters that match."""
    others = Split(Regex(f"(?:{pattern})+"), "removed").pre_tokenize_str(text)
    ends = [0, *(bound for _, bounds in others for bound in bounds), len(text)]
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return [(start, end) for start, end in pairs if start < end]


def as_json(value: Any) -> str:
    """JSON that no HTML parser takes for the end of its script."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def script(name: str, text: str | None, problem: str | None = None) -> str:
    """A script beside the page that hands it the part `name`, or a sentence why there is none."""
    values = (name, text) if problem is None else (name, None, problem)
    return f"tokenmillPart({','.join(map(json.dumps, values))});\n"
