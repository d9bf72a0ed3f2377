"""Read the clean corpus: very long documents in segments, a sample, and the split into train and
val.

Byte-level BPE never merges across the boundaries that its pre-tokenizer finds (GPT-2's pattern:
words with the space before them, numbers, punctuation, white space). A text that is cut at such
boundaries has the same ids as the whole, so segments can be encoded in parallel.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from tokenmill.core.errors import UserError
from tokenmill.core.paths import VALIDATION_NAME
from tokenmill.executors.base import Executor
from tokenmill.formats import shards
from tokenmill.formats.chat_columns import text_bytes, texts_between
from tokenmill.formats.store import ShardFile
from tokenmill.formats.token_file import MAX_SOURCES, Split
from tokenmill.tokens.params import TokenizeParams

SEGMENT_CHARS = 1 << 17
"""The fewest characters of a segment. It is large enough to cost nothing and small enough to occupy
all cores."""

SAMPLE_UNIT_CHARS = 4096
"""Characters of a unit of sampling. A longer document is sampled as several units, so that one long
text is sampled over its whole length."""

PLACES = 256
"""The fewest row groups from which a large sample is taken, if a corpus has so many. They hold 4
GiB of text, which are read in a few seconds."""

PLACE_BYTES = 1 << 16
"""The fewest bytes that a small sample takes of a row group. In each row group it cuts one text."""

PROBES = 8
"""The most shards that `probe` reads."""

ENOUGH_DOCUMENTS = 20
"""The number of validation documents from which `auto` keeps documents whole without looking at
their lengths."""

SHORTEST_END = 16
"""The average number of characters in the last `val_fraction` of a document below which `auto` does
not cut documents."""

LONGEST_WORD = 64
"""The number of characters within which the end of a word is searched."""

# The boundaries below hold in every version of Unicode; other boundaries of the pre-tokenizer are
# not needed.
_SOLID = r"[^\s\u180e]"
_LETTER = r"[A-Za-z\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]"
_BOUNDARY = re.compile(
    # Where white space begins
    rf"(?<={_SOLID})(?=[ \t\r\n])"
    # Between a letter and a mark, for scripts without spaces
    rf"|(?<={_LETTER})(?=[.,;:!?。，、；：！？])"
)


def segments(text: str, size: int) -> Iterator[str]:
    """Yield segments of `size` characters or more (the last may be shorter) that join to `text`.

    A text without a boundary (a megabyte of one letter) stays whole.

    Example:
        >>> list(segments("To be, or not", size=4))
        ['To be', ', or', ' not']
    """
    start = 0
    while boundary := _BOUNDARY.search(text, start + size):
        yield text[start : boundary.start()]
        start = boundary.start()
    yield text[start:]


def segmented(texts: pl.Series) -> tuple[pl.Series, np.ndarray]:
    """The documents, of which those over SEGMENT_CHARS are cut into segments, and whether each text
    ends its document (bool)."""
    if (texts.str.len_chars() <= SEGMENT_CHARS).all():
        return texts, np.ones(len(texts), dtype=np.bool_)
    parts = [list(segments(text, SEGMENT_CHARS)) for text in texts.to_list()]
    ends = np.zeros(sum(map(len, parts)), dtype=np.bool_)
    ends[np.cumsum([len(part) for part in parts]) - 1] = True
    return pl.Series([segment for part in parts for segment in part], dtype=pl.String), ends


def sample(clean: Path, budget: int) -> Iterator[pl.Series]:
    """Yield batches of texts, at most `budget` UTF-8 bytes in all, evenly over the whole corpus.

    A corpus within the budget is yielded whole. Of a larger one only some row groups are read, each
    once, at even distances: as many as hold twice the budget, and at least PLACES if the budget has
    room for them. Each row group gives the same share of the budget, again at even distances. The
    same corpus and budget give the same texts. Each turn of a conversation is a text of its own.
    """
    total = shards.totals(clean).bytes
    groups = [group for shard in shards.shards(clean) for group in shards.row_groups(shard)]
    places = len(groups)
    if total > budget:
        enough = math.ceil(2 * budget * len(groups) / total)
        places = min(places, max(enough, min(PLACES, budget // PLACE_BYTES)))
    left = budget
    taken = [groups[place * len(groups) // places] for place in range(places)]
    for place, table in enumerate(shards.read_groups(taken)):
        texts = table["text"]
        if total <= budget:
            chosen = texts_between(texts)
        else:
            chosen = spread(texts, left // (places - place))
        left -= text_bytes(chosen)
        if len(chosen):
            yield chosen


def spread(texts: pl.Series, budget: int) -> pl.Series:
    """Texts at even distances, at most `budget` bytes. A long text consists of several units, each
    of at least SAMPLE_UNIT_CHARS."""
    rate = min(1.0, budget / max(1, text_bytes(texts)))
    chars = texts.str.len_chars().to_numpy().astype(np.int64)
    units = np.maximum(1, -(-chars // SAMPLE_UNIT_CHARS))
    ends = np.cumsum(units)
    # The first unit is always taken
    taken = np.flatnonzero(np.diff(np.floor(np.arange(-1, ends[-1]) * rate)))
    at, of = np.unique(np.searchsorted(ends, taken, side="right"), return_inverse=True)
    documents, first = texts.gather(at).to_list(), (ends - units)[at]
    chosen = [
        _unit(documents[which], number) if units[at[which]] > 1 else documents[which]
        for which, number in zip(of.tolist(), (taken - first[of]).tolist(), strict=True)
    ]
    return _take_bytes(texts_between(pl.Series(chosen, dtype=pl.String)), budget)


def _unit(text: str, number: int) -> str:
    """A unit of a long text: from one cut to the next."""
    return text[_cut_at(text, number) if number else 0 : _cut_at(text, number + 1)]


def _cut_at(text: str, number: int) -> int:
    """Where a unit begins: at the first boundary from `number` · SAMPLE_UNIT_CHARS on, or there
    itself, if no boundary comes before the next multiple."""
    start = number * SAMPLE_UNIT_CHARS
    boundary = _BOUNDARY.search(text, start, start + SAMPLE_UNIT_CHARS)
    return boundary.start() if boundary else start


def _take_bytes(texts: pl.Series, budget: int) -> pl.Series:
    """The first texts that fit into `budget` bytes; the text that crosses the budget is cut."""
    ends = texts.str.len_bytes().cum_sum().to_numpy()
    fitting = int(np.searchsorted(ends, budget, side="right"))
    kept = texts.head(fitting)
    rest = budget - (int(ends[fitting - 1]) if fitting else 0)
    if fitting < len(texts) and (last := texts[fitting].encode()[:rest].decode(errors="ignore")):
        return pl.concat([kept, pl.Series([last])])
    return kept


def probe(clean: Path, budget: int, executor: Executor) -> list[str]:
    """Texts at even distances in evenly spaced shards, at most `budget` UTF-8 bytes in all.

    Tasks read the shards. `sample` would bring row groups of 16 MiB to the driver of a cluster, and
    whole shards from a store.
    """
    found = shards.shards(clean)
    chosen = found[:: math.ceil(len(found) / PROBES)]
    texts = executor.map(partial(_probe_shard, budget=budget // len(chosen)), chosen)
    return [text for part in texts for text in part]


def _probe_shard(shard: ShardFile, *, budget: int) -> list[str]:
    texts = pl.concat([group["text"] for group in shards.documents(shard)])
    return spread(texts, budget).to_list()


SplitDocuments: TypeAlias = tuple[Split, pl.DataFrame]
"""A split, and consecutive documents of it, or parts of documents that are cut."""


def runs(names: pl.Series) -> Iterator[tuple[str, int]]:
    """Each name, and how many times it follows itself."""
    table = names.rle().struct.unnest()
    return zip(table["value"].to_list(), table["len"].to_list(), strict=True)


def by_source(documents: pl.DataFrame) -> Iterator[tuple[str, pl.Series]]:
    """Each source of some documents, and its texts that follow each other."""
    start = 0
    for source, length in runs(_source_of(documents["source"])):
        yield source, documents["text"][start : start + length]
        start += length


def _source_of(files: pl.Series) -> pl.Series:
    """The source to which each file belongs: its first folder, or itself if it lies in none."""
    return files.str.splitn("/", 2).struct.field("field_0")


SplitMethod: TypeAlias = Literal["names", "hash", "ends", "tail"]

SPLIT_IN_WORDS: dict[SplitMethod, str] = {
    "names": "files named as validation text",
    "hash": "whole documents, chosen by a hash of their text",
    "ends": "the end of every document, for whole ones would be too few or too many",
    "tail": "the last characters of the corpus",
}
"""For each method, the choice of validation text in words."""


@dataclass(frozen=True)
class SplitRule:
    """How one shard is split: what the texts of a split follow from, besides the shard itself."""

    method: SplitMethod
    val_fraction: float
    edge: int = 0
    """For `tail`: the number of the shard's characters before the cut; often none, or all."""


class Choice(NamedTuple):
    """How the corpus is split."""

    method: SplitMethod
    rules: list[tuple[ShardFile, SplitRule]]
    """Its shards in their order, and how each is split."""
    has_sources: bool
    """Whether it has at most MAX_SOURCES sources, which are then told apart."""


def choose_split(clean: Path, params: TokenizeParams, executor: Executor) -> Choice:
    """Choose how the corpus is split: as `params` asks, or with `auto` as the corpus allows. The
    tasks of `executor` read the names of files and the hashes of documents.

    `auto` means `names` if some files are named as validation text (VALIDATION_NAME) and others are
    not; else `hash` if it holds out about as much as `val_fraction` asks for; else `ends`, or
    `tail` where documents are too short for that.

    Raises:
        UserError: a split would be empty, as far as it shows without reading the text.
    """
    sources, named, val = set[str](), set[bool](), 0
    count = partial(_counts, val_fraction=params.val_fraction)
    found = shards.shards(clean)
    for sources_of, named_of, val_of in executor.map(count, found):
        if len(sources) <= MAX_SOURCES:
            sources |= sources_of
        named |= named_of
        val += val_of
    method = _method(clean, params, executor, is_named=len(named) > 1, val=val)
    rules = zip(found, _split_rules(found, method, params.val_fraction), strict=True)
    return Choice(method, list(rules), has_sources=len(sources) <= MAX_SOURCES)


def _counts(shard: ShardFile, *, val_fraction: float) -> tuple[set[str], set[bool], int]:
    """What the choice needs to know of a shard: its sources, of which one more than MAX_SOURCES are
    enough; whether it has files that are named as validation text (True), and others (False); how
    many documents `hash` would hold out."""
    sources, named, val = set[str](), set[bool](), 0
    for frame in shards.documents(shard, ("source", "id")):
        sources |= set(_source_of(frame["source"]).unique().to_list())
        named |= set(_is_named_val(frame).tolist())
        val += int(_is_hashed_val(frame, val_fraction).sum())
    return set(itertools.islice(sources, MAX_SOURCES + 1)), named, val


def _method(
    clean: Path, params: TokenizeParams, executor: Executor, *, is_named: bool, val: int
) -> SplitMethod:
    if params.split not in ("auto", "hash"):
        return params.split
    if params.split == "auto" and is_named:
        return "names"
    totals = shards.totals(clean)
    if params.split == "auto":
        if val >= ENOUGH_DOCUMENTS or _holds_out_enough(clean, params.val_fraction, executor):
            return "hash"
        has_ends = totals.chars * params.val_fraction >= totals.documents * SHORTEST_END
        return "ends" if has_ends else "tail"
    if val in (0, totals.documents):
        raise empty_split("hash", params.val_fraction, "training" if val else "validation")
    return "hash"


def empty_split(method: SplitMethod, val_fraction: float, name: str) -> UserError:
    """The error about a split, `training` or `validation`, that gets no text."""
    return UserError(
        f"tokenize.split ({method}) with tokenize.val_fraction ({val_fraction}) leaves no text for "
        f"{name}; change one of them, or add text."
    )


def _split_rules(
    found: Sequence[ShardFile], method: SplitMethod, val_fraction: float
) -> list[SplitRule]:
    """How each shard of the corpus is split by `method`, so that each can be split by itself.

    `hash` sends a document to val if its stored id, the XXH3 hash of its text, is below
    val_fraction · 2^64. `ends` cuts every document before the last val_fraction of its characters,
    between words where it can. `tail` cuts the corpus at character floor(characters · (1 -
    val_fraction)); a document across that character becomes one document in each split. For Tiny
    Shakespeare and 0.1 this is nanoGPT's split.
    """
    chars = [shards.read_footer(shard).chars for shard in found]
    edge = int(sum(chars) * (1 - val_fraction))
    if method in ("ends", "tail") and not 0 < edge < sum(chars):
        raise empty_split(method, val_fraction, "validation" if edge else "training")
    if method != "tail":
        return [SplitRule(method, val_fraction)] * len(chars)
    starts = itertools.accumulate(chars, initial=0)
    return [
        SplitRule(method, val_fraction, min(max(edge - start, 0), own))
        for start, own in zip(starts, chars, strict=False)
    ]


def split_documents(documents: Iterable[pl.DataFrame], rule: SplitRule) -> Iterator[SplitDocuments]:
    """Yield the documents of one shard (all columns), in order, split into train and val. No table
    is held while the next one is read, unless the caller holds what it got."""
    before = 0  # characters of the shard
    for frame in documents:
        chars = frame["text"].str.len_chars().cast(pl.Int64)
        edges = _edges(frame, chars, before, rule)
        before += int(chars.sum())
        text = pl.col("text").str
        yield "train", frame.with_columns(text.head(edges)).filter(pl.col("text") != "")
        yield "val", frame.with_columns(text.slice(edges)).filter(pl.col("text") != "")
        del frame


def _edges(frame: pl.DataFrame, chars: pl.Series, before: int, rule: SplitRule) -> pl.Series:
    """The number of characters of each document that go to train: none, all of them, or, of one
    that is cut, its beginning."""
    if rule.method == "tail":
        starts = before + chars.cum_sum() - chars
        return (rule.edge - starts).clip(lower_bound=0)
    if rule.method == "ends":
        ends = [_end_of_beginning(text, rule.val_fraction) for text in frame["text"]]
        return pl.Series(ends, dtype=pl.Int64)
    if rule.method == "names":
        is_val = _is_named_val(frame)
    else:
        is_val = _is_hashed_val(frame, rule.val_fraction)
    return chars * pl.Series(~is_val)


def _is_hashed_val(frame: pl.DataFrame, val_fraction: float) -> np.ndarray:
    return frame["id"].to_numpy() < np.uint64(val_fraction * 2**64)


def _is_named_val(frame: pl.DataFrame) -> np.ndarray:
    return frame["source"].str.contains(VALIDATION_NAME).to_numpy()


def _holds_out_enough(clean: Path, val_fraction: float, executor: Executor) -> bool:
    """Whether `hash` holds out between half of and twice the fraction of the characters that is
    asked for, and not all of them."""
    count = partial(_hashed_chars, val_fraction=val_fraction)
    held = sum(executor.map(count, shards.shards(clean)))
    chars = shards.totals(clean).chars
    return held < chars and 0.5 <= held / max(1, val_fraction * chars) <= 2


def _hashed_chars(shard: ShardFile, *, val_fraction: float) -> int:
    """The characters that `hash` would hold out."""
    held = 0
    for frame in shards.documents(shard, ("text", "id")):
        is_val = pl.Series(_is_hashed_val(frame, val_fraction))
        held += int(frame["text"].filter(is_val).str.len_chars().sum())
    return held


def _end_of_beginning(text: str, val_fraction: float) -> int:
    """Where the last `val_fraction` of a document begins: between two words where it can."""
    wanted = len(text) - int(len(text) * val_fraction)
    word = _BOUNDARY.search(text, wanted, wanted + LONGEST_WORD)
    return word.start() if word else wanted
