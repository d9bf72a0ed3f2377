"""What stands in place of a file: a pipe is not waited for, and what a link points to outside the
project is neither changed nor removed."""

import os
import random
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TypeAlias

from tests.faults import trial
from tests.faults.material import CONSUMERS, STAGES, Quiet
from tests.faults.table import Result

LIVE = {
    "run.json": (
        "{}",
        "[]",
        '{"began": 1e400}',
        '{"steps": 0, "steps_per_epoch": 0, "first_step": -1}',
        '{"plan": [["\x1b[2J", "\u202e"]]}',
        "[" * 99_999,
        "",
    ),
    "steps.csv": ("", "step\n", "\0", "step,epoch,loss\n1,nan,inf\n", "9" * 9999, '"' * 999),
    "validation.csv": ("", "x\n", "step,epoch,val_loss\n-1,0,1e400\n", "\x1b[2J\n" * 999),
}
"""What a file in live/ may hold that no training wrote."""

READERS_OF_LIVE = ("watch", "status", "summary", "compare", "generate", "doctor")


def _pipe(path: Path, _: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _device(path: Path, _: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _link(path: Path, outside: Path) -> None:
    path.rename(outside)
    path.symlink_to(outside)


def _link_to_folder(path: Path, outside: Path) -> None:
    folder = path.parent
    shutil.move(folder, outside)
    folder.symlink_to(outside)


PIPES: dict[str, Callable[[Path, Path], None]] = {"a pipe": _pipe, "a device": _device}

LOCKS = {Path(".dvc/tmp", name) for name in ("lock", "rwlock", "rwlock.lock")}
"""What DVC itself writes into, for any command that opens a project, through links too."""

LINKS: dict[str, Callable[[Path, Path], None]] = {
    "a link": _link,
    "a link for its folder": _link_to_folder,
}


def pipe_trials(
    quiet: Quiet, chance: random.Random, count: int, match: str = ""
) -> Iterator[Result]:
    """A pipe or a device in place of any artefact, read by any stage or command."""
    cases = _cases(quiet, PIPES, match)
    for case in chance.sample(cases, min(count, len(cases))):
        yield _one(quiet, "pipes", PIPES[case[1]], case)


def link_trials(
    quiet: Quiet, chance: random.Random, count: int, match: str = ""
) -> Iterator[Result]:
    """A link in place of any artefact or its folder, to where it lies now."""
    cases = [case for case in _cases(quiet, LINKS, match) if case[0] not in LOCKS]
    for case in chance.sample(cases, min(count, len(cases))):
        yield _one(quiet, "links", LINKS[case[1]], case)


Case: TypeAlias = tuple[Path, str, str]
"""An artefact, what stands in its place, and who reads it."""


def _cases(quiet: Quiet, places: Collection[str], match: str) -> list[Case]:
    return [
        (artefact, name, consumer)
        for artefact in quiet.artefacts()
        for name in places
        for consumer in CONSUMERS
        if len(artefact.parts) > 1 or name != "a link for its folder"
        if match in f"{artefact} {name} {consumer}"
    ]


def _one(quiet: Quiet, kind: str, put: Callable[[Path, Path], None], case: Case) -> Result:
    artefact, name, consumer = case
    with quiet.copy() as root:
        outside = root.parent / "outside"
        put(root / artefact, outside)
        before = _content(outside)
        outcome = trial.run(root, CONSUMERS[consumer])
        ending = "other" if outcome.ending == "done" else outcome.ending
        if ending == "refused" and consumer in STAGES and "error: " not in outcome.said:
            ending = "wrong"
        if _content(outside) != before:
            ending = "lost"
    return Result(kind, f"{artefact} {name}, {consumer}", ending, outcome.said)


def _content(path: Path) -> dict[str, bytes]:
    """The bytes of a file, or of all files in a folder; nothing where there is none."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {
        file.relative_to(path).as_posix(): file.read_bytes() for file in files if file.is_file()
    }


def live_trials(
    quiet: Quiet, chance: random.Random, count: int, match: str = ""
) -> Iterator[Result]:
    """Two files of live/ that no training wrote, shown by a command."""
    all_ = [
        (name, text, consumer)
        for name, texts in LIVE.items()
        for text in texts
        for consumer in READERS_OF_LIVE
        if match in f"{name} {text} {consumer}"
    ]
    for number in range(count):
        name, text, consumer = all_[number % len(all_)] if match else chance.choice(all_)
        with quiet.copy() as root:
            live = root / "live"
            other = chance.choice(sorted(LIVE))
            (live / other).write_text(chance.choice(LIVE[other]), encoding="utf-8")
            (live / name).write_text(text, encoding="utf-8")
            outcome = trial.run(root, CONSUMERS[consumer])
            ending = "other" if outcome.ending == "done" else outcome.ending
            if "\x1b" in outcome.said or "\u202e" in outcome.said:
                ending = "wrong"
        yield Result("live", f"{name} {text!r:.40}, {consumer}", ending, outcome.said)
