"""What is written is there whole or not at all, and a full disk names the room that is needed."""

import errno
import os
from pathlib import Path

import pytest

from tokenmill.core import files
from tokenmill.core.errors import UserError


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


def test_other_errors_pass_through() -> None:
    with pytest.raises(PermissionError), files.enough_room(Path("x"), lambda: 0):
        raise OSError(errno.EACCES, "no")


def test_metrics_have_six_significant_digits() -> None:
    assert [files.rounded(value) for value in (1.23456789, 1234567.0, 1e-9 / 3)] == [
        1.23457,
        1234570.0,
        3.33333e-10,
    ]


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
