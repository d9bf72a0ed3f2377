"""Metadata says which source each run of documents comes from, however the work is divided."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tokens.clean_text import PROSE
from tests.tokens.packing import pack_here
from tokenmill.formats.token_file import SPLITS, SourceRun, Split, TokenMetadata
from tokenmill.formats.token_row import document_ends, open_tokens
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.tokens import corpus as corpus_module
from tokenmill.tokens import pack as pack_module
from tokenmill.tokens.params import TokenizeParams
from tokenmill.tokens.unpack import unpack

Corpus = Callable[..., Path]

FILES = ["chats/2024/a.jsonl", "chats/b.jsonl", "notes.txt", "web\nold/c.zip/1.txt", "web.zip/2.md"]
SOURCES = ["chats", "chats", "notes.txt", "web\nold", "web.zip"]
"""The source of each of FILES."""


def by_file(names: list[str]) -> list[str]:
    """One of these names for each document, in their order."""
    return [names[len(names) * place // len(PROSE)] for place in range(len(PROSE))]


def documents_of(
    clean: Path, tokenizer_file: Path, work: Path, split: str
) -> tuple[TokenMetadata, dict[Split, list[str]], dict[Split, list[int]]]:
    """The metadata, and the text and the tokens of each document, read out of the .bin files."""
    params = TokenizeParams.model_validate({"split": split, "val_fraction": 0.3})
    metadata, _ = pack_here(clean, tokenizer_file, work / "packed", params)
    unpack(work / "packed", work / "tokens")
    tokenizer = read_tokenizer(tokenizer_file)
    texts: dict[Split, list[str]] = {}
    lengths: dict[Split, list[int]] = {}
    for name in SPLITS:
        ids = np.asarray(open_tokens(work / "tokens", name))
        ends = [0, *document_ends(ids, tokenizer.eot_id).tolist()]
        texts[name] = [
            tokenizer.decode(ids[a : b - 1].tolist()) for a, b in itertools.pairwise(ends)
        ]
        lengths[name] = np.diff(ends).tolist()
    return metadata, texts, lengths


def sources_in(split: str, texts: dict[Split, list[str]]) -> dict[Split, list[str]]:
    """The source of each document of either split, from its text or its place."""
    named = by_file(SOURCES)
    if split == "hash":
        known = dict(zip(PROSE, named, strict=True))
        return {name: [known[text] for text in texts[name]] for name in SPLITS}
    if split == "ends":
        kept = [name for name, text in zip(named, PROSE, strict=True) if len(text) > 3]
        return {"train": named, "val": kept}
    return {"train": named[: len(texts["train"])], "val": named[-len(texts["val"]) :]}


@pytest.mark.parametrize("split", ["hash", "ends", "tail"])
@pytest.mark.parametrize("shard_bytes", [900, 10**6])
def test_runs_are_those_of_the_documents(
    split: str, shard_bytes: int, corpus: Corpus, bpe_file: Path, tmp_path: Path
) -> None:
    clean = corpus(PROSE, sources=by_file(FILES), shard_bytes=shard_bytes, row_group_bytes=300)
    metadata, texts, lengths = documents_of(clean, bpe_file, tmp_path, split)
    named = sources_in(split, texts)
    for name in SPLITS:
        rows = zip(named[name], lengths[name], texts[name], strict=True)
        expected = []
        for source, group in itertools.groupby(rows, lambda row: row[0]):
            _, tokens, documents = zip(*group, strict=True)
            size = sum(len(text.encode()) for text in documents)
            run = SourceRun(source=source, documents=len(tokens), tokens=sum(tokens), bytes=size)
            expected.append(run)
        assert metadata.sources(name) == expected
    assert {run.source for run in metadata.sources("train")} >= {"chats", "notes.txt"}


def test_segments_are_one_document_of_its_source(
    corpus: Corpus, bpe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = corpus(PROSE, sources=by_file(FILES))
    whole, *_ = documents_of(clean, bpe_file, tmp_path / "whole", "tail")
    monkeypatch.setattr(corpus_module, "SEGMENT_CHARS", 20)
    monkeypatch.setattr(pack_module, "BATCH_BYTES", 50)
    cut, *_ = documents_of(clean, bpe_file, tmp_path / "cut", "tail")
    assert [cut.sources(name) for name in SPLITS] == [whole.sources(name) for name in SPLITS]


def test_beyond_the_bound_none_are_told_apart(
    corpus: Corpus, bpe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In no shard, whichever source comes first, and whatever was packed before."""
    few = corpus(PROSE[:60], sources=["a/1.txt", "a/2.txt"] * 30, shard_bytes=500)
    monkeypatch.setattr(corpus_module, "MAX_SOURCES", 2)
    more = {"sources": [*["a/1.txt", "a/2.txt"] * 30, "b", "c"], "shard_bytes": 500}
    many = corpus(PROSE[:62], **more)
    assert (few / "part-00000.parquet").read_bytes() == (many / "part-00000.parquet").read_bytes()
    backwards = corpus(PROSE[:62], **more | {"sources": more["sources"][::-1]})
    params = TokenizeParams(split="hash", val_fraction=0.3)
    out = tmp_path / "packed"
    assert {r.source for r in pack_here(few, bpe_file, out, params)[0].sources("train")} == {"a"}
    for clean in (many, backwards):
        metadata, _ = pack_here(clean, bpe_file, out, params)
        for name in SPLITS:
            (run,) = metadata.sources(name)
            totals = metadata.split(name)
            assert (run.source, run.tokens, run.bytes) == (None, totals.tokens, totals.bytes)
    assert {r.source for r in pack_here(few, bpe_file, out, params)[0].sources("train")} == {"a"}
