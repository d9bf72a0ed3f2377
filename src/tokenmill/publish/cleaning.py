"""How the page writes what somebody types: by the rules of `tokenmill.normalize`.

`page/cleaning.js` follows the same steps; patterns and spellings come from here.
"""

from collections.abc import Iterable
from typing import Any

from tokenmill import normalize
from tokenmill.core.params import Mode


def cleaning_rules(mode: Mode) -> dict[str, Any] | None:
    """What `page/cleaning.js` needs to write a text as `clean` does in this mode; None if it stays
    as it is.

    Unicode is that of the browser, which may know newer characters.
    """
    if mode == "none":
        return None
    return {
        "breaks": _in_javascript(normalize.BREAKS),
        "spaces": _in_javascript(normalize.SPACES),
        "invisible": _in_javascript(normalize.INVISIBLE),
        "joiners": _pairs_in_javascript(normalize.WITHOUT_JOINERS),
        "folds": {} if mode == "lenient" else normalize.fold_table(mode),
        "marks": _pairs_in_javascript(normalize.UNWANTED_MARKS[mode]),
        "foreign": _in_javascript(normalize.OUTSIDE[mode]),
    }


def _pairs_in_javascript(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Patterns, and what is left of their matches."""
    return [(_in_javascript(pattern), left) for pattern, left in pairs]


def _in_javascript(pattern: str) -> str:
    """A pattern of Rust's `regex` for the flag `v` of JavaScript, which has the same sets."""
    return pattern.replace(r"\x{", r"\u{")
