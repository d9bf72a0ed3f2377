"""What a campaign found, as one table."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

ENDINGS = (
    "same",
    "mended",
    "refused",
    "other",
    "wrong",
    "lost",
    "traceback",
    "hang",
    "memory",
    "signal",
)
"""As if nothing had happened; the same after a command that `tokenmill doctor` names; one sentence;
another result that is right; and the bad ones."""

BAD = frozenset({"wrong", "lost", "traceback", "hang", "memory", "signal"})


@dataclass(frozen=True)
class Result:
    """One trial."""

    kind: str
    name: str
    ending: str
    said: str

    @property
    def is_bad(self) -> bool:
        """Whether this should not be."""
        return self.ending in BAD


def table(results: Iterable[Result]) -> str:
    """A row a kind of fault, a column an ending."""
    counts = Counter((result.kind, result.ending) for result in results)
    kinds = list(dict.fromkeys(kind for kind, _ in counts))
    rows = [["faults", "trials", *ENDINGS]]
    for kind in kinds:
        numbers = [counts[kind, ending] for ending in ENDINGS]
        rows.append([kind, f"{sum(numbers):,}", *(f"{number:,}" for number in numbers)])
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    )
