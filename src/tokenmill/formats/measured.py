"""The part of a split on which losses are measured: whole documents that the text alone decides.

So models with different tokenizers and contexts are measured on the same bytes of the same text.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenmill.formats.token_file import DTYPE, Split, read_metadata
from tokenmill.formats.token_row import document_ends, open_tokens


@dataclass(frozen=True)
class MeasuredText:
    """Documents of a split on which a loss is measured."""

    ids: np.ndarray
    """End-of-text, then the documents, each followed by end-of-text; (tokens + 1,) int32. All but
    the first id are targets."""
    bytes: int
    """UTF-8 bytes of the documents."""
    numbers: np.ndarray
    """The numbers of the documents in the split, ascending; (documents,) int64."""


def measured_text(
    tokens: Path, split: Split, tokenizer_file: Path, *, at_most: int | None
) -> MeasuredText:
    """The documents of a split on which losses are measured: all, or evenly spread ones.

    Which ones follows from the number of documents and their bytes, not from the tokenizer.

    Args:
        tokens: what `unpack` wrote, `data/tokens`.
        tokenizer_file: the tokenizer of these tokens. It is read only where documents are left out.
        at_most: UTF-8 bytes of the documents, approximately; None for all documents.
    """
    metadata = read_metadata(tokens)
    whole = metadata.split(split)
    ids = open_tokens(tokens, split)[:]
    first = np.array([metadata.eot_id], DTYPE)
    if at_most is None or whole.bytes <= at_most:
        everything = np.arange(whole.documents, dtype=np.int64)
        return MeasuredText(np.concatenate([first, ids]), whole.bytes, everything)
    # This needs `tokenizers`, which a machine that measures a GPU may lack
    from tokenmill.formats.tokenizer import read_tokenizer, token_lengths  # noqa: PLC0415

    tokenizer = read_tokenizer(tokenizer_file)
    metadata.check_tokenizer(tokenizer.sha256, str(tokenizer_file))
    ends = document_ends(ids, metadata.eot_id)
    chosen = evenly_spread(len(ends), math.ceil(len(ends) * at_most / whole.bytes))
    begins = np.concatenate([[0], ends])
    some = np.concatenate([ids[begins[number] : ends[number]] for number in chosen])
    size = int(token_lengths(tokenizer)[some].sum())
    return MeasuredText(np.concatenate([first, some]), size, chosen)


def evenly_spread(count: int, at_most: int) -> np.ndarray:
    """At most `at_most` of the numbers 0 to `count` - 1, evenly spread and always the same."""
    taken = min(count, at_most)
    return np.arange(taken, dtype=np.int64) * count // taken
