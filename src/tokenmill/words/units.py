"""Numbers and foreign text as people read them: `1.08 GB`, `12 min`, nothing invisible."""

import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from shlex import quote
from typing import Any
from urllib.parse import unquote

PREFIXES = ("", "k", "M", "G", "T")

PASSWORD = re.compile(
    r"(\w:/{1,2}[^\s/:]*:|\bhttps?:/{1,2}(?=[^\s/:@]+@))(?:[^\s/]+|(?!\d+/)[^\s@]+)@"
)
"""Matches the password in an address, and a name that stands alone before a web host, because it
may be an access token. The first group is the text before it. A path has one slash of two; what is
a number up to a slash is a port."""

QUERY = re.compile(r"([?&;#])([^\s?&;#=]{1,100})=([^\s&;#'\"<>]+)")
"""A parameter in the query or the fragment of an address: its sign, its name, its value."""

SECRET = re.compile(
    r"(?i).*(token|secret|passw|pwd|signature|credential|authorization|api[-_]?key|access[-_]?key)"
    r".*|key|sig|auth|jwt|code|policy|key-pair-id|x-(amz|goog)-.*"
)
"""Names of parameters that open something: of signed addresses (S3, Google, Azure, CloudFront), and
those in which services take tokens."""

INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of control and format characters, lone surrogates, and line and paragraph
separators."""

JOINERS = "\u200c\u200d"
"""Characters between letters, and between signs that are one emoji: spelling, though invisible."""


def si(value: float, unit: str = "", space: str = " ") -> str:
    """A number with the prefix that leaves one to three digits before the point.

    Args:
        value: any number; from 1e15 on the digits before the point become more.
        unit: follows the prefix.
        space: stands between the digits and the prefix.

    Example:
        >>> si(1_360_000, "B"), si(20_000, space=""), si(0.5)
        ('1.36 MB', '20k', '0.5')
    """
    power = 0
    while abs(value) >= 999.5 and power < len(PREFIXES) - 1:
        value = value / 1000
        power = power + 1
    digits = f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"
    suffix = PREFIXES[power] + unit
    return f"{digits}{space}{suffix}" if suffix else digits


def size(count: float, space: str = " ") -> str:
    """Bytes in decimal units.

    Example:
        >>> size(999), size(1_360_000), size(999_999)
        ('999 B', '1.36 MB', '1 MB')
    """
    return si(count, "B", space)


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    Args:
        count: any number of them.
        noun: for one of them.
        plural: for all others; `noun` with an s if it is not given.

    Example:
        >>> counted(1, "file"), counted(11_000, "file"), counted(0, "hash", "hashes")
        ('1 file', '11,000 files', '0 hashes')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them: `0.25 s`, `48 s`, `1.7 min`, `12 min`, `3.2 h`,
    `15 years`."""
    if 0 < seconds < 0.95:
        return f"{seconds:.2g} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 5970:
        return f"{seconds / 60:.2g} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 10_000 else f"{hours / (24 * 365):.3g} years"


def money(amount: float, currency: str | None) -> str:
    """An amount of money; only nothing is written as 0.00. The currency may be unknown.

    Example:
        >>> money(1234.5, "EUR"), money(0.0038, "EUR"), money(0, "EUR")
        ('1,234.50 EUR', '<0.01 EUR', '0.00 EUR')
    """
    number = "<0.01" if 0 < amount < 0.005 else f"{amount:,.2f}"
    return f"{number} {currency or ''}".rstrip()


def fixed(value: float) -> str:
    """A loss or bits per byte with four decimals, rounded from the six digits that a metric has. So
    it reads the same where all its digits are known.

    Example:
        >>> fixed(1.7716502), fixed(12.34567)
        ('1.7716', '12.3457')
    """
    return f"{float(f'{value:.6g}'):,.4f}"


def perplexity(value: float) -> str:
    """A perplexity with two decimals, or with three digits from a million on.

    Example:
        >>> perplexity(1234.5), perplexity(1.9158e61)
        ('1,234.50', '1.92e+61')
    """
    return f"{value:,.2f}" if value < 1e6 else f"{value:.2e}"


def masked(text: str) -> str:
    """Replace what opens something in addresses by dots: passwords, a name that stands alone before
    a web host, tokens and signatures in a query.

    Example:
        >>> masked("s3://key:secret@bucket and ssh://me@host and http://host/x?a=1&token=2")
        's3://key:•••@bucket and ssh://me@host and http://host/x?a=1&token=•••'
    """
    return QUERY.sub(_without_secret, PASSWORD.sub(r"\1•••@", text))


def _without_secret(parameter: re.Match[str]) -> str:
    is_secret = SECRET.fullmatch(unquote(parameter[2]))
    return f"{parameter[1]}{parameter[2]}=•••" if is_secret else parameter[0]


def message(text: str) -> str:
    """Text that this program prints about addresses, files and errors: each character visible, each
    password hidden.

    Example:
        >>> message("s3://key:secret@bucket\x07")
        's3://key:•••@bucket␇'
    """
    return visible(masked(text))


def override(name: str, value: Any) -> str:
    r"""The option `-S NAME=VALUE` of `dvc exp run`, quoted for the shell and for Hydra's grammar,
    with which DVC parses it.

    Example:
        >>> override("data.raw", "/my texts")
        '-S \'data.raw="/my texts"\''
    """
    return f"-S {quote(f'{name}={_in_hydra(value)}')}"


def _in_hydra(value: Any) -> str:
    """A value of params.yaml in Hydra's grammar, which has no quoted names."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_in_hydra(each)}' for name, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_in_hydra, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    if re.fullmatch(r"[A-Za-z0-9_.+-]*/[A-Za-z0-9_./+-]*", value):
        return value
    escaped = re.sub(r'(\\*)("|$)', r"\1\1\2", value).replace('"', '\\"')
    return f'"{escaped}"'


def visible(text: str) -> str:
    """Replace each invisible character except space, tab and line feed by a sign (`␛`) or its code.
    A joiner stays where it stands between two visible characters beyond ASCII.

    Text of a corpus, a model, a file name or a branch passes through here on its way to a terminal
    or a page, so that nothing in it moves the cursor, sets a title, or turns the direction of a
    line round.

    Example:
        >>> visible("a\\x1b[2Jb\\u202e")
        'a␛[2Jb⟨U+202E⟩'
    """
    return text if text.isprintable() else "".join(map(_shown, " " + text, text, text[1:] + " "))


def visible_stream(pieces: Iterable[str]) -> Iterator[str]:
    """The text as `visible` writes it, while its pieces come. A joiner waits for what follows."""
    before = waiting = ""
    for piece in itertools.chain(pieces, [None]):
        waiting += piece or ""
        if piece is None or not waiting.endswith(tuple(JOINERS)):
            yield visible(before + waiting)[len(visible(before)) :]
            before, waiting = (before + waiting)[-1:], ""


def _shown(before: str, char: str, after: str) -> str:
    if char in " \t\n" or unicodedata.category(char) not in INVISIBLE:
        return char
    if char in JOINERS and _may_be_joined(before) and _may_be_joined(after):
        return char
    return chr(0x2400 + ord(char)) if ord(char) < 0x20 else f"⟨U+{ord(char):04X}⟩"


def _may_be_joined(char: str) -> bool:
    return not char.isascii() and unicodedata.category(char) not in {*INVISIBLE, "Zs"}
