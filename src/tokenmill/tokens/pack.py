"""Clean text to compressed tokens: the slow half of tokenizing, whose output is cached and shared.

Each shard of clean text becomes a packed shard, in a task of its own: it reads, splits, encodes,
compresses, hashes and writes, and returns the description. In memory are, for each task, a row
group, a batch of BATCH_BYTES and the packed shard, however large the corpus is.

A finished shard is also kept in a folder of results, under a key of what it follows from: the bytes
of its text, the tokenizer, the rule of the split. So a stage that was killed, or that runs again
after some text has changed, encodes only what is not there. With a store, the results are
descriptions alone, which the driver keeps. The bytes depend only on text, tokenizer and parameters.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from operator import add
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import zstandard

from tokenmill.core import files
from tokenmill.core.errors import UserError
from tokenmill.core.paths import damaged
from tokenmill.display import say
from tokenmill.executors.base import Executor
from tokenmill.formats import shards
from tokenmill.formats.chat_columns import mark_count, text_bytes
from tokenmill.formats.records import read_record
from tokenmill.formats.store import Manifest, ShardFile, Store, write_manifest
from tokenmill.formats.token_blocks import compressor
from tokenmill.formats.token_file import (
    SPLITS,
    TOKEN_FORMAT,
    PackedShard,
    Part,
    SourceRun,
    TokenMetadata,
    packed_dtype,
    sums,
    write_metadata,
)
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.progress import Progress
from tokenmill.temporary import temporary_folder
from tokenmill.tokens.corpus import (
    SplitMethod,
    SplitRule,
    by_source,
    choose_split,
    empty_split,
    probe,
    segmented,
    split_documents,
)
from tokenmill.tokens.encoder import Encoder, choose_encoder
from tokenmill.tokens.params import TokenizeParams

BATCH_BYTES = 4 << 20
"""UTF-8 bytes of text that are encoded at a time."""

CHECKED_BYTES = 1 << 18
"""UTF-8 bytes of this corpus on which the fast encoder must agree with the reference."""


def pack(
    clean: Path,
    tokenizer_file: Path,
    out: Path,
    params: TokenizeParams,
    *,
    executor: Executor,
    results: Path,
    store: str | None = None,
) -> tuple[TokenMetadata, SplitMethod]:
    """Encode the corpus in `clean` into packed shards and metadata.json in the folder `out`.

    Args:
        clean: what the stage `clean` wrote.
        tokenizer_file: the tokenizer.json.
        out: the folder to write; it appears whole or not at all.
        params: how to split the corpus.
        executor: where shards are encoded.
        results: the folder that keeps finished shards for the next time.
        store: where packed shards go; None: to `out`.

    Returns:
        The metadata, and how the corpus was split.

    Raises:
        UserError: the tokenizer cannot be used, a character has no token, or a split is empty.
    """
    tokenizer = read_tokenizer(tokenizer_file)
    method, rules, has_sources = choose_split(clean, params, executor)
    encoder = choose_encoder(tokenizer, probe(clean, CHECKED_BYTES, executor))
    if encoder.note:
        say(encoder.note)
    total = shards.totals(clean).bytes
    results.mkdir(parents=True, exist_ok=True)
    with files.enough_room(out, lambda: total), files.write_directory(out) as folder:
        work = Work(
            folder=folder.resolve(),
            results=results.resolve(),
            out=out,
            store=store,
            encoder=encoder,
            total=total,
            has_sources=has_sources,
        )
        waiting = partial(say, "another run of this project is tokenizing; waiting for it to end")
        # All runs share the finished shards
        with files.hold_lock(results.with_name(f"{results.name}.lock"), waiting):
            done = _pack_all(work, rules, executor)
        for split, name in zip(SPLITS, ("training", "validation"), strict=True):
            if not any(shard.part(split).bytes for shard in done):
                raise empty_split(method, params.val_fraction, name)
        metadata = TokenMetadata.of(
            done,
            vocab_size=tokenizer.vocab_size,
            eot_id=tokenizer.eot_id,
            tokenizer_type=tokenizer.type,
            tokenizer_sha256=tokenizer.sha256,
        )
        found = metadata.train.bytes + metadata.val.bytes
        if found != total:
            raise damaged(clean, f"holds {found:,} bytes of text, but records {total:,}")
        if store:
            write_manifest(folder, Manifest(store=store, shards=[]))
        write_metadata(folder, metadata)
    return metadata, method


def packed_metrics(metadata: TokenMetadata) -> dict[str, int | float]:
    """The numbers for metrics/tokens.json, in one flat mapping."""
    train, val = metadata.train, metadata.val
    text_tokens = train.text_tokens + val.text_tokens
    compressed = sum(shard.size for shard in metadata.shards)
    return {
        "train_tokens": train.tokens,
        "val_tokens": val.tokens,
        "train_documents": train.documents,
        "val_documents": val.documents,
        "bytes_per_token": round((train.bytes + val.bytes) / max(1, text_tokens), 4),
        "compression_ratio": round((train.file_bytes + val.file_bytes) / compressed, 3),
    }


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the tasks of all shards have in common."""

    folder: Path
    """Where packed shards are written without a store."""
    results: Path
    """Where finished ones are kept."""
    out: Path
    """What `folder` becomes."""
    store: str | None
    """Where packed shards are written; None: in `folder`."""
    encoder: Encoder
    total: int
    """UTF-8 bytes of the whole corpus."""
    has_sources: bool
    """Whether its sources are told apart."""

    def key(self, shard: ShardFile, rule: SplitRule) -> str:
        """The name of what the packed shard follows from."""
        facts = [
            TOKEN_FORMAT,
            shard.sha256(),
            self.encoder.tokenizer.sha256,
            self.encoder.name,
            asdict(rule),
            self.has_sources,
            zstandard.ZSTD_VERSION,
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


class Item(NamedTuple):
    """A shard of clean text to pack."""

    shard: ShardFile
    rule: SplitRule
    earlier: PackedShard | None = None
    """How it was described when it was packed before; known only with a store."""

    @property
    def packed_name(self) -> str:
        """The name of the packed shard."""
        return f"{self.shard.path.stem}.zst"


def _pack_all(
    work: Work, items: Iterable[tuple[ShardFile, SplitRule]], executor: Executor
) -> list[PackedShard]:
    """Pack all shards, and of the earlier results keep only those that belong to them."""
    done: list[PackedShard] = []
    keys = set[str]()
    reused = 0
    pack_one = partial(store_shard if work.store else pack_shard, work=work)
    if work.store:
        Store(work.store)  # which is refused before any work
    with Progress("tokenize", work.total) as progress:
        for key, shard, was_there in executor.map(pack_one, _items(work, items)):
            if work.store:
                files.write_json(work.results / f"{key}.json", shard.model_dump())
            else:
                files.expect(work.folder / shard.name, shard.size)
            done.append(shard)
            keys.add(key)
            reused += was_there
            progress.advance(shard.train.bytes + shard.val.bytes)
        if reused:
            progress.note(f"{reused:,} of {len(done):,} shards had been encoded before")
    for path in work.results.iterdir():
        if path.stem not in keys:
            files.remove(path)
    return done


def _items(work: Work, items: Iterable[tuple[ShardFile, SplitRule]]) -> Iterator[Item]:
    for shard, rule in items:
        item = Item(shard, rule)
        if work.store:
            record = work.results / f"{work.key(shard, rule)}.json"
            item = item._replace(earlier=_described(record, item.packed_name))
        yield item


def pack_shard(item: Item, *, work: Work) -> tuple[str, PackedShard, bool]:
    """Pack one shard of clean text into the folder, unless that was done before.

    Returns:
        Its key, its description, and whether it was done before.

    Raises:
        UserError: the shard changed, so that its key may be another one.
    """
    files.expect(work.folder)
    target = work.folder / item.packed_name
    read = files.Unchanged(item.shard.path)
    key = work.key(item.shard, item.rule)
    kept = work.results / f"{key}.zst"
    if earlier := _reused(kept, target):
        return key, earlier, True
    packed = _encoded(item, target, work)
    read.check()
    # The description last: a result that has one is complete
    files.remove(kept)
    files.link_or_copy(target, kept)
    files.write_json(kept.with_suffix(".json"), packed.model_dump())
    return key, packed, False


def store_shard(item: Item, *, work: Work) -> tuple[str, PackedShard, bool]:
    """Pack one shard of clean text into the store, unless that was done before; see
    `pack_shard`."""
    store = Store(str(work.store))
    read = files.Unchanged(item.shard.path)
    key = work.key(item.shard, item.rule)
    if item.earlier and store.has(item.earlier):
        return key, item.earlier, True
    with temporary_folder() as folder:
        target = folder / item.packed_name
        packed = _encoded(item, target, work)
        read.check()
        store.put(target, packed)
    return key, packed, False


def _described(path: Path, name: str) -> PackedShard | None:
    """The description of a finished shard in the results, which becomes `name`; None if there is
    none, or a damaged one."""
    with contextlib.suppress(UserError, OSError):
        found = read_record(path, PackedShard, way_out="it is made again")
        return found.model_copy(update={"name": name})
    return None


def _reused(kept: Path, target: Path) -> PackedShard | None:
    """Take a finished shard from the results, if it is there and whole."""
    found = _described(kept.with_suffix(".json"), target.name)
    with contextlib.suppress(UserError, OSError):
        files.link_or_copy(kept, target)
        if found and files.sha256_of(target) == found.sha256:
            return found
    files.remove(target)
    return None


def _encoded(item: Item, target: Path, work: Work) -> PackedShard:
    parts = {split: PackedPart(packed_dtype(work.encoder.tokenizer.vocab_size)) for split in SPLITS}
    tables = shards.documents(item.shard, tuple(shards.SCHEMA))
    for split, documents in split_documents(tables, item.rule):
        _encode(documents, parts[split], work)
        del documents  # it would hold its row group while the next one is read
    described = {split: part.finish() for split, part in parts.items()}
    content = b"".join(part.content for part in parts.values())
    text = sum(part.bytes for part in described.values())
    with (
        files.enough_room(work.out, lambda: len(content) * work.total // max(1, text)),
        files.write_atomic(target) as file,
    ):
        file.write(content)
    sha256 = hashlib.sha256(content).hexdigest()
    return PackedShard(name=target.name, size=len(content), sha256=sha256, **described)


def _encode(documents: pl.DataFrame, part: "PackedPart", work: Work) -> None:
    """Append documents to a part, with end-of-text after each. They are encoded in batches, of one
    source if these are told apart; each begins in another multiple of BATCH_BYTES."""
    for source, column in by_source(documents) if work.has_sources else [(None, documents["text"])]:
        for texts, ends in _cut(column):
            ids, offsets = work.encoder.encode_documents(texts)
            ids = np.insert(ids, offsets[1:][ends], work.encoder.tokenizer.eot_id)
            part.add(ids, texts, ends, source)


def _cut(documents: pl.Series) -> Iterator[tuple[pl.Series, np.ndarray]]:
    """The texts of each batch, whole documents or segments of long ones, and whether a document
    ends with each of them (bool)."""
    if documents.is_empty():
        return
    texts, ends = segmented(documents)
    lengths = texts.str.len_bytes().cast(pl.Int64)
    number = ((lengths.cum_sum() - lengths) // BATCH_BYTES).to_numpy()
    first = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
    for start, end in zip(first, [*first[1:], len(texts)], strict=True):
        yield texts[start:end], ends[start:end]


class PackedPart:
    """What a packed shard holds of one split, compressed in memory. It counts and hashes what is
    added."""

    def __init__(self, dtype: str):
        self._dtype = dtype
        self._stream = compressor(dtype).compressobj()
        self.content = bytearray()
        """The compressed ids; one frame of zstd once the part is finished."""
        self._sha256 = hashlib.sha256()
        self._turn_tokens = 0
        self._sources: list[tuple[str | None, list[int]]] = []
        """The documents, tokens and bytes of what follows each other of one source."""

    def add(self, ids: np.ndarray, texts: pl.Series, ends: np.ndarray, source: str | None) -> None:
        """Append the ids of texts (int32) that come from one source; `ends` says whether a document
        ends with each of them."""
        if not self._sources or self._sources[-1][0] != source:
            self._sources.append((source, [0, 0, 0]))
        counts = self._sources[-1][1]
        counts[:] = map(add, counts, (int(ends.sum()), len(ids), text_bytes(texts)))
        self._turn_tokens += mark_count(texts)
        self._sha256.update(ids.data)
        self.content += self._stream.compress(ids.astype(self._dtype, copy=False).data)

    def finish(self) -> Part:
        """Compress what zstd still buffers, and describe the part."""
        self.content += self._stream.flush()
        runs = [
            SourceRun(source=source, documents=documents, tokens=tokens, bytes=size)
            for source, (documents, tokens, size) in self._sources
        ]
        sha256 = self._sha256.hexdigest()
        return Part(**sums(runs), turn_tokens=self._turn_tokens, sha256=sha256, sources=runs)
