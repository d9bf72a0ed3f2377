"""Damaged files are not unpacked, and the old tokens stay."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from tests.folders import contents
from tests.tokens.packing import pack_here
from tokenmill.core.errors import UserError
from tokenmill.formats.token_file import SPLITS, read_metadata
from tokenmill.formats.token_row import open_tokens
from tokenmill.tokens import unpack as unpack_module
from tokenmill.tokens.params import TokenizeParams
from tokenmill.tokens.unpack import unpack


@pytest.fixture(scope="session")
def packed_once(prose: Path, bpe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    pack_here(prose, bpe_file, folder, TokenizeParams(split="hash", val_fraction=0.3))
    return folder


@pytest.fixture
def packed(packed_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed_once, tmp_path / "packed"))


@pytest.fixture
def tokens(packed: Path, tmp_path: Path) -> Path:
    unpack(packed, tmp_path / "tokens")
    return tmp_path / "tokens"


def edit(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def compress(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


def content_of(shard: bytes) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(shard, read_across_frames=True).read()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda old: old[: len(old) // 2], "fewer than the"),
        (lambda _: b"", "fewer than the"),
        (lambda _: compress(bytes(1 << 30)), "SHA-256"),
        (lambda _: b"not zstd at all" * 9, "cannot be decompressed"),
        (lambda old: compress(content_of(old) + b"\x01\x00"), "more than the"),
        (lambda old: old[:-1] + bytes([old[-1] ^ 1]), "cannot be decompressed"),
        (lambda old: old[:90] + bytes([old[90] ^ 64]) + old[91:], "cannot be decompressed"),
        (lambda old: compress(content_of(old)[::-1]), "SHA-256"),
        (lambda old: compress(content_of(old)[:-2]), "fewer than the"),
    ],
)
def test_damaged_file_is_refused_and_old_tokens_stay(
    damage, message: str, packed: Path, tokens: Path
) -> None:
    before = contents(tokens)
    edit(packed / "part-00000.zst", damage)
    with pytest.raises(UserError, match=message) as caught:
        unpack(packed, tokens)
    assert "part-00000.zst" in str(caught.value)
    assert contents(tokens) == before
    assert not list(tokens.parent.glob(".tokens*"))


@pytest.mark.parametrize("block", [1, 7, 100, 10**6])
def test_blocks_of_any_size_give_the_same_bytes(
    block: int, packed: Path, tokens: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(unpack_module, "UNPACKED_IDS", block)
    unpack(packed, tmp_path / "again")
    for name in ("train.bin", "val.bin"):
        assert (tmp_path / "again" / name).read_bytes() == (tokens / name).read_bytes()


def test_missing_packed_file_is_named(packed: Path, tmp_path: Path) -> None:
    (packed / "part-00000.zst").unlink()
    with pytest.raises(UserError, match=r"part-00000\.zst .*`dvc pull`"):
        unpack(packed, tmp_path / "tokens")


def test_output_folder_is_replaced_whole(packed: Path, tokens: Path) -> None:
    (tokens / "left over").touch()
    unpack(packed, tokens)
    assert sorted(path.name for path in tokens.iterdir()) == [
        "metadata.json",
        "train.bin",
        "val.bin",
    ]
    assert (tokens / "metadata.json").read_bytes() == (packed / "metadata.json").read_bytes()


@pytest.mark.parametrize("block", [100, 10**6])
def test_compressed_tokens_are_the_same(
    block: int, packed: Path, tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpack_module, "UNPACKED_IDS", block)
    folder = tmp_path / "compressed"
    assert unpack(packed, folder, compressed=True) == read_metadata(tokens)
    assert sorted(path.name for path in folder.iterdir()) == [
        "metadata.json",
        "train.zst",
        "val.bin",
    ]
    for split in SPLITS:
        assert np.array_equal(open_tokens(folder, split)[:], open_tokens(tokens, split)[:])


def test_a_damaged_shard_is_not_compressed(packed: Path, tmp_path: Path) -> None:
    edit(packed / "part-00000.zst", lambda old: compress(content_of(old)[::-1]))
    with pytest.raises(UserError, match="SHA-256"):
        unpack(packed, tmp_path / "compressed", compressed=True)
    assert not list(tmp_path.glob("*compressed*"))


def test_a_full_disk_names_the_smaller_form(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(unpack_module, "write_metadata", full)
    with pytest.raises(UserError, match=r"free space.*token_placement to compressed.*dvc repro"):
        unpack(packed, tmp_path / "tokens")
    with pytest.raises(UserError, match=r"free space and run `dvc repro`"):
        unpack(packed, tmp_path / "tokens", compressed=True)
