"""`tokenmill demo`: its address, its end, and what it answers to whom."""

import contextlib
import signal
import socket
import sys
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import psutil
import pytest

from tests.demo.served import (
    Served,
    content,
    epochs_of,
    pages_of,
    served_by_a_process,
    served_by_a_thread,
)
from tokenmill.cli.main import main
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.demo import server


def test_page_and_parts_are_given(served: Served):
    assert served.pages
    page = served.get()
    assert page == served.pages.page()
    part = epochs_of(page)["epoch 2"]
    assert served.get(f"/parts/{part}.js") == served.pages.part(part)
    assert content(served.get(f"/parts/{part}.js"))[1] == ""


@pytest.mark.parametrize("path", ["/", "/none"])
def test_head_is_get_without_the_content(served: Served, path: str):
    status, headers, content = served.ask(path)
    head = served.ask(path, method="HEAD")
    assert (head[0], head[1]["Content-Length"], head[2]) == (status, str(len(content)), b"")
    assert head[1]["Content-Type"] == headers["Content-Type"]


def test_no_other_page_gets_anything(served: Served):
    """Of the page, scripts with weights, and refusals."""
    part = epochs_of(served.get())["epoch 1"]
    for path in ("/", f"/parts/{part}.js", "/nothing"):
        _, headers, _ = served.ask(path)
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("/", {"host": "evil.example"}, None, 421),
        ("/", {"host": "127.0.0.1.evil.example"}, None, 421),
        ("/", {"host": ""}, None, 421),
        ("/", {"origin": "http://evil.example"}, None, 403),
        ("/trace", {"origin": "http://evil.example"}, b"text", 403),
        ("/trace", {"origin": "null"}, b"text", 403),
        ("/trace", {}, b"x" * 100_000, 413),
        ("/trace", {"content-length": "9" * 5000}, b"x", 413),
        ("/trace", {"content-length": "-1"}, b"x", 411),
        ("/trace", {"content-length": "²"}, b"x", 411),
        ("/other", {}, b"text", 404),
        ("/trace", {}, None, 404),
        ("/params.yaml", {}, None, 404),
        ("/parts/about-0123456789ab-9.js", {}, None, 404),
        ("/parts/../../../etc/passwd", {}, None, 404),
        ("/parts/%2e%2e/%2e%2e/%2e%2e/etc/passwd", {}, None, 404),
        ("/../../../etc/passwd", {}, None, 404),
        ("/data.html", {}, None, 404),  # the stage has not written it here
    ],
)
def test_other_requests_are_refused(
    served: Served, path: str, headers: dict[str, str], body: bytes | None, status: int
):
    found, _, answer = served.ask(path, headers, body)
    assert found == status
    assert b"root:" not in answer


def test_a_page_beside_the_report_comes_as_it_is(copy: Path):
    page = copy / paths.DATA_REPORT
    page.parent.mkdir(exist_ok=True)
    page.write_bytes(b"<p>Z\xfcrich</p>")
    with served_by_a_thread(pages_of(copy)) as served:
        status, _, found = served.ask("/data.html")
    assert (status, found) == (200, page.read_bytes())


def test_a_proxy_under_its_own_name_is_answered(served: Served):
    headers = {"host": "demo.example", "origin": "https://demo.example"}
    assert served.ask("/", headers)[0] == 200


def test_without_an_index_no_text_is_traced(served: Served):
    status, headers, answer = served.ask("/trace", {}, "Grüße 🦊".encode())
    assert (status, headers["Content-Type"]) == (503, "text/plain; charset=utf-8")
    assert b"is missing" in answer


def test_clients_at_once_get_whole_parts(served: Served):
    parts = [f"/parts/{part}.js" for part in epochs_of(served.get()).values()]
    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(served.get, parts * 3))
    assert answers == [served.get(part) for part in parts] * 3


def test_connections_that_say_nothing_keep_nobody_out(served: Served):
    where = urllib.parse.urlsplit(served.url)
    with contextlib.ExitStack() as silent:
        for _ in range(server.MOST_CONNECTIONS + 20):
            made = socket.create_connection((where.hostname or "", where.port or 0), timeout=60)
            silent.enter_context(contextlib.closing(made))
        assert served.get()


def test_a_large_answer_goes_in_pieces(served: Served, monkeypatch: pytest.MonkeyPatch):
    """The time that a client has is for one of them, so a slow one gets the whole."""
    files = list[mock.Mock]()
    setup = server.Handler.setup

    def watched(handler: server.Handler) -> None:
        setup(handler)
        handler.wfile = mock.Mock(wraps=handler.wfile)
        files.append(handler.wfile)

    monkeypatch.setattr(server.Handler, "setup", watched)
    monkeypatch.setattr(served.pages, "part", lambda _: "x" * (1 << 20))
    assert served.get("/parts/x.js") == "x" * (1 << 20)
    sizes = [len(call.args[0]) for call in files[0].write.call_args_list]
    assert sum(sizes) > 1 << 20
    assert max(sizes) <= server.PIECE_BYTES


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"PUT / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: [\r\n\r\n",
        b"GET /\xff\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /trace HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello",
        b"x" * 70_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    ],
)
def test_malformed_request_leaves_no_traceback(
    served: Served, sent: bytes, capfd: pytest.CaptureFixture[str]
):
    where = urllib.parse.urlsplit(served.url)
    address = where.hostname or "", where.port or 0
    with socket.create_connection(address, timeout=60) as made:
        made.sendall(sent)
        made.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError), made.makefile("rb") as answer:
            assert b"200" not in answer.readline()
    assert served.get()
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send to one process")
def test_ctrl_c_ends_the_demo(project: Path, tmp_path: Path):
    """Of folders alone, where there is no project, while a browser waits."""
    folder = str(project.parent / "reciter")
    arguments = ("--port", "0", "--host", "0.0.0.0", "--model", folder)  # noqa: S104
    with served_by_a_process(tmp_path, *arguments) as running:
        process = running.process
        assert process
        assert process.stdout
        assert process.stderr
        assert "everybody in the network" in process.stdout.readline()
        assert running.url.startswith("http://localhost:")
        part = epochs_of(running.get())[folder]
        assert content(running.get(f"/parts/{part}.js"))[0]
        where = urllib.parse.urlsplit(running.url)
        with socket.create_connection((where.hostname or "", where.port or 0), timeout=60):
            process.send_signal(signal.SIGINT)
            assert seconds_of_work_to_the_end(process.pid) < 2
        assert process.wait(60) == 130
        assert process.stdout.read() == ""
        assert process.stderr.read() == "interrupted\n"


def seconds_of_work_to_the_end(process: int) -> float:
    """Of the processor, which a busy machine does not change much."""
    seen = psutil.Process(process)
    begin = last = sum(seen.cpu_times()[:2])
    with contextlib.suppress(psutil.Error):
        while seen.status() != psutil.STATUS_ZOMBIE:
            last = sum(seen.cpu_times()[:2])
            time.sleep(0.02)
    return last - begin


def test_taken_port_is_an_error():
    with contextlib.closing(server.bound("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"--host 127.0.0.1 --port {port} "):
            server.bound("127.0.0.1", port)


def test_an_address_of_another_machine_needs_another_host():
    with pytest.raises(UserError, match=r"--host 192\.0\.2\.1 .*give a --host of this machine"):
        server.bound("192.0.2.1", 0)


@pytest.mark.parametrize("host", ["no such host", "a..b", "a" * 70])
def test_wrong_address_is_an_error(host: str):
    with pytest.raises(UserError, match=f"--host {host}"):
        server.bound(host, 0)


@pytest.mark.parametrize(
    ("host", "public"),
    [("127.0.0.1", False), ("0.0.0.0", True), ("::1", False)],  # noqa: S104 (closed at once)
)
def test_address_can_be_opened(host: str, public: bool):
    try:
        listener = server.bound(host, 0)
    except UserError:
        pytest.skip("this machine has no IPv6")
    with contextlib.closing(listener):
        assert server.is_public(listener) == public
        where = urllib.parse.urlsplit(server.url(listener))
        assert where.hostname
        assert where.port
        socket.create_connection((where.hostname, where.port), timeout=60).close()


def test_without_a_project_or_models_is_an_error(here: Path):
    with pytest.raises(SystemExit) as refused:
        main(["demo"])
    assert str(refused.value.code).startswith("error: params.yaml is missing in ")
    assert "--model FOLDER" in str(refused.value.code)


@pytest.mark.parametrize("port", ["-1", "65536", "web"])
def test_invalid_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as refused:
        main(["demo", "--port", port])
    assert refused.value.code == 2
    assert "--port" in capsys.readouterr().err
