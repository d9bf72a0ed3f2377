"""What is written is there whole or not at all, and a full disk names the room that is needed."""

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from tests.imports import SOURCE
from tokenmill.core import files
from tokenmill.core.errors import UserError
from tokenmill.core.params import read_yaml
from tokenmill.costs import read_timing
from tokenmill.formats.records import read_record
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.huggingface import read_weights


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.txt"
    files.write_text(path, "old\n")

    def fail() -> None:
        with files.write_atomic(path) as file:
            file.write(b"half")
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 (its own)
        fail()
    assert path.read_bytes() == b"old\n"
    assert [each.name for each in path.parent.iterdir()] == ["a.txt"]


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    found = list[tuple[int, bool]]()
    monkeypatch.setattr(
        os, "fsync", lambda file: found.append((os.fstat(file).st_size, path.exists()))
    )
    files.write_text(path, "text")
    assert found == [(4, False)]


def test_a_copy_leaves_the_other_names_of_a_file_alone(tmp_path: Path) -> None:
    source, target, other = (tmp_path / name for name in ("source", "target", "other"))
    source.write_text("new")
    target.write_text("old")
    os.link(target, other)
    files.link_or_copy(source, target)
    assert (target.read_text(), other.read_text()) == ("new", "old")


def test_directory_is_replaced_whole_or_stays(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with files.write_directory(target) as folder:
        (folder / "old").touch()
        assert not target.exists()

    def fail() -> None:
        with files.write_directory(target) as folder:
            (folder / "new").touch()
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 (its own)
        fail()
    assert [each.name for each in target.iterdir()] == ["old"]
    with files.write_directory(target) as folder:
        (folder / "new").touch()
    assert [each.name for each in target.iterdir()] == ["new"]
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("detour", ["new/..", "new/../kept", ".."])
def test_a_folder_is_replaced_only_where_it_was_seen(tmp_path: Path, detour: str) -> None:
    here = tmp_path / "here"
    (here / "kept").mkdir(parents=True)
    (here / "kept/file").touch()
    with pytest.raises(UserError, match=r"\.\."), files.write_directory(here / detour):
        pass
    assert [path.name for path in here.rglob("*")] == ["kept", "file"]
    with files.write_directory(here / "kept/../other"):
        pass
    assert (here / "other").is_dir()


def test_a_folder_that_is_not_shared_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12")
    files.expect(tmp_path)
    files.expect(tmp_path / "file", 2)
    for path, size in ((tmp_path / "none", None), (tmp_path / "none", 2), (tmp_path / "file", 3)):
        with pytest.raises(UserError, match="cluster"):
            files.expect(path, size)


def test_json_is_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a", {"b": 1, "a": "é"})
    files.write_json(tmp_path / "b", {"a": "é", "b": 1})
    assert (
        (tmp_path / "a").read_bytes()
        == (tmp_path / "b").read_bytes()
        == '{\n  "a": "é",\n  "b": 1\n}\n'.encode()
    )
    assert files.sha256_of(tmp_path / "a") == files.sha256_of(tmp_path / "b")


@pytest.mark.parametrize("code", files.DISK_FULL)
def test_full_disk_names_the_room_needed(code: int) -> None:
    with (
        pytest.raises(UserError, match=r"data/x: .*1,234 bytes"),
        files.enough_room(Path("data/x"), lambda: 1234),
    ):
        raise OSError(code, "full")


def test_a_full_disk_elsewhere_is_named(tmp_path: Path) -> None:
    """As that of a store: room for what the block writes would not help."""
    elsewhere = str(tmp_path / "drive" / "a")
    with (
        pytest.raises(OSError, match="full") as raised,
        files.enough_room(tmp_path / "data" / "x", lambda: 1234),
    ):
        raise OSError(errno.ENOSPC, "full", elsewhere)
    assert raised.value.filename == elsewhere


def test_other_errors_pass_through() -> None:
    with pytest.raises(PermissionError), files.enough_room(Path("x"), lambda: 0):
        raise OSError(errno.EACCES, "no")


def test_an_error_names_the_file_and_not_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "folder" / "a").mkdir(parents=True)
    with pytest.raises(OSError, match="folder") as raised:
        files.write_text(tmp_path / "folder", "text")
    assert raised.value.filename == str(tmp_path / "folder")


WRITER = """
import sys
from pathlib import Path
from tokenmill.core import files
for _ in range(200):
    files.write_text(Path(sys.argv[1]), sys.argv[2] * 100_000)
    with files.write_directory(Path(sys.argv[1]).with_name("folder")) as folder:
        files.write_text(folder / "a", sys.argv[2])
        files.write_text(folder / "b", sys.argv[2])
"""


@pytest.mark.skipif(os.name == "nt", reason="locks of other systems")
def test_two_that_write_at_one_place_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "file"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, letter], stderr=subprocess.PIPE)
        for letter in "ab"
    ]
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            assert path.read_text() in ("a" * 100_000, "b" * 100_000)
    assert [writer.communicate()[1] for writer in writers] == [b"", b""]
    assert len({file.read_text() for file in (tmp_path / "folder").iterdir()}) == 1
    assert {found.name for found in tmp_path.iterdir()} == {"file", "folder"}


def test_threads_that_write_at_one_place_take_turns(tmp_path: Path) -> None:
    def write(letter: str) -> None:
        for _ in range(100):
            files.write_text(tmp_path / "file", letter * 100_000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))
    assert len({*(tmp_path / "file").read_text()}) == 1
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_who_holds_a_lock_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    other = FileLock(path)
    other.acquire()
    waited = []

    def waiting() -> None:
        waited.append(path)
        other.release()

    for _ in range(2):  # the second time nobody holds it
        with files.hold_lock(path, waiting), pytest.raises(Timeout):
            FileLock(path).acquire(timeout=0)
    assert waited == [path]
    FileLock(path).acquire(timeout=0).lock.release()


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_a_link_in_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="lock is a link"), files.hold_lock(tmp_path / "lock"):
        pass
    assert not (tmp_path / "mine").exists()


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_a_link_at_the_temporary_name_leads_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("mine")
    (tmp_path / ".a.txt.tmp").symlink_to(outside / "kept")
    (tmp_path / ".folder.tmp").symlink_to(outside)
    files.write_text(tmp_path / "a.txt", "text")
    with files.write_directory(tmp_path / "folder") as folder:
        (folder / "file").touch()
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "mine"
    assert (tmp_path / "folder" / "file").is_file()


def test_a_link_in_place_of_a_file_or_folder_is_replaced(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("mine")
    (tmp_path / "file").symlink_to(outside / "kept")
    (tmp_path / "folder").symlink_to(outside)
    files.write_text(tmp_path / "file", "text")
    with files.write_directory(tmp_path / "folder") as folder:
        (folder / "a").touch()
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "mine"
    assert (tmp_path / "file").read_text() == "text"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["a"]


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", tmp_path, Path(os.devnull)):
        with pytest.raises(UserError, match="is no regular file"):
            files.open_regular(path)
    with pytest.raises(OSError, match="pipe"):
        files.append_text(tmp_path / "pipe", "text")


OTHER_READERS = {
    "core/files.py": "the door itself",
    "byte_code.py": "Python's own",
    "model/device.py": "/proc",
    "inputs.py": "asks for a regular file before",
    "cli/params.py": "compares what it is about to write",
    "publish/talk.py": "scripts of the package",
    "runs/model_code.py": "code of the package",
    "sample/subjects.py": "tables of the package",
    "sample/generator.py": "prompts of the package",
    "formats/raw_text.py": "refuse_special comes before",
    "training/checkpoints/mirror.py": "a copy of its own",
    "training/checkpoints/find.py": "DVC's file system",
    "runs/find.py": "DVC's file system",
    "tokens/train_tokenizer.py": "shards, whose format was checked",
    "tokens/unpack.py": "read_metadata has checked the file",
}


def test_files_are_opened_for_reading_in_one_place() -> None:
    reads = re.compile(r"(?<!files)\.read_(text|bytes)\(|open\([^)]*\"rb\"\)|Tokenizer\.from_file")
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if reads.search(path.read_text(encoding="utf-8"))
    }
    assert found <= OTHER_READERS.keys()


def test_a_pipe_in_place_of_any_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe = tmp_path / "pipe"
    readers: list[Callable[[], object]] = [
        lambda: read_record(pipe, dict[str, int], way_out="remove it"),
        lambda: read_yaml(pipe),
        lambda: read_tokenizer(pipe),
        lambda: read_weights(pipe),
        lambda: read_timing(pipe),
        lambda: files.sha256_of(pipe),
    ]
    for read in readers:
        with pytest.raises(UserError, match="is no regular file"):
            read()


def test_a_link_is_followed_only_where_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert files.read_bytes(tmp_path / "link") == b"text"
    with pytest.raises(UserError, match="is a link"):
        files.read_bytes(tmp_path / "link", follow=False)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), RuntimeError("Io error (os error 28)")]
)
def test_a_full_disk_names_the_file(tmp_path: Path, error: Exception) -> None:
    def fail() -> None:
        with files.write_beside(tmp_path / "a"):
            raise error

    with pytest.raises(OSError, match=r"a'?$") as refused:
        fail()
    assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(tmp_path / "a"))
    assert not list(tmp_path.iterdir())
