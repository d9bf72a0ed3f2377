"""The demo on a socket: what listens before anything slow begins, its address for people, and the server."""

import ipaddress
import logging
import os
import socket
from types import FrameType

import gradio as gr
import uvicorn
from fastapi import FastAPI
from gradio.themes import Base

from tokenmill.core.errors import UserError
from tokenmill.demo.page import STYLE

THEME = Base(
    primary_hue="blue",
    neutral_hue="slate",
    font=("system-ui", "sans-serif"),
    font_mono=("ui-monospace", "monospace"),
)
"""System fonts: none is loaded from anywhere."""


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
            f"--host {host} --port {port} cannot be used ({error.strerror}); "
            "give another --port, or 0 for any free one."
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


def serve(page: gr.Blocks, listener: socket.socket) -> None:
    """Serve the page until Ctrl-C; nothing can be uploaded.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    app = gr.mount_gradio_app(
        FastAPI(openapi_url=None),
        page,
        path="/",
        theme=THEME,
        css=STYLE,
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
    """Cuts off open pages and unfinished answers when it ends, without a message."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().handle_exit(sig, frame)
