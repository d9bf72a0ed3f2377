"""Lines that belong to a web page and not to its text, by the phrases of C4 (Raffel et al. 2020, section 2.2).

A line goes that holds `lorem ipsum`, `javascript`, or a phrase of cookie notices and terms of use, in any case. C4
drops the whole page for `lorem ipsum` and for a curly bracket; here the former costs its line, and code may stay.
"""

import polars as pl

_PHRASES = (
    "lorem ipsum",
    "javascript",
    "terms of use",
    "terms of service",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)
_PHRASE = rf"(?i:{'|'.join(_PHRASES)})"


def without_boilerplate(texts: pl.Series) -> pl.Series:
    r"""The texts of a batch (clean, String, no nulls) without such lines; clean again, empty where nothing is left.

    Example:
        >>> without_boilerplate(pl.Series(["A cat.\n\nThis site uses cookies.\n\nA dog."]))[0]
        'A cat.\n\nA dog.'
    """
    rows = texts.str.contains(_PHRASE).arg_true()
    if not len(rows):
        return texts
    left = texts.gather(rows).str.replace_all(rf"(?m)^.*{_PHRASE}.*\n?", "")
    return texts.clone().scatter(rows, left.str.replace_all(r"\n{3,}", "\n\n").str.strip_chars(" \t\n"))
