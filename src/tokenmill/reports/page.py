"""Numbers as a page shows them: thin spaces between thousands, as many digits as a reader can use.

Text of unknown origin, shown as it is: cut to a length, and nothing in it invisible or able to turn a line round.

Parameters as rows of a name and a value.

A page from a template: jinja2 with everything escaped, and the shared look of page.html, parts.html and page.css.
"""

import json
import unicodedata
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tokenmill.core.units import size

THIN = "\u202f"
"""A narrow space at which no line breaks."""


def whole(value: int) -> str:
    """1234567 as 1 234 567."""
    return f"{value:,}".replace(",", THIN)


def counted(value: int, thing: str) -> str:
    """A number with its noun: 1 document, 11 000 documents; `thing` has a regular plural."""
    return f"{whole(value)} {thing}" + ("" if value == 1 else "s")


def decimal(value: float, places: int = 2) -> str:
    """A number with a fixed number of decimals: 1 234.50."""
    return f"{value:,.{places}f}".replace(",", THIN)


def signed(value: float, places: int = 2) -> str:
    """A difference, with its sign: +0.50, −1 234.50; a zero has none."""
    text = decimal(abs(value), places)
    return text if not float(f"{value:.{places}f}") else ("+" if value > 0 else "−") + text


def figures(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, however small: 0.00430, 12.3, 1 230."""
    return f"{Decimal(f'{value:#.{digits}g}'):,f}".replace(",", THIN)


def percent(share: float) -> str:
    """A share of one with a decimal below 99.95 % and above 0.05 %; what is neither nothing nor all never looks so."""
    if 0 < share < 0.0005:
        return f"<{THIN}0.1{THIN}%"
    if 0.9995 <= share < 1:
        return f">{THIN}99.9{THIN}%"
    return f"{share * 100:.{0 if share in (0, 1) else 1}f}{THIN}%"


SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}
"""What stands for white space in a token."""


UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories that a reader cannot see or that change how the rest is laid out (General_Category, UAX 44)."""


def excerpt(text: str, length: int = 300) -> str:
    """The beginning of a text: its spaces and line breaks kept, all else that is invisible shown by its code."""
    return visible(text[:length].rstrip() + " …" if len(text) > length else text)


def visible(text: str) -> str:
    """A text with its spaces and line breaks, all else that is invisible shown by its code."""
    return "".join(char if char in SIGNS else _seen(char) for char in text)


def token_text(token: bytes) -> str:
    """A token readably: ␣ for a space, ↵ for a line break; bytes that are no UTF-8 by themselves as \\xE2\\x80."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02X}" for byte in token)
    return "".join(SIGNS.get(char) or _seen(char) for char in text)


def token_markup(token: bytes) -> Markup:
    """`token_text` with its signs marked, so that a page can show them paler than the text."""
    shown = escape(token_text(token))
    for sign in SIGNS.values():
        shown = shown.replace(sign, Markup("<i>{}</i>").format(sign))
    return shown


def _seen(char: str) -> str:
    if unicodedata.category(char) not in UNSEEN:
        return char
    code = ord(char)
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"


def flat(section: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Parameters by their dotted names; text as it stands, anything else as JSON.

    Example:
        >>> list(flat({"model": {"n_layer": 4}, "prompts": [{"user": "Why?"}]}))
        [('model.n_layer', '4'), ('prompts[0].user', 'Why?')]
    """
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                yield from flat(item, f"{before}{name}[{number}].")
        else:
            yield f"{before}{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


SHARED = Path(__file__).parent


def render(template: Path, **values: Any) -> str:
    """Render a template, which extends page.html and imports parts.html, to one self-contained HTML page.

    Args:
        template: the template's file; what it includes is looked for beside it, then beside this module.
        values: what it shows. Strings are escaped; only `Markup` is taken as HTML.
    """
    environment = Environment(
        loader=FileSystemLoader([template.parent, SHARED]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "whole": whole,
        "counted": counted,
        "decimal": decimal,
        "signed": signed,
        "figures": figures,
        "percent": percent,
        "size": partial(size, space=THIN),
        "excerpt": excerpt,
        "visible": visible,
        "token": token_markup,
    }
    return environment.get_template(template.name).render(**values)
