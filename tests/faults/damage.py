"""Every artefact with every damage, read by every consumer: what is damaged is refused, or makes no
difference."""

import csv
import functools
import io
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.faults import trial
from tests.faults.material import CONSUMERS, DEEP, STAGES, Quiet, without_times, written
from tests.faults.table import Result
from tokenmill.costs import TIMING

HOSTILE: tuple[Any, ...] = (
    None,
    "x",
    -1,
    0.5,
    10**30,
    1e308,
    True,
    [],
    {},
    [[[]]],
    {"a": 1},
    "../../x",
    "\x1b[2J",
    "a" * 9999,
)
"""Values of another kind than the one that is there."""

HASHED = (".safetensors", ".bin", ".zst", "tokenizer.json", ".parquet")
"""Files whose bytes their reader can check: a change in them must not pass."""


def bytes_damages(path: Path, chance: random.Random) -> dict[str, Callable[[], object]]:
    """The damages that any file can have."""
    content = path.read_bytes()
    place = chance.randrange(max(1, len(content)))
    flipped = (
        content[:place]
        + bytes([content[place] ^ (1 << chance.randrange(8))])
        + content[place + 1 :]
        if content
        else b"x"
    )
    return {
        "gone": path.unlink,
        "empty": lambda: path.write_bytes(b""),
        "half": lambda: path.write_bytes(content[: len(content) // 2]),
        "cut": lambda: path.write_bytes(content[:-7]),
        "flipped": lambda: path.write_bytes(flipped),
        "noise": lambda: path.write_bytes(chance.randbytes(len(content))),
        "longer": lambda: path.write_bytes(content + content[:4096]),
        "folder": lambda: (path.unlink(), path.mkdir()),
        "circle": lambda: (path.unlink(), path.symlink_to(path.name)),
        "pipe": lambda: (path.unlink(), os.mkfifo(path)),
        # Not beside it, where it would be another file of the output
        "link": lambda: (path.rename(path.parents[1] / "moved"), path.symlink_to("../moved")),
    }


def json_damages(path: Path, chance: random.Random) -> dict[str, Callable[[], object]]:
    """JSON of another shape."""
    text = path.read_text(encoding="utf-8")
    content = json.loads(text)
    found = {f"is {value!r:.12}": value for value in ([], {}, None, 5, "x", [1], {"a": None})}
    for number in range(3):
        found[f"value {number}"] = _changed(content, chance)
        found[f"without {number}"] = _without(content, chance)
    texts = {name: json.dumps(value) for name, value in found.items()}
    texts |= {
        "deep": "[" * 100_000,
        "deep pairs": "[" * 5_000 + "]" * 5_000,
        "infinite": text.replace(": 1", ": 1e999", 1),
    }
    return {
        name: lambda text=text: path.write_text(text, encoding="utf-8")
        for name, text in texts.items()
    }


def _places(content: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to every value inside `content`."""
    pairs = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in pairs:
        yield (*above, key)
        yield from _places(value, (*above, key))


def _changed(content: Any, chance: random.Random) -> Any:
    """A copy with one value of another kind."""
    copy = json.loads(json.dumps(content))
    if not (places := list(_places(copy))):
        return chance.choice(HOSTILE)
    *above, last = chance.choice(places)
    inner = copy
    for key in above:
        inner = inner[key]
    inner[last] = chance.choice(HOSTILE)
    return copy


def _without(content: Any, chance: random.Random) -> Any:
    """A copy that lacks one value."""
    copy = json.loads(json.dumps(content))
    if not (places := list(_places(copy))):
        return None
    *above, last = chance.choice(places)
    inner = copy
    for key in above:
        inner = inner[key]
    del inner[last]
    return copy


def csv_damages(path: Path, chance: random.Random) -> dict[str, Callable[[], object]]:
    """A table of another shape."""
    rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
    column = chance.randrange(len(rows[0]))
    row = chance.randrange(1, max(2, len(rows)))
    cell = chance.choice(["x", "", "-1", "1e999", "9" * 40, "nan", "\x1b[2J"])
    changed = [list(cells) for cells in rows]
    if len(rows) > row:
        changed[row][column] = cell
    shapes = {
        "heads only": rows[:1],
        "no heads": rows[1:],
        "a column less": [cells[:column] + cells[column + 1 :] for cells in rows],
        "another head": [["x", *rows[0][1:]], *rows[1:]],
        "another cell": changed,
        "a row too short": [*rows, rows[-1][:1]],
        "a row too long": [*rows, [*rows[-1], "1"]],
        "twice": [*rows, *rows],
    }
    texts = {name: "\n".join(map(",".join, table)) + "\n" for name, table in shapes.items()}
    texts |= {"open quote": '"' + texts["twice"], "NUL": texts["twice"].replace(",", "\0", 1)}
    return {
        name: lambda text=text: path.write_text(text, encoding="utf-8")
        for name, text in texts.items()
    }


def exchanged(path: Path) -> Callable[[], object] | None:
    """The same file of another epoch, checkpoint or split in its place."""
    folder = path.parent
    others = [
        other / path.name
        for other in sorted(folder.parent.iterdir())
        if other != folder and (other / path.name).is_file()
    ]
    others += (
        [folder / path.name.replace("train", "val")] if path.name.startswith("train.bin") else []
    )
    others = [other for other in others if other.read_bytes() != path.read_bytes()]
    return (lambda: (path.unlink(), shutil.copyfile(others[0], path))) if others else None


def damages(path: Path, chance: random.Random) -> dict[str, Callable[[], object]]:
    """All damages of one file, by name."""
    found = bytes_damages(path, chance)
    if path.suffix == ".json":
        found |= json_damages(path, chance)
    if path.suffix == ".csv":
        found |= csv_damages(path, chance)
    if other := exchanged(path):
        found["exchanged"] = other
    return found


def trials(quiet: Quiet, chance: random.Random, count: int, match: str = "") -> Iterator[Result]:
    """`count` of all trials in a random order; those whose name contains `match`."""
    expected = functools.cache(quiet.expected)
    all_ = [
        (artefact, damage, consumer)
        for artefact in quiet.artefacts()
        for damage in damages(quiet.root / artefact, random.Random(0))
        for consumer in CONSUMERS
        if consumer != DEEP
        if match in f"{artefact} {damage} {consumer}"
    ]
    all_ += [
        (path, "flipped", DEEP) for path in quiet.objects() if match in f"{path} flipped {DEEP}"
    ]
    for artefact, damage, consumer in chance.sample(all_, min(count, len(all_))):
        yield _one(
            quiet,
            artefact,
            damage,
            consumer,
            expected=expected(consumer),
            seed=chance.randrange(1 << 30),
        )


def _one(
    quiet: Quiet,
    artefact: Path,
    damage: str,
    consumer: str,
    *,
    expected: tuple[trial.Outcome, str],
    seed: int,
) -> Result:
    with quiet.copy() as root:
        (root / artefact).chmod(0o644)
        damages(root / artefact, random.Random(seed))[damage]()
        outcome = trial.run(root, CONSUMERS[consumer])
        ending = outcome.ending
        if consumer == DEEP and ending in ("done", "refused"):
            ending = "refused" if artefact.name in outcome.said else "wrong"
        elif ending == "done":
            same = (
                written(root, consumer) == expected[1]
                if consumer in STAGES
                else without_times(outcome.said) == without_times(expected[0].said)
            )
            ending = "same" if same else _judge(artefact, consumer)
    return Result("damage", f"{artefact} {damage}, {consumer} (seed {seed})", ending, outcome.said)


def _judge(artefact: Path, consumer: str) -> str:
    """What another result without an error means."""
    if artefact.name in ("params.yaml", "dvc.yaml", "dvc.lock") or artefact.parts[:2] == (
        "data",
        "raw",
    ):
        return "other"  # what the user wants, and may change
    if artefact.name == TIMING:
        return "other"  # times are no results; where they are not known, the report is without them
    if consumer in STAGES or (
        artefact.name.endswith(HASHED) and consumer not in ("status", "doctor")
    ):
        return "wrong"
    return "other"  # a command shows what is there
