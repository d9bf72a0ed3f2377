"""What is written is there whole or not at all, and a full disk names the room that is needed."""

import errno
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
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == '{\n  "a": "é",\n  "b": 1\n}\n'.encode()
    assert files.sha256_of(tmp_path / "a") == files.sha256_of(tmp_path / "b")
    assert files.read_json(tmp_path / "a") == {"a": "é", "b": 1}


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "is missing"), (b"{", "is not JSON"), (b"\xff", "is not JSON")]
)
def test_json_that_cannot_be_read_is_a_user_error(content: bytes | None, problem: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=rf"a\.json {problem}.*dvc repro"):
        files.read_json(tmp_path / "a.json")


@pytest.mark.parametrize("code", files.DISK_FULL)
def test_full_disk_names_the_room_needed(code: int) -> None:
    with (
        pytest.raises(UserError, match=r"data/x: .*; it takes about 1,234 bytes"),
        files.enough_room(Path("data/x"), lambda: 1234),
    ):
        raise OSError(code, "full")


def test_other_errors_pass_through() -> None:
    with pytest.raises(PermissionError), files.enough_room(Path("x"), lambda: 0):
        raise OSError(errno.EACCES, "no")


def test_metrics_have_six_significant_digits() -> None:
    assert [files.rounded(value) for value in (1.23456789, 1234567.0, 1e-9 / 3)] == [1.23457, 1234570.0, 3.33333e-10]
