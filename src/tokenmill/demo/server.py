"""The server of the demo: its socket, and answers to the requests of its own page.

The socket listens before anything slow begins, so that a browser finds the page at once. No path of
a request names a file: those that the page knows are looked up in a table.
"""

import contextlib
import errno
import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tokenmill.core import paths
from tokenmill.core.errors import UserError, first_line
from tokenmill.core.files import read_bytes
from tokenmill.demo.pages import Pages, sentence
from tokenmill.display import say

MOST_BYTES = 1 << 16
"""The most bytes of a text to trace. The longest answer has fewer."""

MOST_SECONDS = 30.0
"""The most seconds until the next byte of a request comes, and until a piece of an answer has been
taken."""

PIECE_BYTES = 1 << 16
"""The size of a piece of an answer."""

MOST_CONNECTIONS = 128
"""The most connections at the same time. The oldest one ends when a further one comes."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers by which a browser shows this page in no other page, and gives no other page its scripts,
which hold weights. What the page may load is in the page itself."""

LOOPBACK = ("127.0.0.1", "::1")
"""This machine's addresses for itself."""

HTML = "text/html; charset=utf-8"
SCRIPT = "text/javascript; charset=utf-8"
FILES = {
    f"/{paths.DATA_REPORT.name}": (paths.DATA_REPORT, HTML),
    f"/{paths.SAMPLES.name}": (paths.SAMPLES, "text/plain; charset=utf-8"),
}
"""The pages beside the run report, to which it has links."""


class Server(ThreadingHTTPServer):
    """A server for the page at a socket that already listens."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, pages: Pages, listener: socket.socket, names: Iterable[str]):
        """Answer requests to this machine's names and to the further `names` of hosts. If the
        listener is public, requests to any IP address are answered, too."""
        super().__init__(listener.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.pages = pages
        self._any_address = is_public(listener)
        own = ["localhost", listener.getsockname()[0]]
        own += [socket.gethostname(), socket.getfqdn()] if self._any_address else LOOPBACK
        self._names = {name.lower() for name in (*own, *names)}
        self._open: list[socket.socket] = []
        """The connections, the oldest first."""
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread. Where there are too many, end the oldest one."""
        with self._lock:
            self._open.append(request)
            oldest = self._open.pop(0) if len(self._open) > MOST_CONNECTIONS else None
        if oldest:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock, contextlib.suppress(ValueError):  # it gave way
            self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Say in a line what went wrong with a request, unless its sender has gone."""
        error = sys.exc_info()[1]
        if error and not isinstance(error, OSError):
            say(f"a request failed: {first_line(error)}", out=sys.stderr)

    def knows(self, host: str) -> bool:
        """Whether a Host header is one of this server's."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._names or (
                self._any_address and ipaddress.ip_address(name).version in (4, 6)
            )
        except ValueError:  # no host, or a name and no address
            return False


class Handler(BaseHTTPRequestHandler):
    """Answers one request, and only those that the page sends.

    A page of another origin gets no answer, nor does a name that was made to point at this machine
    (DNS rebinding).
    """

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = MOST_SECONDS
    server_version = "tokenmill"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with the page, a part of a model, or a page beside the report."""
        if self._is_refused():
            return
        path = self.path.partition("?")[0]
        if path == "/":
            self._answer_html(self.server.pages.page)
        elif path == "/favicon.ico":  # a browser asks for it by itself
            self._answer("", HTML, HTTPStatus.NO_CONTENT)
        elif path in FILES:
            self._answer_file(*FILES[path])
        elif script := self.server.pages.part(path.removeprefix("/parts/").removesuffix(".js")):
            self._answer(script, SCRIPT)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def do_HEAD(self) -> None:
        """Answer as to GET, without the content."""
        self.do_GET()

    def do_POST(self) -> None:
        """Trace a text."""
        if self._is_refused():
            return
        if self.path != "/trace":
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "a text has a length")
        elif len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
            said = f"a text has at most {MOST_BYTES:,} bytes"
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said)
        else:
            text = self.rfile.read(int(length)).decode("utf-8", "replace")
            self._answer_html(lambda: self.server.pages.trace(text))

    def _is_refused(self) -> bool:
        """Refuse a request that another page sends, or that was sent to another host."""
        # A request of HTTP/0.9 has no headers
        hosts = self.headers.get_all("Host", []) if self.headers else []
        if len(hosts) != 1 or not self.server.knows(hosts[0]):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this host is not served here")
            return True
        origins = {origin.lower() for origin in self.headers.get_all("Origin", [])}
        if not origins <= {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}:
            self._refuse(HTTPStatus.FORBIDDEN, "requests of other pages are not answered")
            return True
        return False

    def _answer_html(self, made: Callable[[], str]) -> None:
        """Answer with what is made, or say why it cannot be."""
        try:
            content = made()
        except (UserError, OSError) as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, sentence(error))
        else:
            self._answer(content, HTML)

    def _answer_file(self, file: Path, kind: str) -> None:
        try:
            self._answer(read_bytes(self.server.pages.models.root / file), kind)
        except (FileNotFoundError, UserError):
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self._answer(sentence, "text/plain; charset=utf-8", status)

    def _answer(self, body: str | bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        content = body.encode("utf-8", "replace") if isinstance(body, str) else body
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            for start in range(0, len(content), PIECE_BYTES):
                self.wfile.write(content[start : start + PIECE_BYTES])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name there)
        """Say nothing about requests."""


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at the address; port 0 is any free one.

    Raises:
        UserError: the port is taken, or the address is not one of this machine.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else first_line(error)
        raise UserError(
            f"--host {host} is no address ({why}); 127.0.0.1 is this machine."
        ) from None
    try:
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, dualstack_ipv6=both)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        way_out = "another --port, or 0 for any free one"
        if error.errno == errno.EADDRNOTAVAIL:
            way_out = "a --host of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them"
        raise UserError(
            f"--host {host} --port {port} cannot be used ({why}); give {way_out}."
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


def serve(pages: Pages, listener: socket.socket, names: Iterable[str]) -> None:
    """Serve the page until Ctrl-C, also under the further `names` of hosts.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    with Server(pages, listener, names) as server:
        server.serve_forever(poll_interval=60)
