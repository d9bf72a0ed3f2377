"""Token files: one .bin of token ids per split, described by a metadata.json beside them.

Packed, the tokens are in shards, one for each shard of clean text, which can be made and unpacked
in any order. A packed shard is a file of two frames of zstd: its ids of `train`, then those of
`val`. The .bin of a split is what its shards hold of it, one after the other, as int32.

The metadata holds no clock, host or path: the same text and parameters give the same file. Readers
refuse a file that does not match it.
"""

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from tokenmill.core import files
from tokenmill.core.errors import UserError
from tokenmill.core.params import Count, Positive, Section
from tokenmill.formats.records import read_record

METADATA_FILE = "metadata.json"

TOKEN_FORMAT: Literal[4] = 4
"""The version of the format. It is raised when the same text and tokenizer would give other ids or
files. Readers refuse every other version."""

DTYPE = "<i4"
"""The type of the ids: int32, little-endian on every machine. It is large enough for any
vocabulary, and most readers expect it."""

NARROW_DTYPE = "<u2"
"""The type of packed ids, if the vocabulary has no larger ones than it can hold."""

COMPRESSED_SHARE = {NARROW_DTYPE: 0.4, DTYPE: 0.5}
"""About the most bytes that a byte of a .bin takes in compressed blocks, by the type of packed
ids."""

TokenizerType: TypeAlias = Literal["bpe", "char"]
Split: TypeAlias = Literal["train", "val"]
SPLITS: tuple[Split, ...] = ("train", "val")

MAX_SOURCES = 1000
"""The most sources that are told apart in a text. Where it has more, as a folder of a million files
has, none are, so that metadata.json stays small."""

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class SourceRun(Section):
    """Documents of one split that follow each other and come from one source."""

    source: str | None
    """The folder in `data.raw`, or the file that lies in it in no folder, or the one file that
    `data.raw` is. null: the text has more than MAX_SOURCES of them, and none are told apart."""
    documents: Positive
    tokens: Positive
    """The number of tokens, special tokens included."""
    bytes: Count
    """UTF-8 bytes of the text."""


def sums(counted: "Sequence[SourceRun | PartTotals]") -> dict[str, int]:
    """Documents, tokens and bytes of all of these together."""
    names = ("documents", "tokens", "bytes")
    return {name: sum(getattr(one, name) for one in counted) for name in names}


class PartTotals(Section):
    """How much of one split there is, and its hash."""

    tokens: Count
    """The number of tokens, special tokens included."""
    documents: Count
    """The number of documents. Each ends with one end-of-text token."""
    turn_tokens: Count
    """The number of special tokens at the boundaries of turns in conversations."""
    bytes: Count
    """UTF-8 bytes of the text, by which the loss is divided for bits per byte. Special tokens add
    to the loss but not to the bytes, because a boundary is no text: how a document spells it is
    this project's own affair."""
    sha256: Sha256
    """The SHA-256 of its ids, as they are in the .bin."""


class Part(PartTotals):
    """What a packed shard holds of one split."""

    sources: list[SourceRun]
    """Where its documents come from, in their order. Neighbours differ in their source."""

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        for name, total in sums(self.sources).items():
            if total != getattr(self, name):
                raise ValueError(f"the {name} of its sources are not those of the part")
        if any(one.source == other.source for one, other in itertools.pairwise(self.sources)):
            raise ValueError("two of its sources that follow each other are the same")
        return self


class HashedFile(Section):
    """What a file is known by."""

    size: Positive
    """The size of the file in bytes."""
    sha256: Sha256
    """The SHA-256 of the file."""


class PackedShard(HashedFile):
    """The description of one packed shard."""

    name: Annotated[str, Field(pattern=r"^part-[0-9]{1,12}\.zst$")]
    """The name of its file, which is that of the shard of clean text but for the ending."""
    train: Part
    val: Part

    def part(self, split: Split) -> Part:
        """What it holds of `train` or `val`."""
        return self.train if split == "train" else self.val


class SplitMetadata(PartTotals):
    """The description of one .bin: the sums over its shards."""

    tokens: Positive
    documents: Positive
    sha256: Sha256
    """The SHA-256 of the SHA-256s of its parts, in their order. So a split is known by one hash,
    and its parts can be hashed at the same time."""

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Self:
        """The description of the .bin that these parts are."""
        turn_tokens = sum(part.turn_tokens for part in parts)
        digests = b"".join(bytes.fromhex(part.sha256) for part in parts)
        sha256 = hashlib.sha256(digests).hexdigest()
        return cls(**sums(parts), turn_tokens=turn_tokens, sha256=sha256)

    @property
    def text_tokens(self) -> int:
        """The number of tokens without special ones."""
        return self.tokens - self.documents - self.turn_tokens

    @property
    def file_bytes(self) -> int:
        """The size of the .bin in bytes."""
        return self.tokens * np.dtype(DTYPE).itemsize


class TokenMetadata(Section):
    """The content of metadata.json: both .bin files, their shards, and the tokenizer that made
    them."""

    format_version: Literal[4]
    dtype: Literal["<i4"]
    train: SplitMetadata
    val: SplitMetadata
    shards: Annotated[list[PackedShard], Field(min_length=1)]
    vocab_size: Positive
    eot_id: Annotated[int, Field(ge=0)]
    tokenizer_type: TokenizerType
    tokenizer_sha256: Sha256

    @classmethod
    def of(cls, shards: list[PackedShard], **tokenizer: Any) -> Self:
        """The description of these shards; `tokenizer` are the last four fields."""
        splits = {
            split: SplitMetadata.of([shard.part(split) for shard in shards]) for split in SPLITS
        }
        return cls(format_version=TOKEN_FORMAT, dtype=DTYPE, shards=shards, **splits, **tokenizer)

    @model_validator(mode="after")
    def _check_sums(self) -> Self:
        for split in SPLITS:
            if self.split(split) != SplitMetadata.of([one.part(split) for one in self.shards]):
                raise ValueError(f"{split} is not the sum of the shards")
        return self

    def split(self, name: Split) -> SplitMetadata:
        """The metadata of `train` or `val`."""
        return self.train if name == "train" else self.val

    def sources(self, split: Split) -> list[SourceRun]:
        """Where the documents of a split come from, in the order of its .bin. Neighbours differ in
        their source."""
        found = (run for shard in self.shards for run in shard.part(split).sources)
        groups = itertools.groupby(found, lambda run: run.source)
        return [SourceRun(source=source, **sums(list(runs))) for source, runs in groups]

    def check_tokenizer(self, sha256: str, source: str) -> None:
        """Refuse a tokenizer other than the one that made the tokens. Error messages call it
        `source`."""
        if sha256 != self.tokenizer_sha256:
            raise UserError(
                f"the tokens were made with another tokenizer than {source}; "
                "`dvc repro tokenize unpack` makes them again."
            )


def too_short(train_tokens: int, context_length: int) -> str | None:
    """An error message if there are too few tokens to train on for one sequence of this length;
    otherwise None."""
    if train_tokens > context_length:
        return None
    return (
        f"model.context_length ({context_length}) does not fit the train split, which has "
        f"{train_tokens:,} tokens; take a shorter context, more text, or another "
        "tokenize.val_fraction."
    )


class PlacementParams(Section, extra="ignore"):
    """In which form the tokens are unpacked, and where they are kept."""

    token_placement: Literal["auto", "device", "memory", "mmap", "compressed"]
    """Where the training tokens are kept: in the device's memory, in main memory, or in a memory
    map of their file. `auto`: the first of these with enough room. `compressed`: for tokens that do
    not fit the disk, `unpack` writes them in compressed blocks, about a third of the .bin (beyond
    65,536 entries about two fifths), and training decompresses the blocks that a batch needs. The
    sequences are the same. A change from or to `compressed` needs `dvc repro -sf unpack`, unless
    `unpack` runs anyway. The next `dvc repro` runs again what reads the tokens; `train` finds its
    last checkpoint and repeats no step."""

    @property
    def is_compressed(self) -> bool:
        """Whether `unpack` writes compressed blocks."""
        return self.token_placement == "compressed"  # noqa: S105 (no password)


def other_form(placement: str, *, compressed: bool) -> str | None:
    """An error message if `runtime.token_placement` needs the training tokens in another form than
    that in which they are on the disk, in compressed blocks or not; otherwise None."""
    on_disk = "compressed" if compressed else "mmap"
    if placement in ("auto", "device", "memory", on_disk):
        return None
    found = "in compressed blocks" if compressed else "uncompressed"
    return (
        f"runtime.token_placement is {placement}, but `unpack` wrote the training tokens {found}; "
        f"type `dvc repro -sf unpack`, or set it to {on_disk}."
    )


def token_file(folder: Path, split: Split) -> Path:
    """The path of a split's tokens."""
    return folder / f"{split}.bin"


def compressed_file(folder: Path) -> Path:
    """The path of the training tokens if they are in compressed blocks, in place of their .bin."""
    return folder / "train.zst"


def packed_dtype(vocab_size: int) -> str:
    """The type of packed ids: uint16 where that is large enough, else as in the .bin."""
    return NARROW_DTYPE if vocab_size <= 1 << 16 else DTYPE


def unpacked_bytes(train: int, val: int, vocab_size: int, *, compressed: bool) -> int:
    """About the bytes that `unpack` writes, if the .bin of the splits have `train` and `val`."""
    share = COMPRESSED_SHARE[packed_dtype(vocab_size)] if compressed else 1
    return val + int(share * train)


def write_metadata(folder: Path, metadata: Section) -> None:
    """Write metadata.json; call it last, so that a folder with a metadata.json is complete."""
    files.write_json(folder / METADATA_FILE, metadata.model_dump())


def read_metadata(folder: Path) -> TokenMetadata:
    """Read metadata.json."""
    return read_record(folder / METADATA_FILE, TokenMetadata)
