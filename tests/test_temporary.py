"""A temporary folder goes with its block, or after a kill with the next process that makes one."""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.imports import SOURCE
from tests.waiting import wait_for
from tokenmill import temporary
from tokenmill.temporary import PREFIX, temporary_folder

HOLD = """
import sys
from tokenmill.temporary import temporary_folder

with temporary_folder() as folder:
    (folder / "copy").write_text("of something large")
    sys.stdin.read()
"""
"""A process that has a folder until its stdin is closed."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this test's processes keep temporary files; the first folder has yet to be made."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    temporary._remove_abandoned.cache_clear()
    yield place
    temporary._remove_abandoned.cache_clear()


def holding() -> "subprocess.Popen[bytes]":
    """Start a process that has a folder."""
    return subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, cwd=SOURCE)


def test_it_goes_with_its_block(place: Path):
    with temporary_folder() as folder:
        assert folder.parent == place
        assert not list(folder.iterdir())
        (folder / "file").touch()
    assert not list(place.iterdir())


def test_it_goes_with_a_block_that_fails(place: Path):
    def fail() -> None:
        with temporary_folder():
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 (its own)
        fail()
    assert not list(place.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
def test_a_killed_process_s_goes_and_a_living_one_s_stays(place: Path):
    with holding() as killed, holding() as living:
        wait_for(lambda: len(list(place.glob("*/copy"))) == 2)
        killed.kill()
        killed.wait()
        with temporary_folder():
            assert len(list(place.glob("*/copy"))) == 1
            assert len(list(place.iterdir())) == 2
        living.communicate()
    assert not list(place.iterdir())


def test_what_others_keep_there_stays(place: Path, tmp_path: Path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "file").touch()
    for name in ("notes", f"{PREFIX}notes-of-mine", f"x{PREFIX}12345678"):
        (place / name).mkdir()
    (place / f"{PREFIX}12345678").touch()
    (place / f"{PREFIX}87654321").symlink_to(own)
    before = set(place.iterdir())
    with temporary_folder():
        pass
    assert set(place.iterdir()) == before
    assert (own / "file").exists()


def test_none_is_taken_while_it_is_made():
    done = threading.Event()

    def remove_abandoned() -> None:
        while not done.is_set():
            temporary._remove_abandoned.__wrapped__()

    others = [threading.Thread(target=remove_abandoned) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for _ in range(300):
            with temporary_folder() as folder:
                (folder / "file").write_text("own")
                assert (folder / "file").read_text() == "own"
    finally:
        done.set()
        for other in others:
            other.join()
