"""Where words begin in a row of ids, told from the bytes of two neighbouring tokens.

A word is letters, or digits, or other signs, as byte-level BPE cuts a text before it merges
(GPT-2's pattern, Radford et al. 2019), without the white space around it. Where words are counted,
signs are none. No token reaches over the boundary of two words. So a text from the beginning of a
word to the end of one has the same tokens wherever it stands, but for its first word, which has the
space before it in its token or not.
"""

import unicodedata
from dataclasses import dataclass

import numpy as np

from tokenmill.formats.tokenizer import TextTokenizer, token_bytes

NONE, LETTER, DIGIT, SIGN, REST = range(5)
"""Classes of a token's first or last character. NONE: white space, or none at all. REST: bytes that
end a character which an earlier token began."""

SIGNS = frozenset((0xC2, 0xE2, 0xF0))
"""First bytes of UTF-8 under which mostly signs lie (¡ … ¿, punctuation and symbols, emoji). A
token that ends with one counts as a sign; with any other first byte, as a letter."""


@dataclass(frozen=True)
class Words:
    """The classes of all tokens of a tokenizer, by id, and of -1, which stands for no token."""

    first: np.ndarray
    """The class of each token's first character; NONE if a word cannot go on with it; uint8."""
    last: np.ndarray
    """The class of each token's last character; uint8."""
    is_blank: np.ndarray
    """Whether the token is white space, or a special one; bool."""

    @classmethod
    def of(cls, tokenizer: TextTokenizer) -> "Words":
        """The classes of the tokens of this tokenizer."""
        found = [_classes(token) for token in [*token_bytes(tokenizer), b""]]
        first, last = np.array(found, dtype=np.uint8).reshape(-1, 2).T
        return cls(first, last, is_blank=last == NONE)

    def go_on(self, before: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Whether each of `tokens` continues the word of the token before it; bool."""
        first = self.first[tokens]
        return (first == REST) | ((first != NONE) & (first == self.last[before]))

    def starts(self, tokens: np.ndarray, before: int | None = None) -> np.ndarray:
        """Whether a word begins with each of these tokens; bool.

        Args:
            tokens: ids that follow each other.
            before: the id in front of them; None at the beginning of a text.
        """
        goes_on = np.zeros(len(tokens), dtype=np.bool_)
        goes_on[1:] = self.go_on(tokens[:-1], tokens[1:])
        if before is not None:
            goes_on[:1] = self.go_on(np.array([before]), tokens[:1])
        return ~goes_on & ~self.is_blank[tokens]

    def bounds(
        self, tokens: np.ndarray, before: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first token of each word, and the one behind its last; int64 each.

        Args:
            tokens: as for `starts`.
            before: as for `starts`.
        """
        starts = np.flatnonzero(self.starts(tokens, before))
        stops = np.append(np.flatnonzero(~self.go_on(tokens[:-1], tokens[1:])) + 1, len(tokens))
        return starts, stops[np.searchsorted(stops, starts, side="right")]

    def counted(self, tokens: np.ndarray) -> np.ndarray:
        """Whether the word that begins with each of these tokens is letters or digits; bool."""
        return self.last[tokens] != SIGN


def _classes(token: bytes) -> tuple[int, int]:
    """The classes of a token's first and last character."""
    whole = token.lstrip(bytes(range(0x80, 0xC0)))
    text = whole.decode("utf-8", "ignore")
    cut = whole[len(text.encode()) :]
    last = NONE
    if cut:
        last = SIGN if cut[0] in SIGNS else LETTER
    elif text:
        last = _class(text[-1])
    elif token:
        last = LETTER
    if len(whole) < len(token):
        return REST, last
    return (_class(text[0]) if text else last), last


def _class(char: str) -> int:
    if char.isspace():
        return NONE
    return {"L": LETTER, "N": DIGIT}.get(unicodedata.category(char)[0], SIGN)
