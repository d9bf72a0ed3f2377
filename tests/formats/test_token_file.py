"""Readers of token files get what the metadata describes, or a sentence."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tokens.packing import write_tokens
from tokenmill.core.errors import UserError
from tokenmill.formats.token_file import (
    Part,
    SourceRun,
    Split,
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
        read_metadata(tokens)


def test_sums_that_are_not_those_of_the_shards_are_refused(tokens: Path) -> None:
    content = json.loads((tokens / "metadata.json").read_text())
    content["train"]["bytes"] += 1
    (tokens / "metadata.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="train is not the sum"):
        read_metadata(tokens)


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


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_unreadable_metadata_is_refused(content: bytes, tokens: Path) -> None:
    edit(tokens / "metadata.json", lambda _: content)
    with pytest.raises(UserError, match=r"metadata\.json"):
        read_metadata(tokens)


def test_packed_ids_are_narrow_while_the_largest_fits() -> None:
    assert packed_dtype(np.iinfo(np.uint16).max + 1) == "<u2"
    assert packed_dtype(np.iinfo(np.uint16).max + 2) == "<i4"


def test_a_sequence_takes_a_token_more_than_its_context() -> None:
    assert too_short(8, 8)
    assert too_short(9, 8) is None


def test_tokens_of_another_tokenizer_are_refused(tokens: Path) -> None:
    metadata = read_metadata(tokens)
    metadata.check_tokenizer(metadata.tokenizer_sha256, "tokenizer.json")
    with pytest.raises(UserError, match=r"another tokenizer than tokenizer\.json"):
        metadata.check_tokenizer("f" * 64, "tokenizer.json")
