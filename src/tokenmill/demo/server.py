"""The page on a socket, with nothing in it that a browser would fetch from anywhere else."""

import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from types import FrameType
from typing import Any

import gradio as gr
import uvicorn
from fastapi import FastAPI

from tokenmill.demo.theme import style, theme

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
