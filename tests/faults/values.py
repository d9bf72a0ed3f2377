"""Every parameter with every hostile value: refused in a sentence, or a run that ends."""

import math
import random
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML

from tests.faults import trial
from tests.faults.damage import HOSTILE
from tests.faults.material import CONSUMERS, OUTPUTS, Quiet
from tests.faults.table import Result
from tests.pipeline.project import change_params

NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    2**31 - 1,
    2**31,
    2**53 + 1,
    2**63,
    10**9,
    10**12,
    1e-300,
    1e-9,
    0.1,
    math.inf,
    -math.inf,
    math.nan,
)

TEXTS = (
    "",
    "/",
    "/dev/zero",
    "/dev/stdin",
    "/proc/self/mem",
    "..",
    "~",
    "$(touch x)",
    "a\nb",
    "\u202e",
    "null",
    "0x10",
    "1e3",
    "(a+)+$",
)

FILES = {
    "an impossible date": "a: 2020-13-45\n",
    "a name of itself": "model: &a [*a]\n",
    "a map of itself": "&a {model: *a}\n",
    "deep": "[" * 20_000,
    "deep pairs": "[" * 300 + "]" * 300,
    "a tab": "model:\n\tn_layer: 1\n",
    "twice": "model: {}\nmodel: {}\n",
    "NUL": "model: \0\n",
    "a tag": "!!python/object/apply:os.system ['true']\n",
    "laughs": "a: &a [x, x]\n"
    + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n"
        for a, b in zip("abcdefghijklmnopqrstuvwxy", "bcdefghijklmnopqrstuvwxyz", strict=True)
    ),
    "another section": "section: 1\n",
    "a list": "- 1\n",
    "no end": "model: 'x\n",
    "a long number": f"model: {'9' * 10_000}\n",
}

READERS = {
    "data": ("clean",),
    "sample": ("params",),
    "clean": ("clean",),
    "tokenizer": ("tokenizer",),
    "tokenize": ("tokenize",),
    "model": ("train",),
    "train": ("train",),
    "evaluate": ("evaluate",),
    "trace": ("index", "trace"),
    "benchmarks": ("benchmark",),
    "finetune": ("params",),
    "runtime": ("clean", "tokenize", "train"),
}
"""The stages that obey a section."""


def leaves(content: Any, above: str = "") -> Iterator[str]:
    """The dotted names of all values of params.yaml; a list counts as one."""
    for key, value in content.items():
        yield from leaves(value, f"{above}{key}.") if isinstance(value, dict) else [f"{above}{key}"]


def trials(quiet: Quiet, chance: random.Random, count: int, match: str = "") -> Iterator[Result]:
    """`count` of all trials in a random order."""
    names = list(leaves(YAML(typ="safe").load(quiet.root / "params.yaml")))
    pairs = [(name, value) for name in names for value in (*HOSTILE, *NUMBERS, *TEXTS)]
    both = [
        (name, value, consumer)
        for name, value in pairs
        for consumer in ("plan", "doctor", *READERS[name.split(".")[0]])
        if match in f"{name}={value!r} {consumer}"
    ]
    texts = [
        (name, None, consumer)
        for name in FILES
        for consumer in CONSUMERS
        if match in f"params.yaml is {name}, {consumer}"
    ]
    for name, value, consumer in chance.sample([*both, *texts], min(count, len(both) + len(texts))):
        yield _one(quiet, name, value, consumer)


def _one(quiet: Quiet, name: str, value: object, consumer: str) -> Result:
    with quiet.copy() as root:
        params = root / "params.yaml"
        if name in FILES:
            params.write_text(FILES[name], encoding="utf-8")
        else:
            if consumer == "train":
                change_params(params, {"runtime.max_minutes": 0.03})
            change_params(params, {name: value})
        outcome = trial.run(root, CONSUMERS[consumer])
        ending = outcome.ending
        if ending == "refused" and consumer in OUTPUTS and "error: " not in outcome.said:
            ending = "wrong"
        said = name if name in FILES else f"{name}={value!r:.40}"
    return Result(
        "values", f"{said}, {consumer}", "other" if ending == "done" else ending, outcome.said
    )
