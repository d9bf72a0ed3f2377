"""Where the page is: a socket that listens before anything slow begins, and its address for people."""

import ipaddress
import os
import socket

from tokenmill.errors import UserError


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
