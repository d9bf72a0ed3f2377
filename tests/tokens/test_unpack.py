"""Damaged files are not unpacked, and training opens only files that match their metadata."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from tokenmill.core.errors import UserError
from tokenmill.core.token_file import open_tokens, read_metadata
from tokenmill.tokens import unpack as unpack_module
from tokenmill.tokens.pack import pack
from tokenmill.tokens.params import TokenizeParams
from tokenmill.tokens.unpack import unpack


@pytest.fixture(scope="session")
def packed_once(prose: Path, bpe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    pack(prose, bpe_file, folder, TokenizeParams(split="hash", val_fraction=0.3))
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


def content_of(packed_file: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(packed_file)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda old: old[: len(old) // 2], "is cut short"),
        (lambda old: old[:-3], "is cut short"),
        (lambda _: b"", "is cut short"),
        (lambda _: b"not zstd at all" * 9, "cannot be decompressed"),
        (lambda old: old + b"rubbish after the end", "has bytes after its end"),
        (lambda old: old + compress(b"\x01\x00\x00\x00"), "has bytes after its end"),
        (lambda old: compress(content_of(old) + b"\x01\x00\x00\x00"), "more than the"),
        (lambda old: old[:-1] + bytes([old[-1] ^ 1]), "cannot be decompressed"),
        (lambda old: old[:90] + bytes([old[90] ^ 64]) + old[91:], "cannot be decompressed"),
        (lambda old: compress(content_of(old)[::-1]), "SHA-256"),
        (lambda old: compress(content_of(old)[:-4]), "fewer than the"),
    ],
)
def test_damaged_file_is_refused_and_old_tokens_stay(damage, message: str, packed: Path, tokens: Path) -> None:
    before = {path.name: path.read_bytes() for path in tokens.iterdir()}
    edit(packed / "train.bin.zst", damage)
    with pytest.raises(UserError, match=message) as caught:
        unpack(packed, tokens)
    assert "train.bin.zst" in str(caught.value)
    assert "dvc repro -f tokenize" in str(caught.value)
    assert {path.name: path.read_bytes() for path in tokens.iterdir()} == before
    assert not list(tokens.parent.glob(".tokens*"))


@pytest.mark.parametrize("block", [1, 7, 100, 10**6])
def test_blocks_of_any_size_give_the_same_bytes(
    block: int, packed: Path, tokens: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(unpack_module, "BLOCK", block)
    unpack(packed, tmp_path / "again")
    for name in ("train.bin", "val.bin"):
        assert (tmp_path / "again" / name).read_bytes() == (tokens / name).read_bytes()


def test_missing_packed_file_is_named(packed: Path, tmp_path: Path) -> None:
    (packed / "val.bin.zst").unlink()
    with pytest.raises(UserError, match=r"val\.bin\.zst is missing; run `dvc pull`"):
        unpack(packed, tmp_path / "tokens")


def test_output_folder_is_replaced_whole(packed: Path, tokens: Path) -> None:
    (tokens / "left over").touch()
    unpack(packed, tokens)
    assert sorted(path.name for path in tokens.iterdir()) == ["metadata.json", "train.bin", "val.bin"]
    assert (tokens / "metadata.json").read_bytes() == (packed / "metadata.json").read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, r"format_version 2, this TokenMill reads 1"),
        ({"dtype": "<u2"}, r"dtype \('<u2'\) is wrong"),
        ({"dtype": ">i4"}, r"dtype \('>i4'\) is wrong"),
        ({"eot_id": None}, r"eot_id \(None\) is wrong"),
        ({"vocab_size": "400"}, r"vocab_size \('400'\) is wrong"),
        ({"tokenizer_sha256": "abc"}, r"tokenizer_sha256 \('abc'\) is wrong"),
        ({"surprise": 1}, r"surprise \(1\) is wrong"),
        ({"train": {}}, r"train\.tokens .* is wrong"),
    ],
)
def test_wrong_metadata_is_refused(change: dict, message: str, tokens: Path) -> None:
    edit(tokens / "metadata.json", lambda old: json.dumps(json.loads(old) | change).encode())
    with pytest.raises(UserError, match=message):
        open_tokens(tokens, "train")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_unreadable_metadata_is_refused(content: bytes, tokens: Path) -> None:
    edit(tokens / "metadata.json", lambda _: content)
    with pytest.raises(UserError, match=r"metadata\.json"):
        read_metadata(tokens)


def test_tokens_are_mapped_read_only(tokens: Path) -> None:
    mapped = open_tokens(tokens, "train")
    assert isinstance(mapped, np.memmap)
    assert mapped.dtype.str == "<i4"
    assert len(mapped) == read_metadata(tokens).train.tokens
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 1


def test_token_file_of_another_size_is_refused(tokens: Path) -> None:
    edit(tokens / "train.bin", lambda old: old[:-4])
    with pytest.raises(UserError, match=r"train\.bin has [\d,]+ bytes, not [\d,]+ tokens of 4 bytes"):
        open_tokens(tokens, "train")


def test_missing_token_file_names_unpack(tokens: Path) -> None:
    (tokens / "val.bin").unlink()
    with pytest.raises(UserError, match="dvc repro unpack"):
        open_tokens(tokens, "val")
    shutil.rmtree(tokens)
    with pytest.raises(UserError, match=r"metadata\.json is missing"):
        open_tokens(tokens, "val")


def test_verify_refuses_other_content(tokens: Path) -> None:
    edit(tokens / "val.bin", lambda old: b"\xff\xff\xff\x7f" + old[4:])
    assert open_tokens(tokens, "val")[0] == 2**31 - 1
    with pytest.raises(UserError, match="SHA-256"):
        open_tokens(tokens, "val", verify=True)


def test_verify_refuses_ids_outside_the_vocabulary(tokens: Path) -> None:
    edit(tokens / "metadata.json", lambda old: json.dumps(json.loads(old) | {"vocab_size": 2}).encode())
    with pytest.raises(UserError, match=r"ids outside 0 … 1"):
        open_tokens(tokens, "val", verify=True)
