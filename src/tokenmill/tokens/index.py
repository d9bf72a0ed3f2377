"""Make the index of the training text (formats/token_index.py): a suffix array for each part of it,
the documents, and their sources."""

import hashlib
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydivsufsort import divsufsort

from tokenmill.core import files
from tokenmill.core.paths import damaged
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats import shards
from tokenmill.formats.store import ShardFile
from tokenmill.formats.token_file import read_metadata, write_metadata
from tokenmill.formats.token_index import (
    DOCUMENT_DTYPE,
    DOCUMENTS_FILE,
    INDEX_FORMAT,
    ORDERED,
    PLACE_DTYPE,
    IndexMetadata,
    Source,
    SuffixArray,
)
from tokenmill.formats.token_row import Tokens, document_ends, open_tokens
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.progress import Progress
from tokenmill.tokens.corpus import SplitRule, choose_split, runs, split_documents
from tokenmill.tokens.params import TokenizeParams
from tokenmill.tokens.words import Words

PART_BYTES = 100_000_000
"""Bytes of the ids that one suffix array is made of: 50 million tokens of a vocabulary of up to
65,536, which took 0.93 GB of memory in all."""

BLOCK = 1 << 22
"""The number of places, or of ids, that are looked at together."""


def build_index(
    *,
    clean: Path,
    tokens: Path,
    tokenizer_file: Path,
    out: Path,
    split: TokenizeParams,
    max_tokens: int,
) -> IndexMetadata:
    """Write the index of the training text. The folder `out` is replaced whole, or stays as it was.

    Args:
        clean: the clean documents, which know their sources.
        tokens: what `unpack` wrote of them.
        tokenizer_file: the tokenizer of the tokens.
        out: the folder of the index.
        split: how `tokenize` divided the documents.
        max_tokens: of a longer text no suffix array is made.
    """
    metadata = read_metadata(tokens)
    ids = open_tokens(tokens, "train")
    tokenizer = read_tokenizer(tokenizer_file)
    metadata.check_tokenizer(tokenizer.sha256, str(tokenizer_file))
    text = _TrainingText(ids, Words.of(tokenizer), width=2 if metadata.vocab_size <= 1 << 16 else 4)
    part_tokens = PART_BYTES // text.width
    is_short = len(ids) <= max_tokens
    size = np.dtype(PLACE_DTYPE).itemsize
    with (
        files.enough_room(out, lambda: size * len(ids)),
        files.write_directory(out) as folder,
        Progress("index", len(ids), "token") as progress,
    ):
        parts = []
        for start in range(0, len(ids), part_tokens) if is_short else ():
            stop = min(start + part_tokens, len(ids))
            parts.append(text.write_part(folder / f"part-{len(parts):05}.sa", start, stop))
            progress.advance(stop - start)
        found = IndexMetadata(
            format_version=INDEX_FORMAT,
            tokens_sha256=metadata.train.sha256,
            tokens=len(ids),
            sources=_sources(clean, split, metadata.train.documents),
            parts=parts,
            **_write_documents(folder, ids, metadata.eot_id),
        )
        write_metadata(folder, found)
    return found


@dataclass(frozen=True)
class _TrainingText:
    """The training text of which suffix arrays are made."""

    ids: Tokens
    words: Words
    width: int
    """Bytes that hold an id."""

    def write_part(self, path: Path, start: int, stop: int) -> SuffixArray:
        """Write the suffix array of the tokens from `start` to `stop`.

        The library sorts bytes. With the highest byte first, the order of an id's bytes is that of
        the ids, so the places at the first bytes of ids, in their order, are the suffix array of
        the ids.
        """
        content = self.ids[start : stop + ORDERED].astype(f">u{self.width}")
        is_start = self._word_starts(start, stop)
        sha256 = hashlib.sha256()
        places = 0
        order = divsufsort(content.view(np.uint8))
        with path.open("wb") as file:
            for first in range(0, len(order), BLOCK):
                block = order[first : first + BLOCK]
                block = block[block % self.width == 0] // self.width
                block = block[block < stop - start]
                chosen = block[is_start[block]].astype(PLACE_DTYPE)
                sha256.update(chosen.data)
                file.write(chosen.data)
                places += len(chosen)
        return SuffixArray(
            name=path.name,
            start=start,
            tokens=stop - start,
            places=places,
            sha256=sha256.hexdigest(),
        )

    def _word_starts(self, start: int, stop: int) -> np.ndarray:
        """Whether a word begins with each token from `start` to `stop`; bool."""
        found = np.empty(stop - start, dtype=np.bool_)
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            before = int(self.ids[first - 1 : first][0]) if first else None
            found[first - start : last - start] = self.words.starts(self.ids[first:last], before)
        return found


def _write_documents(folder: Path, ids: Tokens, eot_id: int) -> dict[str, Any]:
    """Write the first token of each document, and describe the file."""
    firsts = np.append(0, document_ends(ids, eot_id)[:-1]).astype(DOCUMENT_DTYPE)
    (folder / DOCUMENTS_FILE).write_bytes(firsts.data)
    sha256 = hashlib.sha256(firsts.data).hexdigest()
    return {"documents": len(firsts), "documents_sha256": sha256}


def _sources(clean: Path, split: TokenizeParams, documents: int) -> list[Source]:
    """Where each run of documents of the training text comes from."""
    found: list[Source] = []
    count = 0
    with ThreadExecutor() as executor:
        items = choose_split(clean, split, executor).rules
        for name, length in itertools.chain.from_iterable(executor.map(_shard_runs, items)):
            if not found or found[-1].name != name:
                found.append(Source(first_document=count, name=name))
            count += length
    if count != documents:
        raise damaged(
            clean, f"has {count:,} documents of training text, and the tokens {documents:,}"
        )
    return found


def _shard_runs(item: tuple[ShardFile, SplitRule]) -> list[tuple[str, int]]:
    """The sources of a shard's training text, each with how many documents follow."""
    shard, rule = item
    found = split_documents(shards.documents(shard, tuple(shards.SCHEMA)), rule)
    return [run for split, some in found if split == "train" for run in runs(some["source"])]
