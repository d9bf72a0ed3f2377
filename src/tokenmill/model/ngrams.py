"""Which row of a table stands for a pair or a triple of token ids.

This module imports PyTorch only. `tokenmill export` copies it into the folder of an exported model,
whose code for `transformers` reads it there.

Axes: B texts, T positions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

ROWS = 2**14
"""The number of rows in each table."""
RANGE = 2**31
MULTIPLIER = 1_327_217_885
"""The odd number nearest to RANGE divided by the golden ratio (Fibonacci hashing: Knuth 1973,
section 6.4). A product of it and a number below RANGE + 2^24 does not leave int64."""


def rows_of_ngrams(
    ids_BT: Tensor, before_B2: Tensor, *, vocab_size: int, starts_BT: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The rows of the pair and of the triple that end at each position, (B, T) int64 each.

    Args:
        ids_BT: the ids of the texts.
        before_B2: the two ids before them; `vocab_size` stands for no id.
        vocab_size: the number of different ids.
        starts_BT: where the text of each position starts in its sequence, which no pair or triple
            crosses. Without it each row of `ids_BT` is of one text.
    """
    last_BT = ids_BT.long()
    all_ids = torch.cat([before_B2, last_BT], dim=1)
    first_BT, second_BT = all_ids[:, :-2], all_ids[:, 1:-1]
    if starts_BT is not None:
        place_BT = torch.arange(ids_BT.shape[1], device=ids_BT.device) - starts_BT
        first_BT = first_BT.masked_fill(place_BT < 2, vocab_size)
        second_BT = second_BT.masked_fill(place_BT < 1, vocab_size)
    return (
        row_of((second_BT, last_BT), vocab_size=vocab_size),
        row_of((first_BT, second_BT, last_BT), vocab_size=vocab_size),
    )


def row_of(ngram: Sequence[Tensor], *, vocab_size: int) -> Tensor:
    """The row of each n-gram, in the shape of the tensors of ids from which it is made.

    All ids but the last one may be `vocab_size`, which stands for no id. Where the table has a row
    for every n-gram, its number is the row. Otherwise the row is a hash, and n-grams share rows.

    Args:
        ngram: the first ids of the n-grams, their second ids, and so on; int64 tensors of one
            shape.
        vocab_size: the number of different ids.
    """
    *earlier, last = ngram
    number = torch.zeros_like(last)
    if (vocab_size + 1) ** len(earlier) * vocab_size <= ROWS:
        for ids in earlier:
            number = number * (vocab_size + 1) + ids
        return number * vocab_size + last
    for ids in ngram:
        number = (number + ids) * MULTIPLIER % RANGE
    # The high bits depend on all bits of the ids, the low ones on low bits only
    return number // (RANGE // ROWS)
