"""Text as an array of code points, and the way from code points to ids by one table."""

from collections.abc import Sequence

import numpy as np

from tokenmill.errors import UserError
from tokenmill.tokenization.tokenizer import TextTokenizer, unknown_characters

CODE_POINTS = 0x110000
"""How many code points Unicode has."""


def code_points(texts: Sequence[str]) -> np.ndarray:
    """The code points of all texts in one row, uint32."""
    return np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<u4")


def id_table(tokenizer: TextTokenizer) -> np.ndarray:
    """The id of every code point, int32, -1 where the tokenizer has none."""
    table = np.full(CODE_POINTS, -1, dtype="<i4")
    for token, token_id in tokenizer.backend.get_vocab(with_added_tokens=False).items():
        if len(token) == 1:
            table[ord(token)] = token_id
    return table


def look_up(codes: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The ids of `codes`, int32.

    Raises:
        UserError: a code point has no id.
    """
    ids = table[codes]
    if ids.size and ids.min() < 0:
        raise UserError(unknown_characters("".join(map(chr, np.unique(codes[ids < 0])))))
    return ids
