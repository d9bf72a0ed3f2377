"""A disk that is full while a stage writes, and then has room again: the stage says so, and its
next run is whole."""

import contextlib
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.faults import trial
from tests.faults.material import CONSUMERS, OUTPUTS, STAGES, Quiet, written
from tests.faults.table import Result


def forget(root: Path, stage: str) -> None:
    """Remove what a stage wrote, as DVC does before it runs the stage; training forgets its
    checkpoints, too."""
    for name in (*OUTPUTS[stage], *((".resume",) if stage == "train" else ())):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def trials(quiet: Quiet, chance: random.Random, count: int, match: str = "") -> Iterator[Result]:
    """Each trial: a stage on a disk with so many bytes left."""
    expected = {}
    stages = [stage for stage in STAGES if match in stage]
    for number in range(count):
        stage = stages[number % len(stages)]
        if stage not in expected:
            expected[stage] = _quiet(quiet, stage)
        total, digest = expected[stage]
        yield _one(quiet, stage, chance.randrange(max(1, total)), digest)


def _quiet(quiet: Quiet, stage: str) -> tuple[int, str]:
    """The bytes that a stage writes, about, and their hash."""
    with quiet.copy() as root:
        forget(root, stage)
        before = _used(root)
        trial.run(root, CONSUMERS[stage])
        return _used(root) - before, written(root, stage)


def _used(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


@contextlib.contextmanager
def full(root: Path, room: int) -> Iterator[None]:
    """Within the block only `room` more bytes fit on the disk of `root`: a file takes the
    others."""
    ballast = root / ".ballast"
    try:
        free = shutil.disk_usage(root).free
        with ballast.open("wb") as file, contextlib.suppress(OSError):
            for _ in range(max(0, free - room) // 4096):
                file.write(bytes(4096))
        yield
    finally:
        ballast.unlink()


@contextlib.contextmanager
def small_disk(quiet: Quiet) -> Iterator[Path]:
    """A copy of the project on a disk of its own in memory."""
    with quiet.copy() as root:
        disk = root.parent / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "faults", str(disk)], check=True)
        try:
            yield Path(shutil.copytree(root, disk / "project", symlinks=True))
        finally:
            subprocess.run(["umount", str(disk)], check=True)


def _one(quiet: Quiet, stage: str, room: int, digest: str) -> Result:
    with small_disk(quiet) as root:
        forget(root, stage)
        with full(root, room):
            first = trial.run(root, CONSUMERS[stage], log=root.parents[2] / "said")
        second = trial.run(root, CONSUMERS[stage])
        ending, said = _judge(first, second, same=written(root, stage) == digest)
        left = [path.name for path in root.rglob(".*.tmp") if "cache" not in path.parts]
    return Result(
        "disk", f"{room:,} bytes left, {stage}{f', leaves {left}' if left else ''}", ending, said
    )


def _judge(first: trial.Outcome, second: trial.Outcome, *, same: bool) -> tuple[str, str]:
    if first.ending not in ("done", "refused"):
        return first.ending, first.said
    if second.ending != "done":
        return "lost", second.said
    return ("same" if same else "wrong"), first.said
