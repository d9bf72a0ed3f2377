"""Readers of token files get what the metadata describes, or a sentence."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tokens.packing import write_tokens
from tokenmill.core.errors import UserError
from tokenmill.formats import token_file as token_file_module
from tokenmill.formats.token_file import (
    Part,
    SourceRun,
    Split,
    check_numbers,
    check_tokenizer,
    open_tokens,
    packed_dtype,
    read_metadata,
    too_short,
)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    folder = tmp_path / "tokens"
    ids: dict[Split, np.ndarray] = {"train": np.arange(90), "val": np.arange(10)}
    write_tokens(folder, ids, vocab_size=100)
    return folder


def edit(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 3}, "format_version: Input should be 4"),
        ({"dtype": "<u2"}, "dtype"),
        ({"dtype": ">i4"}, "dtype"),
        ({"eot_id": None}, "eot_id"),
        ({"vocab_size": "400"}, "vocab_size"),
        ({"tokenizer_sha256": "abc"}, "tokenizer_sha256"),
        ({"surprise": 1}, "surprise"),
        ({"train": {}}, r"train\.tokens"),
        ({"shards": []}, "shards"),
        (
            {"shards": [{"size": 1, "sha256": "0" * 64, "name": "../part-0.zst"}]},
            r"shards\.0\.name",
        ),
    ],
)
def test_wrong_metadata_is_refused(change: dict, message: str, tokens: Path) -> None:
    edit(tokens / "metadata.json", lambda old: json.dumps(json.loads(old) | change).encode())
    with pytest.raises(UserError, match=message):
        open_tokens(tokens, "train")


def test_sums_that_are_not_those_of_the_shards_are_refused(tokens: Path) -> None:
    content = json.loads((tokens / "metadata.json").read_text())
    content["train"]["bytes"] += 1
    (tokens / "metadata.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="train is not the sum"):
        open_tokens(tokens, "train")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sources: sources[0].update(tokens=44), "tokens of its sources"),
        (lambda sources: sources[0].update(documents=2), "documents of its sources"),
        (lambda sources: sources[0].update(bytes=0), "bytes of its sources"),
        (lambda sources: sources.clear(), "sources are not those"),
        (lambda sources: sources.append(dict(sources[0])), "documents of its sources"),
        (lambda sources: sources[0].pop("source"), r"sources\.0\.source"),
    ],
)
def test_sources_that_are_not_the_part(
    change: Callable[[list[dict]], object], message: str, tokens: Path
) -> None:
    content = json.loads((tokens / "metadata.json").read_text())
    change(content["shards"][0]["train"]["sources"])
    (tokens / "metadata.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        read_metadata(tokens)


def test_neighbouring_runs_of_one_source_are_refused() -> None:
    half = SourceRun(source="a", documents=1, tokens=2, bytes=3)
    whole = {"tokens": 4, "documents": 2, "turn_tokens": 0, "bytes": 6, "sha256": "0" * 64}
    with pytest.raises(ValueError, match="the same"):
        Part(**whole, sources=[half, half])


def test_the_file_is_read_once(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash and bounds are taken of blocks, each of which is copied out of the map once."""
    monkeypatch.setattr(token_file_module, "BLOCK_IDS", 16)
    read: list[int] = []

    blocks = token_file_module._blocks  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(
        token_file_module,
        "_blocks",
        lambda *which: (read.extend(block.tolist()) or block for block in blocks(*which)),
    )
    tokens_read = open_tokens(tokens, "train")
    assert read == tokens_read.tolist()


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
    with pytest.raises(UserError, match=r"outside 0 … 1"):
        open_tokens(tokens, "val")


@pytest.mark.parametrize("ids", [[-1, 0], [0, 2]])
def test_ids_just_outside_the_vocabulary_are_refused(ids: list[int], tmp_path: Path) -> None:
    numbers = np.array(ids, dtype="<i4")
    sha256 = hashlib.sha256(numbers.data).hexdigest()
    with pytest.raises(UserError, match="outside 0 … 1"):
        check_numbers(tmp_path, numbers, sha256, bound=2)


def test_packed_ids_are_narrow_while_the_largest_fits() -> None:
    assert packed_dtype(np.iinfo(np.uint16).max + 1) == "<u2"
    assert packed_dtype(np.iinfo(np.uint16).max + 2) == "<i4"


def test_a_sequence_takes_a_token_more_than_its_context() -> None:
    assert too_short(8, 8)
    assert too_short(9, 8) is None


def test_tokens_of_another_tokenizer_are_refused(tokens: Path) -> None:
    check_tokenizer(tokens, Path("tokenizer.json"), read_metadata(tokens).tokenizer_sha256)
    with pytest.raises(UserError, match="did not make the tokens"):
        check_tokenizer(tokens, Path("tokenizer.json"), "f" * 64)
