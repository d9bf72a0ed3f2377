"""The server behind the demo's page: its socket, and a gate that lets through only the page's own
requests.

The socket listens before anything slow begins, so that a browser finds the page at once.
"""

import asyncio
import ipaddress
import json
import logging
import os
import re
import socket
import sys
from collections.abc import Iterable
from types import FrameType, SimpleNamespace
from urllib.parse import urlsplit

import gradio as gr
import uvicorn
from fastapi import FastAPI
from gradio import queueing
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tokenmill.core.errors import UserError, first_line
from tokenmill.demo.page import STYLE, THEME
from tokenmill.display import say

MOST_BYTES = 1 << 16
"""The most bytes of a request. The longest prompt has fewer."""

MOST_SECONDS = 10.0
"""The most seconds until the body of a request has arrived."""

MOST_CONNECTIONS = 128
"""The most connections at the same time. A further one ends the one that was silent longest, or
gets an error."""

MOST_SESSIONS = 1000
"""The most conversations that are kept. The oldest ones are removed first."""

NEEDED = re.compile(
    r"/|/(config|theme\.css|favicon\.ico|manifest\.json)/?|/(assets|static|svelte)/(?!.*[.][.]).*"
    r"|/gradio_api/(info|app_id|startup-events|queue/(join|data)"
    r"|call/(left|right)(/\w+)?|heartbeat/\w+|cancel|reset)/?"
)
"""The paths that the page requests. Gradio has many others, for files, proxies and uploads."""

HEADERS = {
    "content-security-policy": "default-src 'self'; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "worker-src 'self' blob:; frame-ancestors 'none'; form-action 'none'; base-uri 'self'; "
    "object-src 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}
"""Headers by which a browser loads nothing from elsewhere for this page, and shows it in no other
page."""


def _refused(text: str, status: int) -> PlainTextResponse:
    """An error response, after which the connection ends, whatever the client goes on to send."""
    return PlainTextResponse(text, status, {"connection": "close"})


class Gate:
    """An ASGI application in front of another one. It refuses requests that the page does not send.

    A page of another origin gets no answer, nor does a name that was made to point at this machine
    (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, listener: socket.socket, further: Iterable[str]):
        """Let through requests to this machine's names and to the `further` ones. If the listener
        is public, requests to any IP address also pass."""
        self._app = app
        self._any_address = is_public(listener)
        own = (
            (socket.gethostname(), socket.getfqdn()) if self._any_address else ("127.0.0.1", "::1")
        )
        self._names = {
            "localhost",
            listener.getsockname()[0],
            *(name.lower() for name in (*own, *further)),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on with its body read."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":  # and no websocket: the page has none
                await self._app(scope, receive, send)
            return
        body = self._refusal(scope) or await _body(receive)
        if isinstance(body, PlainTextResponse):
            await body(scope, receive, send)
            return
        unread = [body]

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((k.encode(), v.encode()) for k, v in HEADERS.items()),
                ]
            await send(message)

        try:
            await self._app(scope, replay, with_headers)
        except Exception as error:  # of Gradio, about a request that its page does not send
            say(f"a request to {scope['path']} failed: {first_line(error)}", out=sys.stderr)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        """The error response to a request, decided before its body is read; None if the request may
        pass."""
        values: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            values.setdefault(name, []).append(value)
        hosts = [value.decode("latin-1") for value in values.get(b"host", [])]
        if len(hosts) != 1 or not self._is_known(hosts[0]):
            return _refused("this host is not served here", 421)
        origins = {value.decode("latin-1").lower() for value in values.get(b"origin", [])}
        if not origins <= {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}:
            return _refused("requests of other pages are not answered", 403)
        if not NEEDED.fullmatch(scope["path"]):
            return _refused("not found", 404)
        return None

    def _is_known(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._names or (
                self._any_address and ipaddress.ip_address(name).version in (4, 6)
            )
        except ValueError:  # no host, or a name and no address
            return False


async def _body(receive: Receive) -> Message | PlainTextResponse:
    """The whole body of a request as one message, or the error response if it is too long or too
    slow."""
    body = b""
    message = await receive()
    try:
        async with asyncio.timeout(MOST_SECONDS):
            while message["type"] == "http.request":
                body += message.get("body", b"")
                if len(body) > MOST_BYTES:
                    return _refused(f"a request has at most {MOST_BYTES:,} bytes", 413)
                if not message.get("more_body", False):
                    if body and not _is_plain(body):
                        return _refused("the page sends plain values only", 400)
                    return {"type": "http.request", "body": body, "more_body": False}
                message = await receive()
    except TimeoutError:
        return _refused("the request came too slowly", 408)
    return message


def _is_plain(body: bytes) -> bool:
    """Whether a body is a JSON object whose `data`, if it has any, are texts and numbers.

    If an object looks like an uploaded file, Gradio copies the file that its `path` names, wherever
    that is.
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return False
    data = content.get("data") or [] if isinstance(content, dict) else None
    return isinstance(data, list) and all(isinstance(one, str | int | float | None) for one in data)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at the address; port 0 is any free one.

    Raises:
        UserError: the port is taken, or the address is not one of this machine.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UserError(
            f"--host {host} is no address ({error.strerror}); 127.0.0.1 is this machine."
        ) from None
    try:
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, dualstack_ipv6=both)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        raise UserError(
            f"--host {host} --port {port} cannot be used ({why}); give another --port, or 0 for "
            "any free one."
        ) from None


def url(listener: socket.socket) -> str:
    """The address to open in a browser on this machine."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        return f"http://localhost:{port}"
    return f"http://[{host}]:{port}" if address.version == 6 else f"http://{host}:{port}"


def is_public(listener: socket.socket) -> bool:
    """Whether other machines can reach the listener."""
    return not ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def serve(page: gr.Blocks, listener: socket.socket, names: Iterable[str]) -> None:
    """Serve the page until Ctrl-C, also under the further `names` of hosts.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    page.state_session_capacity = MOST_SESSIONS
    # Gradio prints the traceback of a request whose values are not those of the page
    setattr(queueing, "traceback", SimpleNamespace(print_exc=_say_what_failed))  # noqa: B010
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
    config = uvicorn.Config(
        Gate(app, listener, names),
        log_level="warning",
        timeout_graceful_shutdown=0,
        limit_concurrency=MOST_CONNECTIONS,
        http=_Connection,
        server_header=False,
    )
    _Server(config).run(sockets=[listener])


def _say_what_failed() -> None:
    if error := sys.exc_info()[1]:
        say(f"a request failed: {first_line(error)}", out=sys.stderr)


class _Connection(H11Protocol):
    """A connection. Where there are too many, the one that has been silent longest gives way."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count this connection, and end another one if it is one too many."""
        super().connection_made(transport)
        self.since = self.loop.time()
        others = [
            other
            for other in self.connections
            if isinstance(other, _Connection) and not other.transport.is_closing()
        ]
        silent = [other for other in others if not other.cycle or other.cycle.response_complete]
        if len(others) >= MOST_CONNECTIONS and silent:
            min(silent, key=lambda other: other.since).transport.close()


class _Server(uvicorn.Server):
    """A server that cuts off open pages and unfinished answers when it ends, without a message."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end the server."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().handle_exit(sig, frame)
