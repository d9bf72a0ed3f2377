"""The look of the page: Gradio's theme in the colours and type of the project's reports (page/page.css)."""

import inspect
import re
from pathlib import Path

from gradio.themes import Base
from gradio.themes.base import Base as Theme

from tokenmill.page.page import SHARED

FONT = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "Liberation Mono", "monospace")

_COLOURS = {
    "var(--paper)": ["body_background_fill", "background_fill_primary", "block_background_fill"],
    "var(--raised)": ["background_fill_secondary", "button_secondary_background_fill", "code_background_fill"],
    "var(--ink)": ["body_text_color", "button_secondary_text_color", "checkbox_label_text_color"],
    "var(--muted)": [
        "body_text_color_subdued",
        "block_info_text_color",
        "block_title_text_color",
        "block_label_text_color",
        "input_placeholder_color",
        "accordion_text_color",
        "checkbox_border_color",
    ],
    "var(--rule)": [
        "border_color_primary",
        "block_border_color",
        "input_border_color",
        "input_border_color_hover",
        "button_secondary_border_color",
        "button_secondary_background_fill_hover",
    ],
    "var(--series-1)": [
        "color_accent",
        "border_color_accent",
        "input_border_color_focus",
        "slider_color",
        "loader_color",
        "link_text_color",
        "button_primary_background_fill",
        "button_primary_border_color",
        "checkbox_background_color_selected",
        "checkbox_border_color_selected",
        "checkbox_border_color_focus",
    ],
    "color-mix(in srgb, var(--series-1) 88%, var(--ink))": ["button_primary_background_fill_hover"],
    "var(--paper) ": ["input_background_fill", "button_primary_text_color", "checkbox_background_color"],
    "transparent": ["checkbox_label_background_fill", "checkbox_label_background_fill_hover"],
    "color-mix(in srgb, var(--series-1) 12%, transparent)": [
        "color_accent_soft",
        "checkbox_label_background_fill_selected",
    ],
}
"""A colour of the reports, and what of Gradio's has it; each is dark by itself where the reader's screen is."""

_SHAPES = {
    "body_text_size": "1rem",
    "block_border_width": "0px",
    "block_shadow": "none",
    "block_padding": "0px",
    "block_radius": ".375rem",
    "block_title_text_weight": "400",
    "block_title_text_size": ".8125rem",
    "block_info_text_size": ".8125rem",
    "form_gap_width": "0px",
    "layout_gap": "1.25rem",
    "input_border_width": "1px",
    "input_radius": ".375rem",
    "input_shadow": "none",
    "input_shadow_focus": "0 0 0 1px var(--series-1)",
    "input_text_size": "1rem",
    "checkbox_label_shadow": "none",
    "checkbox_label_border_width": "1px",
    "checkbox_label_text_size": ".875rem",
    "button_large_text_weight": "500",
    "button_large_text_size": "1rem",
    "button_large_radius": ".375rem",
    "button_primary_shadow": "none",
    "button_secondary_shadow": "none",
    "section_header_text_size": ".875rem",
}


def theme() -> Theme:
    """The theme, with system fonts only: none is fetched."""
    colours = {name: colour.strip() for colour, names in _COLOURS.items() for name in names}
    known = inspect.signature(Base.set).parameters
    dark = {f"{name}_dark": value for name, value in (colours | _SHAPES).items() if f"{name}_dark" in known}
    paper = re.findall("--paper: (#[0-9a-f]+)", _shared())  # by value: it is there before any style is
    background = {"body_background_fill": paper[0], "body_background_fill_dark": paper[1]}
    return Base(font=FONT, font_mono=MONO).set(**colours | _SHAPES | dark | background)


def style() -> str:
    """The reports' colours for light and dark, and what no theme can say."""
    root = r"^(?::root \{|@media \(prefers-color-scheme: dark\) \{).*?^\}"
    palette = re.findall(root, _shared(), re.DOTALL | re.MULTILINE)
    return "\n".join([*palette, Path(__file__).with_name("demo.css").read_text(encoding="utf-8")])


def _shared() -> str:
    return (SHARED / "page.css").read_text(encoding="utf-8")
