"""Readers of token files get what the metadata describes, or a sentence."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tokenmill.core.errors import UserError
from tokenmill.formats.token_file import (
    DTYPE,
    SPLITS,
    SplitMetadata,
    TokenMetadata,
    open_tokens,
    read_metadata,
    token_file,
    write_metadata,
)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    folder = tmp_path / "tokens"
    splits = {}
    folder.mkdir()
    for split, count in zip(SPLITS, (90, 10), strict=True):
        content = np.arange(count, dtype=DTYPE).tobytes()
        token_file(folder, split).write_bytes(content)
        splits[split] = SplitMetadata(
            tokens=count,
            documents=1,
            turn_tokens=0,
            bytes=7,
            sha256=hashlib.sha256(content).hexdigest(),
        )
    metadata = TokenMetadata(
        format_version=2,
        dtype=DTYPE,
        **splits,
        vocab_size=100,
        eot_id=0,
        tokenizer_type="bpe",
        tokenizer_sha256="a" * 64,
    )
    write_metadata(folder, metadata)
    return folder


def edit(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 1}, "format_version: Input should be 2"),
        ({"dtype": "<u2"}, "dtype"),
        ({"dtype": ">i4"}, "dtype"),
        ({"eot_id": None}, "eot_id"),
        ({"vocab_size": "400"}, "vocab_size"),
        ({"tokenizer_sha256": "abc"}, "tokenizer_sha256"),
        ({"surprise": 1}, "surprise"),
        ({"train": {}}, r"train\.tokens"),
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
    assert mapped.tolist() == list(range(90))
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 1


def test_token_file_of_another_size_is_refused(tokens: Path) -> None:
    edit(tokens / "train.bin", lambda old: old[:-4])
    with pytest.raises(UserError, match=r"train\.bin .*[\d,]+ bytes"):
        open_tokens(tokens, "train")


def test_missing_token_file_names_unpack(tokens: Path) -> None:
    (tokens / "val.bin").unlink()
    with pytest.raises(UserError, match="dvc repro unpack"):
        open_tokens(tokens, "val")
    shutil.rmtree(tokens)
    with pytest.raises(UserError, match=r"metadata\.json is missing"):
        open_tokens(tokens, "val")


def test_other_content_is_refused(tokens: Path) -> None:
    edit(tokens / "val.bin", lambda old: b"\xff\xff\xff\x7f" + old[4:])
    with pytest.raises(UserError, match="SHA-256"):
        open_tokens(tokens, "val")


def test_ids_outside_the_vocabulary_are_refused(tokens: Path) -> None:
    edit(
        tokens / "metadata.json",
        lambda old: json.dumps(json.loads(old) | {"vocab_size": 2}).encode(),
    )
    with pytest.raises(UserError, match=r"ids outside 0 … 1"):
        open_tokens(tokens, "val")
