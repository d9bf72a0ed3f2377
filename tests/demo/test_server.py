"""`tokenmill demo`: its address, its end and its answers over HTTP, without a browser."""

import contextlib
import importlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from tests.demo.served import NO_PROXY, Served, start, values, words
from tests.demo.wanted import wanted
from tokenmill.cli.main import main
from tokenmill.core.errors import UserError
from tokenmill.demo.answering import QUESTION, TEXT
from tokenmill.words.units import visible


@pytest.fixture
def server() -> ModuleType:
    """Imported by the tests that need it: Gradio takes four seconds, in each of pytest's
    processes."""
    return importlib.import_module("tokenmill.demo.server")


def until_words(answer: HTTPResponse) -> None:
    while b"words" not in answer.readline():
        pass


@pytest.mark.slow
def test_clients_at_once_get_their_own_answers(served: Served, kept: Path):
    asked = [(epoch, f"question {number}") for number in range(4) for epoch in (1, 2)]
    with ThreadPoolExecutor(len(asked)) as threads:
        answers = list(threads.map(lambda ask: served.states("this run", *ask), asked))
    for (epoch, prompt), states in zip(asked, answers, strict=True):
        text = wanted(kept, prompt, epoch=epoch)
        assert words(states[-1]) == visible(text)
        assert len(set(states)) > 2


@pytest.mark.slow
def test_error_does_not_stop_the_next_answer(served: Served):
    before = served.log.read_text(encoding="utf-8")
    assert "model.safetensors is damaged" in served.states("folder ../damaged", None, "hello")[-1]
    assert "must be at most" in served.states("this run", 1, "hello", max_new_tokens=10**9)[-1]
    assert "tokens/s" in served.states("this run", 1, "hello")[-1]
    assert served.log.read_text(encoding="utf-8") == before


@pytest.mark.slow
def test_clients_that_leave_delay_nobody(served: Served):
    """Ten answers, two at a time, would take five times as long as one."""
    began = time.monotonic()
    last = served.states("folder ../endless", None, "", kind=TEXT, max_new_tokens=1024)[-1]
    alone = time.monotonic() - began
    assert len(words(last)) == 1024
    for _ in range(10):
        with served.answer("folder ../endless", None, "", kind=TEXT, max_new_tokens=1024) as answer:
            until_words(answer)
    began = time.monotonic()
    served.states("folder ../reciter", None, "", kind=TEXT)
    assert time.monotonic() - began < 2 * alone


@pytest.mark.slow
def test_page_is_local_and_takes_no_uploads(served: Served):
    with NO_PROXY.open(served.url, timeout=60) as page:
        assert not re.findall(r'(?:src|href)="https?:', page.read().decode())
    with NO_PROXY.open(f"{served.url}/theme.css", timeout=60) as theme:
        assert not re.findall(r"(?:@import|url\()\W*https?:", theme.read().decode())
    body = (
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n'
        b"\r\ncontent\r\n--x--\r\n"
    )
    upload = urllib.request.Request(  # noqa: S310 (our own server)
        f"{served.url}/gradio_api/upload",
        data=body,
        headers={"content-type": "multipart/form-data; boundary=x"},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        NO_PROXY.open(upload, timeout=60)
    refused.value.close()
    assert refused.value.code == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("/", {"host": "evil.example"}, None, 421),
        ("/", {"host": "127.0.0.1.evil.example"}, None, 421),
        ("/gradio_api/call/left", {"origin": "http://evil.example"}, b"{}", 403),
        ("/gradio_api/call/left", {"origin": "null"}, b"{}", 403),
        ("/gradio_api/call/left", {}, b"x" * 100_000, 413),
        ("/gradio_api/file=/etc/passwd", {}, None, 404),
        ("/gradio_api/file=params.yaml", {}, None, 404),
        ("/static/../../../etc/passwd", {}, None, 404),
        ("/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd", {}, None, 404),
        ("/gradio_api/proxy=http://127.0.0.1:1/", {}, None, 404),
        ("/monitoring", {}, None, 404),
        ("/docs", {}, None, 404),
    ],
)
def test_other_requests_are_refused(
    served: Served, path: str, headers: dict[str, str], body: bytes | None, status: int
):
    where = urllib.parse.urlsplit(served.url)
    with contextlib.closing(
        HTTPConnection(where.hostname or "", where.port, timeout=60)
    ) as connection:
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        assert answer.status == status
        assert b"root:" not in answer.read()


@pytest.mark.slow
def test_connections_that_say_nothing_keep_nobody_out(served: Served):
    where = urllib.parse.urlsplit(served.url)
    with contextlib.ExitStack() as silent:
        for _ in range(150):
            made = socket.create_connection((where.hostname or "", where.port or 0), timeout=60)
            silent.enter_context(contextlib.closing(made))
        with NO_PROXY.open(f"{served.url}/config", timeout=60) as answer:
            assert answer.status == 200


@pytest.mark.slow
def test_body_without_a_length_has_an_end(served: Served):
    where = urllib.parse.urlsplit(served.url)
    with contextlib.closing(
        socket.create_connection((where.hostname or "", where.port or 0), timeout=60)
    ) as made:
        made.sendall(
            b"POST /gradio_api/call/left HTTP/1.1\r\nHost: localhost\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        with pytest.raises(ConnectionError):  # the server has closed it
            made.sendall(1000 * (b"10000\r\n" + b"x" * 0x10000 + b"\r\n"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/gradio_api/call/left", b"{}"),
        ("/gradio_api/call/left", b'{"data": []}'),
        ("/gradio_api/call/left", b'{"data": [1], "fn_index": "x", "session_hash": 3}'),
        ("/gradio_api/queue/join", b"{}"),
        ("/gradio_api/queue/join", b'{"data": [], "fn_index": 10000}'),
        ("/gradio_api/queue/join", b'{"data": [], "fn_index": 0, "session_hash": "\\u0000"}'),
        ("/gradio_api/reset", b"{}"),
        ("/gradio_api/cancel", b'{"session_hash": 1, "fn_index": "x", "event_id": []}'),
        ("/gradio_api/queue/data?session_hash=", None),
        ("/gradio_api/call/left/x", None),
        ("/config", b"{}"),
    ],
)
def test_malformed_request_leaves_no_traceback(served: Served, path: str, body: bytes | None):
    where = urllib.parse.urlsplit(served.url)
    with contextlib.closing(
        HTTPConnection(where.hostname or "", where.port, timeout=60)
    ) as connection:
        headers = {"content-type": "application/json"}
        connection.request("GET" if body is None else "POST", path, body, headers)
        assert connection.getresponse().status >= 200
    assert "Traceback" not in served.log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_proxy_under_its_own_name_is_answered(served: Served):
    headers = {
        "host": "demo.example",
        "origin": "https://demo.example",
        "x-forwarded-proto": "https",
    }
    request = urllib.request.Request(f"{served.url}/config", headers=headers)  # noqa: S310 (our own server)
    with NO_PROXY.open(request, timeout=60) as answer:
        assert json.load(answer)["root"] == "https://demo.example"


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_file_of_the_host_is_no_value(served: Served, place: int):
    """Gradio would copy it into its own folder."""
    asked: list[Any] = ["this run", 1, "hello", QUESTION, *values({})]
    asked[place] = {"path": str(Path(__file__).resolve()), "meta": {"_type": "gradio.FileData"}}
    request = urllib.request.Request(  # noqa: S310 (our own server)
        f"{served.url}/gradio_api/call/left",
        json.dumps({"data": asked}).encode(),
        {"content-type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        NO_PROXY.open(request, timeout=60)
    refused.value.close()
    assert refused.value.code == 400


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send to one process")
def test_ctrl_c_during_an_answer_ends_the_demo(project: Path, tmp_path: Path):
    """Of folders alone, where there is no project."""
    folder = str(project.parent / "endless")
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    # What is said then is the point
    with start(nowhere, "--port", "0", "--host", "0.0.0.0", "--model", folder) as running:  # noqa: S104
        assert running.process.stdout
        assert "everybody in the network" in running.process.stdout.readline()
        assert running.url.startswith("http://localhost:")
        with running.answer(f"folder {folder}", None, "", kind=TEXT, max_new_tokens=1024) as answer:
            until_words(answer)
            running.process.send_signal(signal.SIGINT)
            assert seconds_of_work_to_the_end(running.process) < 2
            assert running.process.returncode == 130
        assert running.process.stdout.read() == ""
        assert running.log.read_text(encoding="utf-8") == "interrupted\n"


def seconds_of_work_to_the_end(process: "subprocess.Popen[str]") -> float:
    """Of the processor, which a busy machine does not change much."""
    seen = psutil.Process(process.pid)
    begin = last = sum(seen.cpu_times()[:2])
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            last = sum(seen.cpu_times()[:2])
        time.sleep(0.02)
    return last - begin


def test_taken_port_is_an_error(server: ModuleType):
    with contextlib.closing(server.bound("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UserError,
            match=rf"--host 127.0.0.1 --port {port} ",
        ):
            server.bound("127.0.0.1", port)


def test_wrong_address_is_an_error(server: ModuleType):
    with pytest.raises(UserError, match="--host no such host"):
        server.bound("no such host", 0)


@pytest.mark.parametrize(
    ("host", "public"),
    [("127.0.0.1", False), ("0.0.0.0", True), ("::1", False)],  # noqa: S104 (closed at once)
)
def test_address_can_be_opened(host: str, public: bool, server: ModuleType):
    try:
        listener = server.bound(host, 0)
    except UserError:
        pytest.skip("this machine has no IPv6")
    with contextlib.closing(listener):
        assert server.is_public(listener) == public
        where = urllib.parse.urlsplit(server.url(listener))
        assert where.hostname
        assert where.port
        socket.create_connection((where.hostname, where.port), timeout=5).close()


def test_without_gradio_the_error_says_what_to_install(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.chdir(project)
    with pytest.raises(SystemExit) as refused:
        main(["demo"])
    assert refused.value.code == (
        "error: the demo needs Gradio; `pip install -c constraints.txt -e '.[demo]'` installs it."
    )


@pytest.mark.usefixtures("server")
def test_without_a_project_or_models_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
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
