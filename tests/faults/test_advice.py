"""What a refusal advises is typed, and then the refused command works: damage of every artefact,
here and in DVC's cache."""

import gzip
import hashlib
import itertools
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.conftest import finished_template, template  # noqa: F401 (fixtures)
from tests.pipeline.project import Project

pytestmark = pytest.mark.slow

COMMAND = re.compile(r"`([^`]+)`")
GENERATE = "tokenmill generate --max-new-tokens 4 Hi"
WEIGHTS = "models/gpt/epoch-2/model.safetensors"
EPOCH_1 = "models/gpt/epoch-1/model.safetensors"


@pytest.fixture(scope="module")
def mended(finished_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:  # noqa: F811
    """A finished project that every case damages and mends again."""
    return Project(finished_template).copy(tmp_path_factory.mktemp("advice") / "project")


def say(project: Project, line: str) -> tuple[int, str]:
    """The exit code of a line for the shell, and what it says."""
    if line.startswith("tokenmill "):
        return project.answer(*shlex.split(line)[1:])
    return project._run(
        ("sh", "-c", line.replace("stages ", "python -m stages ")), project.forking_env
    )


def flipped(content: bytes) -> bytes:
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def no_utf8(content: bytes) -> bytes:
    return content.replace(b",", b"\xff", 1)


def a_row_less(content: bytes) -> bytes:
    return content[: content.rstrip().rfind(b"\n") + 1]


def empty(_: bytes) -> bytes:
    return b""


def change(path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Replace a file, and keep its time, as a bad disk does."""
    replace(path, damage(path.read_bytes()))


def replace(path: Path, content: bytes) -> None:
    status = path.stat()
    path.unlink()
    path.write_bytes(content)
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def cached(project: Project, name: str) -> Path:
    """The object of a file in the cache."""
    content = (project.root / name).read_bytes()
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return project.root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]


def follow(project: Project, command: str) -> None:
    """Type a command of a refusal; of `doctor`, also those that it prints below each problem."""
    code, said = say(project, command)
    if not command.startswith("tokenmill doctor"):
        assert code == 0, f"{command}: {said}"
        return
    lines = said.splitlines()
    fixes = [
        below.partition("→ ")[2]
        for line, below in itertools.pairwise(lines)
        if line.startswith("✗")
    ]
    assert fixes, said
    for fix in fixes:
        code, said = say(project, fix)
        assert code == 0, f"{fix}: {said}"


Damage = tuple[str, Callable[[bytes], bytes], str]

HERE: list[Damage] = [
    (WEIGHTS, flipped, GENERATE),
    ("models/gpt/manifest.json", cut, GENERATE),
    ("models/gpt/epoch-2/config.json", cut, GENERATE),
    ("data/tokenizer/hash.json", cut, GENERATE),
    ("data/tokenizer/tokenizer.json", cut, "stages tokenize"),
    ("data/clean/part-00000.parquet", cut, "stages tokenize"),
    ("data/clean_report.json", cut, "stages report"),
    ("data/packed/metadata.json", empty, "stages unpack"),
    ("data/tokens/train.bin", flipped, "stages evaluate"),
    ("data/tokens/metadata.json", cut, "stages evaluate"),
    ("metrics/train.json", cut, "tokenmill summary"),
    ("metrics/history.csv", no_utf8, f"{GENERATE} --rev epoch-2"),
    ("metrics/steps.csv", a_row_less, "stages report"),
    ("reports/evaluation.json", cut, "tokenmill compare"),
]
"""Files of the workspace, their damage, and who refuses it."""

IN_THE_CACHE: list[Damage] = [
    ("models/gpt/epoch-1/model.safetensors", flipped, "stages evaluate"),
    (WEIGHTS, flipped, f"{GENERATE} --rev HEAD"),
    ("data/packed/part-00000.zst", flipped, "stages unpack"),
    ("data/tokenizer/tokenizer.json", flipped, "stages tokenize"),
    ("reports/evaluation.json", cut, "tokenmill compare HEAD:1 HEAD"),
]
"""The same for files that are damaged in DVC's cache, too."""


@pytest.mark.parametrize(
    ("damages", "everywhere"), [(HERE, False), (IN_THE_CACHE, True)], ids=["here", "in the cache"]
)
def test_the_advice_of_every_refusal_mends(
    mended: Project, damages: list[Damage], everywhere: bool
):
    """Each is refused by itself; then all are mended at once, as advised, and everything works."""
    places = {
        name: [mended.root / name] + [cached(mended, name)] * everywhere for name, _, _ in damages
    }
    advice = set[str]()
    for name, damage, consumer in damages:
        good = (mended.root / name).read_bytes()
        for path in places[name]:
            change(path, damage)
        code, refusal = say(mended, consumer)
        assert code == 1, f"{name}, {consumer}: {refusal}"
        assert "Traceback" not in refusal
        assert name in refusal
        advice.update(COMMAND.findall(refusal))
        for path in places[name]:
            replace(path, good)
    for name, damage, _ in damages:
        for path in places[name]:
            change(path, damage)
    for command in advice:
        follow(mended, command)
    for consumer in dict.fromkeys(consumer for _, _, consumer in damages):
        code, said = say(mended, consumer)
        assert code == 0, f"{consumer}: {said}"


def test_what_holds_only_times_is_removed_as_advised(mended: Project):
    (path,) = mended.root.glob(".resume/*/timing.csv")
    change(path, no_utf8)
    consumers = ("stages report", "tokenmill summary")
    refusals = [say(mended, consumer) for consumer in consumers]
    assert [code for code, _ in refusals] == [1, 1], refusals
    for command in {command for _, refusal in refusals for command in COMMAND.findall(refusal)}:
        follow(mended, command)
    assert [say(mended, consumer)[0] for consumer in consumers] == [0, 0]


def test_text_that_was_added_comes_back_as_advised(mended: Project):
    """Its owner may have changed it, so the advice is not followed without a choice."""
    project = mended.copy(mended.root.parent / "given")
    file, new = (project.root / "data/raw/mine" / name for name in ("a.txt.gz", "new.txt"))
    file.parent.mkdir()
    file.write_bytes(gzip.compress(b"A text with an end.\n" * 99))
    project.set(data__raw="data/raw/mine")
    project.run("dvc", "add", "-q", "data/raw/mine")
    change(file, flipped)
    new.write_text("not added yet")
    code, refusal = say(project, "stages clean")
    assert code == 1, refusal
    assert "data/raw/mine/a.txt.gz" in refusal
    _, advice = say(project, "tokenmill doctor --deep")
    (drop,) = re.findall("# or, to drop the edit: (.*)", advice)
    follow(project, drop)
    assert new.exists()
    assert say(project, "stages clean")[0] == 0
