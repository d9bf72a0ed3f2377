"""Cut a long text where the tokenizer would cut it anyway, so that no document is too long for the memory.

Byte-level BPE never merges across the edges that its pre-tokenizer finds (the pattern of GPT-2: words with
the space before them, numbers, punctuation, white space). So a text may be encoded in segments, in parallel,
with the ids of the whole, if every cut lies on such an edge. The edges used here hold in any version of
Unicode; a text without one (a megabyte of one letter) stays whole.
"""

import re
from collections.abc import Iterable, Iterator

SEGMENT_CHARS = 1 << 17
"""Characters after which the next edge is looked for: large enough to cost nothing, small enough for all cores."""

_SOLID = r"[^\s\u180e]"
_LETTER = r"[A-Za-z\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]"
_EDGE = re.compile(
    rf"(?<={_SOLID})(?=[ \t\r\n])"  # where white space begins
    rf"|(?<={_LETTER})(?=[.,;:!?。，、；：！？])"  # between a letter and a mark, for scripts without spaces
)


def cut(text: str, size: int = SEGMENT_CHARS) -> Iterator[str]:
    """Yield pieces of at least `size` characters (the last one may be shorter) that join to `text`.

    Example:
        >>> list(cut("To be, or not", size=4))
        ['To be', ', or', ' not']
    """
    return cut_stream((text,), size)


def cut_stream(chunks: Iterable[str], size: int) -> Iterator[str]:
    """The pieces of a text that comes in chunks: the same, wherever these end."""
    rest = ""
    for chunk in chunks:
        start, searched = 0, max(size, len(rest))
        rest += chunk
        while edge := _EDGE.search(rest, searched):
            yield rest[start : edge.start()]
            start = edge.start()
            searched = start + size
        rest = rest[start:]
    yield rest
