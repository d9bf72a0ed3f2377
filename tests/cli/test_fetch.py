"""Text from elsewhere: which DVC command an address becomes, and what is refused before it."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dvc import fs as dvc_fs

from tests.imports import ROOT
from tests.pipeline.project import Project
from tokenmill.cli.fetch import check_listing, planned
from tokenmill.core.errors import UserError

HUB = "https://huggingface.co/datasets/ada/books"


@pytest.mark.parametrize(
    ("address", "command"),
    [
        ("hf://datasets/ada/books", f"import {HUB} . -o data/raw/books"),
        ("hf://datasets/ada/books@v1", f"import {HUB} . -o data/raw/books --rev=v1"),
        ("hf://datasets/ada/books/en/old/", f"import {HUB} en/old -o data/raw/books"),
        (
            "hf://datasets/ada/books@v1/en/a.txt",
            f"import {HUB} en/a.txt -o data/raw/a.txt --rev=v1",
        ),
        ("https://h.org/a.txt.gz?x=1", "import-url https://h.org/a.txt.gz?x=1 data/raw/a.txt.gz"),
        ("s3://bucket/books/", "import-url s3://bucket/books/ data/raw/books"),
        ("s3://bucket", "import-url s3://bucket data/raw/bucket"),
        ("s3://bucket/..", "import-url s3://bucket/.. data/raw/x"),
    ],
)
def test_an_address_becomes_one_command_of_dvc(
    address: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    name = "x" if address.endswith("..") else None
    assert planned(address, name)[1] == command.split()


def test_dvc_sees_what_a_user_adds_in_a_clone_too(tmp_path: Path) -> None:
    project, folders = Project(tmp_path / "here"), ("data/raw/books", "models/start/small")
    for folder in folders:
        (project.root / folder).mkdir(parents=True)
        (project.root / folder / "a.txt").write_text(f"a text in {folder}")
    shutil.copy(ROOT / ".gitignore", project.root)
    project.run("git", "init", "-q")
    project.run("dvc", "init", "-q")
    project.run("dvc", "remote", "add", "-q", "-d", "remote", str(tmp_path / "remote"))
    project.run("dvc", "add", "-q", *folders)
    project.commit()
    project.run("dvc", "push", "-q")
    clone = project.clone("there")
    clone.run("dvc", "pull", "-q")
    for folder in folders:
        assert (clone.root / folder / "a.txt").read_text() == f"a text in {folder}"


@pytest.mark.parametrize(
    "address", ["books", "hf://ada/books", "hf://datasets/../books", "s3://bucket/..", "s3:"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UserError):
        planned(address)


@pytest.mark.parametrize(
    ("files", "is_right"),
    [
        ({"bucket/books/a.txt": 1, "bucket/books/en/b.txt": 1}, True),
        ({"bucket/books/../../outside.txt": 1}, False),
        ({"bucket/books/en//b.txt": 1}, False),
        ({"bucket/books/..\\outside.txt": 1}, False),
        ({"bucket/books/a.txt": 1 << 60}, False),
    ],
)
def test_names_and_sizes_are_checked_before(
    files: dict[str, int], is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing: dict[str, Any] = {name: {"size": size} for name, size in files.items()}
    inner = SimpleNamespace(find=lambda *_, **__: listing)
    bucket = SimpleNamespace(isdir=lambda _: True, fs=inner)
    monkeypatch.setattr(dvc_fs, "parse_external_url", lambda _: (bucket, "bucket/books"))
    if is_right:
        check_listing("s3://bucket/books")
    else:
        with pytest.raises(UserError):
            check_listing("s3://bucket/books")
