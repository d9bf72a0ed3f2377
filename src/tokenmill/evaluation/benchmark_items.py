"""Benchmarks: which are offered and under which licence, the section of params.yaml that chooses
them, and their items.

A benchmark is a file of JSON lines, `data/benchmarks/NAME.jsonl`, that `tokenmill fetch` brings or
that a user writes.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, StringConstraints, model_validator

from tokenmill.core.errors import UserError
from tokenmill.core.files import open_regular
from tokenmill.core.params import Section
from tokenmill.core.paths import BENCHMARKS
from tokenmill.formats.records import parse_record

LARGEST_FILE = 1 << 26
"""The most bytes of a file of items."""

MOST_ITEMS = 20_000
"""The most items of a file."""

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
"""Matches the name of a benchmark, which is that of its file."""

Normalisation: TypeAlias = Literal["bytes", "sum"]
"""By what a choice wins: its log-probability for each of its bytes, or the whole of it."""


@dataclass(frozen=True)
class Offered:
    """A benchmark that `tokenmill fetch` brings."""

    variant: str
    """Its folder in the package: task and form of the request."""
    licence: str
    """The licence of its data."""
    stated: str
    """Where that licence is stated."""
    headline: Normalisation = "bytes"
    """The accuracy that counts. OLMES (Gu et al. 2024, section 3) takes the sum where choices are
    as good as equally long."""

    @property
    def commercial(self) -> bool:
        """Whether the licence lets it be used for money."""
        return "NC" not in self.licence


OFFERED = {
    "arc_easy": Offered("arc_easy/rc_0shot", "CC BY-SA 4.0", "card of allenai/ai2_arc"),
    "arc_challenge": Offered("arc_challenge/rc_0shot", "CC BY-SA 4.0", "card of allenai/ai2_arc"),
    "boolq": Offered(
        "boolq/rc_0shot", "CC BY-SA 3.0", "google-research-datasets/boolean-questions", "sum"
    ),
    "csqa": Offered("csqa/rc_0shot", "MIT", "its author, jonathanherzig/commonsenseqa, issue 5"),
    "hellaswag": Offered("hellaswag/rc_0shot", "MIT", "LICENSE of rowanz/hellaswag"),
    "lambada": Offered("lambada/bpb_0shot", "CC BY 4.0", "card of cimec/lambada"),
    "openbookqa": Offered(
        "openbookqa/rc_0shot", "Apache-2.0", "LICENSE of allenai/OpenBookQA; its card names none"
    ),
    "piqa": Offered("piqa/rc_0shot", "AFL-3.0", "ybisk/ybisk.github.io, piqa/README.md"),
    "sciq": Offered("sciq/rc_0shot", "CC BY-NC 3.0", "card of allenai/sciq"),
    "winogrande": Offered("winogrande/rc_0shot", "CC BY", "README of allenai/winogrande", "sum"),
}
"""The benchmarks whose licence was found, by name."""


class BenchmarksParams(Section):
    """Benchmarks on which every epoch is measured; without any, nothing is."""

    names: list[str] = Field(max_length=40)
    """The benchmarks: each is a file `data/benchmarks/NAME.jsonl`, which `tokenmill fetch
    benchmarks:NAME` brings or which you write (docs/benchmarks.md)."""

    items: int = Field(ge=1, le=MOST_ITEMS)
    """The most items of each benchmark; they are evenly spread and always the same. Of 500 items
    an accuracy near one half is known to about 4 percentage points, of 2,000 to about 2."""

    @model_validator(mode="after")
    def _names_of_files(self) -> Self:
        for name in self.names:
            if not NAME.fullmatch(name):
                raise ValueError(
                    f"benchmarks.names has {name!r}; a name has small letters, digits, - and _."
                )
            if self.names.count(name) > 1:
                raise ValueError(f"benchmarks.names has {name} more than once.")
        return self


Text: TypeAlias = Annotated[str, StringConstraints(max_length=100_000)]


class Item(Section):
    """One question; a line of a file."""

    context: Text | Annotated[list[Text], Field(max_length=32)]
    """What comes before the choices; or one text for each of them, where it is the context that
    they differ in."""
    choices: Annotated[
        list[Annotated[Text, StringConstraints(min_length=1)]], Field(min_length=1, max_length=32)
    ]
    """The texts that may follow, each as it stands behind the context, with its blank. Of a single
    one the model's likeliest continuation is compared with it."""
    gold: Annotated[int, Field(ge=0)]
    """The index of the right one."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.gold >= len(self.choices):
            raise ValueError(f"gold ({self.gold}) must be below {len(self.choices)}, the choices")
        if isinstance(self.context, list) and len(self.context) != len(self.choices):
            raise ValueError("there must be one context, or as many as choices")
        return self

    @property
    def contexts(self) -> list[str]:
        """The context of each choice."""
        if isinstance(self.context, list):
            return self.context
        return [self.context] * len(self.choices)

    @property
    def right(self) -> str:
        """The text of the right answer, with its context."""
        return self.contexts[self.gold] + self.choices[self.gold]


def benchmark_file(name: str, root: Path = Path()) -> Path:
    """The file of a benchmark of the project in `root`."""
    return root / BENCHMARKS / f"{name}.jsonl"


def is_tracked(name: str, root: Path = Path()) -> bool:
    """Whether DVC knows the file of a benchmark."""
    return benchmark_file(name, root).with_name(f"{name}.jsonl.dvc").exists()


def headline(name: str) -> Normalisation:
    """The accuracy of a benchmark that counts; for a user's own that by bytes."""
    return OFFERED[name].headline if name in OFFERED else "bytes"


def read_items(name: str, root: Path = Path()) -> list[Item]:
    """All items of a benchmark of the project in `root`.

    Raises:
        UserError: the file is missing, empty, too large, or damaged.
    """
    path = benchmark_file(name, root)
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            lines = file.read(min(size, LARGEST_FILE)).split(b"\n")
    except FileNotFoundError:
        raise UserError(missing(name, root)) from None
    if size > LARGEST_FILE or len(lines) > MOST_ITEMS + 1:
        raise UserError(
            f"{path} has more than {LARGEST_FILE:,} bytes or {MOST_ITEMS:,} lines; shorten it."
        )
    items = [
        parse_record(line, Item, source=f"{path}, line {number},", way_out="mend this line")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not items:
        raise UserError(f"{path} has no items; write one a line, as docs/benchmarks.md says.")
    return items


def missing(name: str, root: Path = Path()) -> str:
    """What a missing file means, and what brings it."""
    path = benchmark_file(name, root)
    if is_tracked(name, root):
        return f"benchmarks.names has {name}, and {path} is not here; `dvc pull {path}` fetches it."
    if name in OFFERED:
        return (
            f"benchmarks.names has {name}, and {path} is missing; `tokenmill fetch "
            f"benchmarks:{name}` brings it."
        )
    return (
        f"benchmarks.names has {name}, which is neither a file {path} of yours nor one of those "
        f"that `tokenmill fetch` brings: {', '.join(OFFERED)}."
    )
