"""Where the page is: a socket that listens before anything slow begins, and its address for people.

The look of the page: Gradio's theme in the colours and type of the project's reports (page/page.css).

The page on a socket, with nothing in it that a browser would fetch from anywhere else.
"""

import inspect
import ipaddress
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from types import FrameType
from typing import Any

import gradio as gr
import uvicorn
from fastapi import FastAPI
from gradio.themes import Base
from gradio.themes.base import Base as Theme

from tokenmill.core.errors import UserError
from tokenmill.reports.page import TEMPLATES


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at the address; port 0 is any free one.

    Raises:
        UserError: the port is taken, or the address is not one of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UserError(f"--host {host} is no address ({error.strerror}); 127.0.0.1 is this machine.") from None
    try:
        if os.name == "posix":  # elsewhere it would share a port that is taken
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise UserError(
            f"--host {host} --port {port} cannot be had ({error.strerror}); give another --port, or 0 for any free one."
        ) from None
    return listener


def url(listener: socket.socket) -> str:
    """What to open in a browser on this machine."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        return f"http://localhost:{port}"
    return f"http://[{host}]:{port}" if address.version == 6 else f"http://{host}:{port}"


def is_public(listener: socket.socket) -> bool:
    """Whether other machines can reach it."""
    return not ipaddress.ip_address(listener.getsockname()[0]).is_loopback


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
    return (TEMPLATES / "page.css").read_text(encoding="utf-8")


POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; form-action 'self'; frame-ancestors 'self'"
)
"""What the browser may load (Content Security Policy): Gradio writes scripts and styles into its page."""


def serve(page: gr.Blocks, listener: socket.socket) -> None:
    """Serve the page until Ctrl-C.

    Raises:
        KeyboardInterrupt: then.
    """
    app = FastAPI(openapi_url=None)
    app.add_middleware(_Policy)
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        theme=theme(),
        head=f"<style>{style()}</style>",  # not css=, which Gradio rewrites, and loses what is for dark screens
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        max_file_size=1,
        pwa=False,
        mcp_server=False,
        enable_monitoring=False,
    )
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=0)
    _Server(config).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Ends without a word: pages that are open, and answers that are being written, are cut off."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().handle_exit(sig, frame)


class _Policy:
    """Puts the policy on every answer."""

    def __init__(self, app: Any):
        self._app = app

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", POLICY.encode())]
            await send(message)

        await self._app(scope, receive, sent)
