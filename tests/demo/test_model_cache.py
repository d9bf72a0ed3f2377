"""The cache of models: each is read once, the least recently used goes, changed files are read
again."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.demo.demo_project import write_run
from tokenmill.core.errors import UserError
from tokenmill.demo.models import Loaded
from tokenmill.model.huggingface import WEIGHTS
from tokenmill.runs.find import Checkpoint, available
from tokenmill.runs.writer import Writer


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that are read from disk, in order."""
    folders: list[Path] = []
    load = Writer.load

    def noted(checkpoint: Checkpoint) -> Writer:
        folders.append(checkpoint.folder)
        return load(checkpoint)

    monkeypatch.setattr(Writer, "load", noted)
    return folders


@pytest.fixture
def copy(project: Path, tmp_path: Path) -> Path:
    return shutil.copytree(project, tmp_path / "project")


def test_threads_share_one_reading(project: Path, reads: list[Path]):
    loaded = Loaded(room=2)
    together = threading.Barrier(8)
    first, second = available(project)

    def ask(number: int) -> Writer:
        together.wait()
        return loaded.get((first, second)[number % 2])

    with ThreadPoolExecutor(8) as threads:
        writers = list(threads.map(ask, range(8)))
    assert sorted(reads) == [first.folder, second.folder]
    assert len(set(map(id, writers))) == 2


def test_least_recently_used_model_goes_first(copy: Path, reads: list[Path]):
    write_run(copy, epochs=3, seed=5)
    one, two, three = available(copy)
    loaded = Loaded(room=2)
    for asked in (one, two, one, three, one, two):
        loaded.get(asked)
    assert reads == [checkpoint.folder for checkpoint in (one, two, three, two)]


def test_replaced_file_is_read_again(copy: Path, reads: list[Path]):
    checkpoint = available(copy)[0]
    loaded = Loaded(room=2)
    before = loaded.get(checkpoint)
    assert loaded.get(checkpoint) is before
    write_run(copy, epochs=2, seed=7)
    assert loaded.get(checkpoint) is not before
    assert len(reads) == 2


def test_unreadable_model_is_an_error_and_tried_again(copy: Path):
    checkpoint = available(copy)[0]
    weights = checkpoint.folder / WEIGHTS
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    loaded = Loaded(room=2)
    for _ in range(2):
        with pytest.raises(UserError, match="is damaged"):
            loaded.get(checkpoint)
    weights.unlink()
    with pytest.raises(UserError, match="is missing"):
        loaded.get(checkpoint)
    weights.write_bytes(whole)
    away = checkpoint.tokenizer.rename(copy / "elsewhere.json")
    with pytest.raises(UserError, match="tokenizer"):
        loaded.get(checkpoint)
    away.rename(checkpoint.tokenizer)
    assert loaded.get(checkpoint).tokenizer.type == "char"
