"""The corpus of the default run, and its questions whatever stands around them."""

import itertools
import re

from tokenmill.sample.subjects import FILES, questions

COUNT = 8_400
"""What params.yaml says in the repository."""

ALL = [kind for name in FILES for kinds in questions(name).values() for kind in kinds]
FACTUAL = [kind for kind in ALL if kind.followups]

SENTENCE_ENDS = re.compile(r"(?<=[.?!]) +")


def plain(text: str) -> str:
    """A question without capitals, final marks and blemishes."""
    words = "".join(
        " " if char.isspace() else char for char in text if char.isprintable() or char.isspace()
    )
    return re.sub(r"\s+|[“”🙂]", " ", words).lower().strip(" .?!")


def as_asked(turn: str) -> set[str]:
    """Every sentence of a user's turn, and every two in a row, plain."""
    sentences = SENTENCE_ENDS.split(" ".join(turn.split()))
    return {plain(text) for text in (*sentences, *map(" ".join, itertools.pairwise(sentences)))}
