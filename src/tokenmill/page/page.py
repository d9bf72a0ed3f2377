"""A page from a template: jinja2 with everything escaped, and the shared look of page.html, parts.html and page.css."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tokenmill.page import numbers, text

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
        "whole": numbers.whole,
        "counted": numbers.counted,
        "decimal": numbers.decimal,
        "signed": numbers.signed,
        "figures": numbers.figures,
        "percent": numbers.percent,
        "size": numbers.size,
        "excerpt": text.excerpt,
        "visible": text.visible,
        "token": text.token_markup,
    }
    return environment.get_template(template.name).render(**values)
