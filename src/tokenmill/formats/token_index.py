"""The index of the training text, by which any phrase is found in it: sparse suffix arrays.

A suffix array lists the places of a text in the order of what follows them, so that all places of a
phrase stand side by side, and a binary search finds them (Manber and Myers 1993, section 2). Here
the text is the row of ids in data/tokens/train.bin, ordered by their numbers, and only the places
are listed at which a word begins (Kärkkäinen and Ukkonen 1996). A large text has several arrays,
each of its own part, so that making one takes bounded memory.

Beside the arrays there are the first token of each document, and the source of each. The metadata
holds no clock, host or path: the same tokens give the same files.
"""

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from tokenmill.core.errors import UserError
from tokenmill.core.params import Count, Positive, Section
from tokenmill.core.paths import damaged
from tokenmill.formats.records import read_record
from tokenmill.formats.token_file import METADATA_FILE, Sha256, read_metadata
from tokenmill.formats.token_row import check_numbers, map_numbers, open_tokens, read_blocks

INDEX_FORMAT: Literal[1] = 1
"""The version of the format. It is raised when the same tokens would give other files. Readers
refuse every other version."""

PLACE_DTYPE = "<i4"
"""The type of the places in a suffix array, counted from the first token of its part."""

ORDERED = 1000
"""The places of a part are in the order of at least so many tokens that follow them, also beyond
its end. So phrases of up to so many tokens are found wherever they stand."""

DOCUMENTS_FILE = "documents.bin"

DOCUMENT_DTYPE = "<i8"
"""The type of the first tokens of documents."""


class SuffixArray(Section):
    """The description of the suffix array of one part of the text."""

    name: Annotated[str, Field(pattern=r"^part-[0-9]{1,12}\.sa$")]
    start: Count
    """The first token of its part."""
    tokens: Annotated[int, Field(ge=1, le=2**31 - 1)]
    """The number of tokens in its part."""
    places: Count
    """The number of places that it lists."""
    sha256: Sha256


class Source(Section):
    """Documents of the training text that follow each other and come from one file."""

    first_document: Count
    name: str
    """The file, relative to `data.raw`."""


class IndexMetadata(Section):
    """The content of metadata.json of an index."""

    format_version: Literal[1]
    tokens_sha256: Sha256
    """The hash of the split `train` in the metadata of the tokens."""
    tokens: Positive
    documents: Positive
    documents_sha256: Sha256
    sources: Annotated[list[Source], Field(min_length=1)]
    parts: list[SuffixArray]
    """Empty if the text is longer than `trace.max_tokens`."""

    @model_validator(mode="after")
    def _check_order(self) -> "IndexMetadata":
        start = 0
        for part in self.parts:
            if part.start != start:
                raise ValueError(f"{part.name} does not begin where the part before it ends")
            start += part.tokens
        if self.parts and start != self.tokens:
            raise ValueError("the parts are not the whole text")
        firsts = [source.first_document for source in self.sources]
        if firsts[0] != 0 or firsts[-1] >= self.documents or sorted(set(firsts)) != firsts:
            raise ValueError("the sources are not in the order of their documents")
        return self


@dataclass(frozen=True)
class TokenIndex:
    """An index that was read, with the text that it belongs to."""

    metadata: IndexMetadata
    tokens: np.ndarray
    """The training text; (tokens,) int32."""
    places: Sequence[np.ndarray]
    """The suffix array of each part, places counted from its first token; (places,) int32 each."""
    documents: np.ndarray
    """The first token of each document; (documents,) int64."""

    def places_at(self, parts: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Places of the training text, by their positions in the suffix arrays; (places,) int64.

        Args:
            parts: the numbers of the arrays, ascending.
            order: a position in each.
        """
        edges = np.searchsorted(parts, np.arange(len(self.places) + 1)).tolist()
        orders = [order[first:stop] for first, stop in itertools.pairwise(edges)]
        found = [
            places[some] + np.int64(part.start)
            for places, part, some in zip(self.places, self.metadata.parts, orders, strict=True)
        ]
        return np.concatenate(found)

    def document_of(self, places: np.ndarray) -> np.ndarray:
        """The numbers of the documents in which these tokens lie; int64, the shape of `places`."""
        return np.searchsorted(self.documents, places, side="right") - 1

    def source_of(self, document: int) -> str:
        """The file from which a document comes, relative to `data.raw`."""
        sources = self.metadata.sources
        return sources[bisect.bisect(sources, document, key=attrgetter("first_document")) - 1].name


def read_index_metadata(folder: Path) -> IndexMetadata:
    """Read metadata.json of an index."""
    if not (folder / METADATA_FILE).exists():
        raise UserError(
            f"{folder} is missing; `dvc repro index` makes it, and `dvc pull index` fetches it."
        )
    return read_record(folder / METADATA_FILE, IndexMetadata)


def open_index(folder: Path, tokens: Path) -> TokenIndex:
    """Map an index and the training text, read-only. Both are read once and compared with their
    metadata.

    Args:
        folder: what the stage `index` wrote, `data/index`.
        tokens: what `unpack` wrote, `data/tokens`.

    Raises:
        UserError: a file is missing or damaged, the two do not belong together, or the text was too
            long for `trace.max_tokens`.
    """
    metadata = read_index_metadata(folder)
    if metadata.tokens_sha256 != read_metadata(tokens).train.sha256:
        raise UserError(f"{folder} belongs to other tokens; `dvc repro index` makes it again.")
    if not metadata.parts:
        raise UserError(
            f"the training text has {metadata.tokens:,} tokens, more than trace.max_tokens, so "
            "there is no index of it; raise trace.max_tokens and run `dvc repro index`."
        )
    return TokenIndex(
        metadata=metadata,
        tokens=np.asarray(open_tokens(tokens, "train")[:]),
        places=[
            _open_array(folder / part.name, PLACE_DTYPE, part.places, part.sha256, part.tokens)
            for part in metadata.parts
        ],
        documents=_open_array(
            folder / DOCUMENTS_FILE,
            DOCUMENT_DTYPE,
            metadata.documents,
            metadata.documents_sha256,
            metadata.tokens,
        ),
    )


def _open_array(path: Path, dtype: str, length: int, sha256: str, bound: int) -> np.ndarray:
    """Map a file of numbers from 0 to `bound` - 1, after comparing it with its description."""
    if not path.is_file():
        raise damaged(path, "is missing")
    if not length:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    numbers = map_numbers(path, dtype, length)
    check_numbers(path, read_blocks(numbers), sha256, bound)
    return np.asarray(numbers)
