"""Render a self-contained page from a template, and format its numbers, tokens and parameters.

jinja2 escapes everything, and shows what is invisible in foreign text (`words.units.visible`).
Numbers are written as in the terminal, with commas at the thousands.
"""

import html
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tokenmill.core.params import dotted
from tokenmill.words.units import counted, duration, fixed, money, perplexity, size, visible

TEMPLATES = Path(__file__).with_name("templates")

THIN = "\u202f"
"""A narrow no-break space, which stands before a unit."""


def render(template: str, **values: Any) -> str:
    """Fill one of the TEMPLATES with `values`; only `Markup` among them is taken as HTML."""
    return environment().get_template(template).render(**values)


def environment() -> Environment:
    """The template engine: strings are escaped, unknown names are errors, and the formats below are
    filters."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    formats = (integer, counted, decimal, signed, significant, percent)
    formats += (money, fixed, perplexity, markdown, commands)
    made.filters |= {write.__name__: write for write in formats}
    made.filters |= {"size": partial(size, space=THIN), "duration": time, "token": token_markup}
    made.filters["excerpt"] = excerpt_markup
    return made


def _shown(value: Any) -> Any:
    """What a template writes for a value, before it is escaped."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def integer(value: int) -> str:
    """A whole number with separated thousands: 1234567 becomes 1,234,567."""
    return f"{value:,}"


def decimal(value: float, places: int = 2) -> str:
    """A number with a fixed number of decimals: 1,234.50."""
    return f"{value:,.{places}f}"


def signed(value: float, places: int = 2) -> str:
    """A difference with its sign: +0.50, −1,234.50; zero has none."""
    text = decimal(abs(value), places)
    return text if not float(f"{value:.{places}f}") else ("+" if value > 0 else "−") + text


def significant(value: float) -> str:
    """A number with three significant digits, however small it is: 0.00430, 12.3, 1,230."""
    return f"{Decimal(f'{value:#.3g}'):,f}"


def time(seconds: float) -> str:
    """Seconds in the unit that suits them: 48 s, 12 min, 3.2 h."""
    return duration(seconds).replace(" ", THIN)


def percent(fraction: float) -> str:
    """A fraction as a percentage with one decimal; only 0 is shown as 0 %, and only 1 as 100 %."""
    if 0 < fraction < 0.0005:
        return f"<{THIN}0.1{THIN}%"
    if 0.9995 <= fraction < 1:
        return f">{THIN}99.9{THIN}%"
    return f"{fraction * 100:.{0 if fraction in (0, 1) else 1}f}{THIN}%"


def excerpt(text: str, length: int = 300) -> str:
    """The beginning of a text."""
    return text[:length].rstrip() + " …" if len(text) > length else text


def excerpt_markup(text: str, length: int = 300) -> Markup:
    """The same, of which the dots stay on a line with the last characters."""
    shown = visible(excerpt(text, length))
    if len(text) <= length:
        return escape(shown)
    return Markup('{}<span class="whole">{}</span>').format(shown[:-5], shown[-5:])


def markdown(text: str) -> Markup:
    """A text on one line that Markdown shows unchanged, as a cell of a table needs it."""
    text = html.escape(text, quote=False).replace("\\", "\\\\")
    for sign in "|*_`[]#~":
        text = text.replace(sign, "\\" + sign)
    return Markup(" <br> ".join(map(visible, text.splitlines())))  # noqa: S704 (escaped above)


def commands(sentence: str) -> Markup:
    """A sentence for the terminal, with what stands between backticks as code."""
    parts = [escape(visible(part)) for part in sentence.split("`")]
    texts = [
        Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts)
    ]
    return Markup("").join(texts)


WHITE_SPACE = {" ": "␣", "\n": "↵", "\t": "⇥"}
"""Signs for white space inside tokens."""


def token_text(token: bytes) -> str:
    """A token in readable form: ␣ for a space, ↵ for a line break. Bytes that are not UTF-8 by
    themselves are written as \\xE2\\x80."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02X}" for byte in token)
    return visible(text).translate(str.maketrans(WHITE_SPACE))


def token_markup(token: bytes) -> Markup:
    """The token as in `token_text`, with its signs for white space in <i>, so that a page can show
    them paler."""
    shown = escape(token_text(token))
    for sign in WHITE_SPACE.values():
        shown = shown.replace(sign, Markup("<i>{}</i>").format(sign))
    return shown


def flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The parameters by their dotted names. Strings stay as they are; everything else becomes JSON,
    also an empty mapping.

    Example:
        >>> list(flat({"model": {"n_layer": 4}, "prompts": [{"user": "Why?"}], "mixture": {}}))
        [('model.n_layer', '4'), ('prompts[0].user', 'Why?'), ('mixture', '{}')]
    """
    for name, value in dotted(section, prefix):
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                yield from flat(item, f"{name}[{number}].")
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def settings(params: Mapping[str, Any]) -> dict[str, str]:
    """The values of a params.yaml in the form of `flat`, without the section `runtime`, which
    changes no result."""
    return dict(flat({name: section for name, section in params.items() if name != "runtime"}))
