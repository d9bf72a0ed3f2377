"""Which characters `tokenizers` takes for letters, numbers and white space.

Its tables of Unicode are older than those of most browsers, and browsers differ. So the page gets
these classes as ranges, and cuts every text into the same words.
"""

import functools

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

CLASSES = {"letters": r"\p{L}", "numbers": r"\p{N}", "spaces": r"\s"}
SURROGATES = range(0xD800, 0xE000)
"""Code points that are no characters."""
PLANES_END = 0x40000
"""Behind the first four planes nothing is assigned but tags, selectors of variants, and code points
for private use (Unicode 17, section 2.8)."""


@functools.cache
def character_classes() -> dict[str, str]:
    r"""The ranges of each class, as a character class of JavaScript's regular expressions has them:
    `\u{41}-\u{5a}…`."""
    codes = [code for code in range(PLANES_END) if code not in SURROGATES]
    every = "".join(map(chr, codes))
    return {
        name: "".join(
            f"\\u{{{codes[start]:x}}}-\\u{{{codes[end - 1]:x}}}"
            for start, end in _runs(every, pattern)
        )
        for name, pattern in CLASSES.items()
    }


def _runs(text: str, pattern: str) -> list[tuple[int, int]]:
    """The start and end of each run of characters that match."""
    others = Split(Regex(f"(?:{pattern})+"), "removed").pre_tokenize_str(text)
    ends = [0, *(bound for _, bounds in others for bound in bounds), len(text)]
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return [(start, end) for start, end in pairs if start < end]
