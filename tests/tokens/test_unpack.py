"""Damaged files are not unpacked, and the old tokens stay."""

import errno
import re
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from stages import unpack as stage
from tests.folders import contents
from tests.tokens.packing import pack_here
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.formats.token_file import COMPRESSED_SHARE, SPLITS, read_metadata
from tokenmill.formats.token_row import open_tokens
from tokenmill.progress import Progress
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


def test_a_shard_with_too_much_takes_no_more_memory(packed: Path, tmp_path: Path) -> None:
    edit(packed / "part-00000.zst", lambda _: compress(bytes(1 << 26)))
    tracemalloc.start()
    with pytest.raises(UserError, match="SHA-256"):
        unpack(packed, tmp_path / "tokens")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 24


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


@pytest.mark.parametrize(
    ("placement", "name"), [("auto", "train.bin"), ("compressed", "train.zst")]
)
def test_the_stage_writes_the_form_that_is_asked_for(
    placement: str, name: str, packed_once: Path, here: Path
) -> None:
    shutil.copytree(packed_once, here / paths.PACKED)
    Path("params.yaml").write_text(f"runtime: {{token_placement: {placement}}}")
    stage.main()
    assert {path.name for path in paths.TOKENS.iterdir()} == {"metadata.json", name, "val.bin"}


@pytest.mark.parametrize("compressed", [False, True])
def test_the_progress_is_that_of_all_tokens(
    compressed: bool, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals, done = list[int](), list[int]()

    class Recorded(Progress):
        def __init__(self, title: str, total: int) -> None:
            super().__init__(title, total)
            totals.append(total)

        def advance(self, n: int) -> None:
            done.append(n)

    monkeypatch.setattr(unpack_module, "Progress", Recorded)
    metadata = unpack(packed, tmp_path / "tokens", compressed=compressed)
    assert len(done) == len(metadata.shards) > 1
    assert totals == [sum(done)] == [metadata.train.file_bytes + metadata.val.file_bytes]


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
    metadata = read_metadata(packed)
    train, val = metadata.train.file_bytes, metadata.val.file_bytes
    for compressed, share, way_out in (
        (False, 1.0, r"free space.*token_placement to compressed.*dvc repro"),
        (True, COMPRESSED_SHARE["<u2"], r"free space and run `dvc repro`"),
    ):
        with pytest.raises(UserError, match=way_out) as caught:
            unpack(packed, tmp_path / "tokens", compressed=compressed)
        needed = re.search(r"([\d,]+) bytes", str(caught.value))
        assert needed
        assert int(needed[1].replace(",", "")) == int(val + share * train)
