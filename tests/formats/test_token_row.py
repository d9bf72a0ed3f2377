"""The row of ids of a split is what its metadata says, in either form of its file, or a
sentence."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tokens.packing import compressed_copy, write_tokens
from tokenmill.core.errors import UserError
from tokenmill.formats import token_row as module
from tokenmill.formats.token_blocks import CompressedTokens
from tokenmill.formats.token_file import Split
from tokenmill.formats.token_row import check_numbers, document_ends, open_tokens

IDS: dict[Split, np.ndarray] = {"train": np.arange(90), "val": np.arange(10)}


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    write_tokens(tmp_path / "tokens", IDS, vocab_size=100)
    return tmp_path / "tokens"


@pytest.fixture
def compressed(tmp_path: Path) -> Path:
    write_tokens(tmp_path / "plain", IDS, vocab_size=100)
    return compressed_copy(tmp_path / "plain", tmp_path / "compressed")


def edit(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def test_compressed_tokens_are_the_same_row(tokens: Path, compressed: Path) -> None:
    row = open_tokens(compressed, "train")
    assert isinstance(row, CompressedTokens)
    assert sorted(path.name for path in compressed.iterdir()) == [
        "metadata.json",
        "train.zst",
        "val.bin",
    ]
    assert row[:].tolist() == open_tokens(tokens, "train")[:].tolist()
    assert open_tokens(compressed, "val")[:].tolist() == IDS["val"].tolist()
    assert document_ends(row, 7).tolist() == [8]


@pytest.mark.parametrize("searched", [1, 7, 90])
def test_document_ends_are_found_wherever_they_are(
    searched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_IDS", searched)
    ends = document_ends(np.arange(90) % 10, 9)
    assert ends.tolist() == list(range(10, 91, 10))


@pytest.mark.parametrize("size", [1, 7, 90, 1000])
def test_blocks_are_the_row_one_after_the_other(
    size: int, tokens: Path, compressed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_IDS", size)
    for folder in (tokens, compressed):
        row = open_tokens(folder, "train")
        blocks = list(module.read_blocks(row, 3, 80))
        assert np.concatenate(blocks).tolist() == list(range(3, 80))
        assert max(map(len, blocks)) <= size
        assert not any(isinstance(block, np.memmap) for block in blocks), "copied out of the map"


def test_other_compressed_content_is_refused(compressed: Path, tmp_path: Path) -> None:
    other: dict[Split, np.ndarray] = {"train": IDS["train"][::-1], "val": IDS["val"]}
    write_tokens(tmp_path / "other", other, vocab_size=100)
    shutil.copy(compressed_copy(tmp_path / "other", tmp_path / "copy") / "train.zst", compressed)
    with pytest.raises(UserError, match=r"train\.zst .*SHA-256"):
        open_tokens(compressed, "train")


def test_the_file_is_read_once(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash and bounds are taken of blocks, each of which is copied out of the map once."""
    monkeypatch.setattr(module, "BLOCK_IDS", 16)
    read: list[int] = []
    read_blocks = module.read_blocks
    monkeypatch.setattr(
        module,
        "read_blocks",
        lambda *which: (read.extend(block.tolist()) or block for block in read_blocks(*which)),
    )
    row = open_tokens(tokens, "train")
    assert read == row[:].tolist()


def test_tokens_are_mapped_read_only(tokens: Path) -> None:
    mapped = open_tokens(tokens, "train")
    assert isinstance(mapped, np.memmap)
    assert mapped.dtype.str == "<i4"
    assert mapped.tolist() == list(range(90))
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 1


@pytest.mark.parametrize("change", [lambda old: old[:-4], lambda old: old + bytes(4)])
def test_token_file_of_another_size_is_refused(change: Callable, tokens: Path) -> None:
    edit(tokens / "train.bin", change)
    with pytest.raises(UserError, match=r"train\.bin .*[\d,]+ bytes"):
        open_tokens(tokens, "train")


def test_missing_token_file_names_unpack(tokens: Path) -> None:
    (tokens / "val.bin").unlink()
    with pytest.raises(UserError, match="dvc repro unpack"):
        open_tokens(tokens, "val")
    shutil.rmtree(tokens)
    with pytest.raises(UserError, match=r"metadata\.json is missing"):
        open_tokens(tokens, "val")


@pytest.mark.parametrize(("split", "name"), [("train", "train.zst"), ("val", "val.bin")])
def test_a_missing_file_beside_compressed_tokens(split: Split, name: str, compressed: Path) -> None:
    (compressed / name).unlink()
    with pytest.raises(UserError, match=rf"{split}\.bin is missing.*dvc repro unpack"):
        open_tokens(compressed, split)


def test_other_content_is_refused(tokens: Path) -> None:
    edit(tokens / "val.bin", lambda old: b"\xff\xff\xff\x7f" + old[4:])
    with pytest.raises(UserError, match="SHA-256"):
        open_tokens(tokens, "val")


def test_ids_outside_the_vocabulary_are_refused(tokens: Path) -> None:
    edit(
        tokens / "metadata.json",
        lambda old: json.dumps(json.loads(old) | {"vocab_size": 2}).encode(),
    )
    with pytest.raises(UserError, match=r"outside 0 … 1"):
        open_tokens(tokens, "val")


@pytest.mark.parametrize("ids", [[-1, 0], [0, 2]])
def test_ids_just_outside_the_vocabulary_are_refused(ids: list[int], tmp_path: Path) -> None:
    numbers = np.array(ids, dtype="<i4")
    sha256 = hashlib.sha256(numbers.data).hexdigest()
    with pytest.raises(UserError, match="outside 0 … 1"):
        check_numbers(tmp_path, [numbers], sha256, bound=2)
