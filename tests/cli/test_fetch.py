"""Text from elsewhere: which DVC command an address becomes, and what is refused before it."""

import base64
import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from dvc import fs as dvc_fs
from dvc.exceptions import DvcException
from dvc.repo import Repo, open_repo
from scmrepo.git.lfs.storage import LFSStorage

from tests.imports import ROOT
from tests.pipeline.project import Project
from tokenmill import display
from tokenmill.cli.fetch import benchmarks_of, check_listing, planned
from tokenmill.cli.main import main
from tokenmill.core.errors import UserError
from tokenmill.display import passed_on
from tokenmill.dvc_import import checked_clone, checked_path

HUB = "https://huggingface.co/datasets/ada/books"


@pytest.mark.parametrize(
    ("address", "command"),
    [
        ("hf://datasets/ada/books", f"import -o data/raw/books -- {HUB} ."),
        ("hf://datasets/ada/books@v1", f"import -o data/raw/books --rev=v1 -- {HUB} ."),
        ("hf://datasets/ada/books/en/old/", f"import -o data/raw/books -- {HUB} en/old"),
        (
            "hf://datasets/ada/books@v1/en/a.txt",
            f"import -o data/raw/a.txt --rev=v1 -- {HUB} en/a.txt",
        ),
        (
            "https://h.org/a.txt.gz?x=1",
            "import-url -- https://h.org/a.txt.gz?x=1 data/raw/a.txt.gz",
        ),
        (
            "https://h.org/a%20b%2Fc.txt",
            "import-url -- https://h.org/a%20b%2Fc.txt data/raw/a-b-c.txt",
        ),
        ("s3://bucket/books/", "import-url -- s3://bucket/books/ data/raw/books"),
        ("s3://bucket", "import-url -- s3://bucket data/raw/bucket"),
        ("s3://bucket/..", "import-url -- s3://bucket/.. data/raw/x"),
    ],
)
def test_an_address_becomes_one_command_of_dvc(
    address: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    name = "x" if address.endswith("..") else None
    assert planned(address, name)[1] == command.split()


def test_dvc_sees_what_a_user_adds_in_a_clone_too(tmp_path: Path) -> None:
    project = Project.new(tmp_path / "here", remote=True)
    folders = ("data/raw/books", "models/start/small")
    for folder in folders:
        (project.root / folder).mkdir(parents=True)
        (project.root / folder / "a.txt").write_text(f"a text in {folder}")
    shutil.copy(ROOT / ".gitignore", project.root)
    project.run("dvc", "add", "-q", *folders)
    project.commit()
    project.run("dvc", "push", "-q")
    clone = project.clone("there")
    clone.run("dvc", "pull", "-q")
    for folder in folders:
        assert (clone.root / folder / "a.txt").read_text() == f"a text in {folder}"


@pytest.mark.parametrize(
    "address",
    [
        "books",
        "hf://ada/books",
        "hf://datasets/../books",
        "hf://datasets/ada/books/--help",
        "hf://datasets/ada/books/data/-x",
        "hf://datasets/ada/books/../x",
        "hf://datasets/ada/books@--upload-pack=x",
        "s3://bucket/..",
        "s3:",
        "http://[x",
        "http://host:x/a.txt",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UserError):
        planned(address)


@pytest.mark.parametrize(
    "address",
    [
        "https://ada:SECRET@host/x.txt",
        "https://SECRET@host/x.txt",
        "https://ada@example.org:SECRET@host/x.txt",
        "https://ada:SE@CRET@host/x.txt",
        "https://ada:SECRET/1@host/x.txt",
        "s3://key:SECRET@bucket/x.txt",
        "https://host/x.txt?token=SECRET",
        "https://host/x.txt?v=1&%74oken=SECRET",
        "https://host/x.txt?X-Amz-Date=20260101&X-Amz-Signature=SECRET",
        "https://host/x.txt?sv=2024&sig=SECRET",
        "https://host/x.txt#access_token=SECRET",
    ],
)
def test_no_secret_of_an_address_is_recorded_or_printed(
    address: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (here / ".dvc").mkdir()
    with pytest.raises(SystemExit) as stopped:
        main(["fetch", address])
    assert "SECRET" not in f"{stopped.value}{capsys.readouterr()}"
    assert [path.name for path in here.rglob("*")] == [".dvc"]


def test_no_secret_of_the_hub_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://ada:SECRET@hub.example")
    with pytest.raises(UserError) as refused:
        planned("hf://datasets/ada/books")
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("value", ["/mnt/hub", "http://", "http://[", "http://hub:x"])
def test_the_hub_is_an_address(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVC would read a folder as it is, without the clone that is checked."""
    monkeypatch.setenv("HF_ENDPOINT", value)
    with pytest.raises(UserError):
        planned("hf://datasets/ada/books")


def test_what_a_program_prints_passes_through_the_mask(capfd: pytest.CaptureFixture[str]) -> None:
    """As DVC prints where a server redirected it to."""
    address = "https://me:SECRET@host/x?X-Amz-Signature=SECRET"
    code = f"import sys; print({address!r}); print({address!r}, file=sys.stderr); sys.exit(3)"
    assert passed_on([sys.executable, "-c", code]) == 3
    printed = "".join(capfd.readouterr())
    assert printed.count("https://me:•••@host/x?X-Amz-Signature=•••") == 2
    assert "SECRET" not in printed


def test_a_program_that_hangs_after_its_error_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As DVC does where a dataset has a git submodule."""
    monkeypatch.setattr(display, "LAST_WORDS", 0.2)
    code = (
        "import time; print('ERROR: x', flush=True); print('ERROR: y', flush=True); time.sleep(600)"
    )
    assert passed_on([sys.executable, "-c", code]) != 0


def test_an_interrupt_ends_the_program_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "INTERRUPTED", 0.1)
    code = "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(60)"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    others = psutil.Process().children()
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            passed_on([sys.executable, "-c", code])
    finally:
        signal.signal(signal.SIGINT, before)
    assert psutil.Process().children() == others
    assert time.monotonic() - begun < 30


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Project]:
    """A git repository with one text in a folder `data`, as a hub has it."""
    project = Project(tmp_path / "hub/datasets/ada/books")
    (project.root / "data").mkdir(parents=True)
    (project.root / "data/a.txt").write_text("a text")
    project.run("git", "init", "-q", "-b", "main")
    project.commit()
    yield project
    open_repo.clean_repos()


def linked(folder: Path) -> None:
    (folder / "link").symlink_to("/etc")


def within(folder: Path) -> None:
    (folder / "data/.dvc").mkdir()
    (folder / "data/.dvc/config").write_text("[core]\n")


@pytest.mark.parametrize("write", [linked, within])
@pytest.mark.parametrize("is_newest", [True, False])
def test_a_dataset_on_which_dvc_would_act_is_refused(
    dataset: Project, write: Callable[[Path], None], is_newest: bool
) -> None:
    """Also where only the branch that DVC checks out is such a one."""
    url, clean = f"file://{dataset.root}", dataset.run("git", "rev-parse", "HEAD").strip()
    assert Path(checked_clone(url, clean)[0]).is_dir()
    open_repo.clean_repos()
    write(dataset.root)
    dataset.commit()
    with pytest.raises(DvcException):
        checked_clone(url, None if is_newest else clean)


@pytest.mark.parametrize("oid", ["/etc/hostname", "../../x", "a" * 63, "A" * 64, "a" * 64 + "\n"])
def test_an_object_of_git_lfs_is_named_by_its_hash(oid: str) -> None:
    assert checked_path(LFSStorage("lfs"), "a" * 64) == f"lfs/objects/aa/aa/{'a' * 64}"
    with pytest.raises(DvcException):
        checked_path(LFSStorage("lfs"), oid)


def test_a_dataset_is_fetched_and_later_updated(
    dataset: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"file://{tmp_path}/hub")
    project = Project.new(tmp_path / "here")
    fetch = ("python", "-m", "tokenmill", "fetch", "hf://datasets/ada/books/data", "--name")
    project.run(*fetch, "books")
    (dataset.root / "data/a.txt").write_text("another text")
    dataset.commit()
    project.run("dvc", "update", "-q", "data/raw/books.dvc")
    assert (project.root / "data/raw/books/a.txt").read_text() == "another text"
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:/etc/hostname\nsize 1\n"
    (dataset.root / "data/a.txt").write_text(pointer)
    (dataset.root / ".gitattributes").write_text("*.txt filter=lfs\n")
    dataset.commit()
    project.run(*fetch, "files", check=False)
    (dataset.root / "data/a.txt").write_text("a text")
    within(dataset.root)
    dataset.commit()
    project.run(*fetch, "projects", check=False)
    kept = {path.name for path in (project.root / "data/raw").iterdir()}
    assert kept == {".gitignore", "books", "books.dvc"}


class Locked(BaseHTTPRequestHandler):
    """A server that knows one user."""

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(b"a text")

    def _answer(self, body: bytes) -> None:
        expected = f"Basic {base64.b64encode(b'ada:SECRET').decode()}"
        self.send_response(200 if self.headers.get("Authorization") == expected else 401)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (as above it)
        pass


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_password_stays_in_the_local_configuration_of_dvc(tmp_path: Path) -> None:
    """The way that the refusal names."""
    project = Project.new(tmp_path / "here")
    with serving(Locked) as address:
        project.run("dvc", "remote", "add", "-q", "--local", "source", address)
        for option in (("auth", "basic"), ("user", "ada"), ("password", "SECRET")):
            project.run("dvc", "remote", "modify", "-q", "--local", "source", *option)
        project.run("python", "-m", "tokenmill", "fetch", "remote://source/x.txt")
    assert (project.root / "data/raw/x.txt").read_text() == "a text"
    project.commit()
    assert "remote://source/x.txt" in project.run("git", "show", "HEAD:data/raw/x.txt.dvc")
    assert "SECRET" not in project.run("git", "log", "-p")


@pytest.mark.usefixtures("here")
def test_a_refusal_says_what_the_server_answered() -> None:
    with serving(Locked) as address, pytest.raises(UserError, match="401"):
        check_listing(f"{address}/x.txt")


def test_a_fetch_removes_nothing_of_another(tmp_path: Path) -> None:
    """The other one, for which this process stands, begins while this one asks its server."""
    project = Project.new(tmp_path / "here")
    other = project.root / "data/raw/x.txt/a.txt"
    began = contextlib.ExitStack()

    class Source(Locked):
        def do_HEAD(self) -> None:
            if not other.exists():
                began.enter_context(Repo(str(project.root)).lock)
                other.parent.mkdir(parents=True)
                other.write_text("a text of which more comes")
            self.send_response(200)
            self.send_header("Content-Length", "6")
            self.end_headers()

    with serving(Source) as address, began:
        fetch = ("python", "-m", "tokenmill", "fetch", f"{address}/x.txt")
        project.run(*fetch, check=False)
        assert other.exists()
        assert "killed" not in project.run(*fetch, check=False)


def test_sigterm_ends_dvc_too(tmp_path: Path) -> None:
    project = Project.new(tmp_path / "here")
    began, ended = threading.Event(), threading.Event()

    class Source(Locked):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "6")
            self.end_headers()

        def do_GET(self) -> None:
            began.set()
            ended.wait(60)

    with serving(Source) as address:
        command = [sys.executable, "-m", "tokenmill", "fetch", f"{address}/x.txt"]
        with subprocess.Popen(command, cwd=project.root, env=project.env) as fetch:
            assert began.wait(60)
            fetch.terminate()
            assert fetch.wait(60) == 130
        with Repo(str(project.root)).lock:
            ended.set()


@pytest.mark.parametrize(
    ("files", "is_whole"),
    [
        ({"a.txt": "a text", "en/b.txt": "b text"}, True),
        ({"a.txt": "a text", "en/.git/b.txt": "b text"}, False),
        ({"a.txt": ""}, False),
    ],
)
def test_a_folder_comes_whole(files: dict[str, str], is_whole: bool, tmp_path: Path) -> None:
    project = Project.new(tmp_path / "here", remote=True)
    for name, text in files.items():
        path = tmp_path / "remote/books" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    leftover = project.root / f"data/raw/.{'a' * 22}.tmp"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    said = project.run(
        *("python", "-m", "tokenmill", "fetch", "remote://beside/books"), check=is_whole
    )
    assert "Traceback" not in said
    assert (project.root / "data/raw/books/a.txt").read_text() == files["a.txt"]
    assert not leftover.exists()


@pytest.mark.parametrize(
    ("files", "is_right"),
    [
        ({"bucket/books/a.txt": 1, "bucket/books/en/b.txt": 1}, True),
        ({"bucket/books/": 0, "bucket/books/en/": 0, "bucket/books/en/b.txt": 1}, True),
        ({"bucket/books/../../outside.txt": 1}, False),
        ({"bucket/books/en//b.txt": 1}, False),
        ({"bucket/books/..\\outside.txt": 1}, False),
        ({"bucket/books/a.txt": 1 << 60}, False),
        ({"bucket/books/a.txt": 1, "bucket/books/a.txt/more.txt": 1}, False),
    ],
)
def test_names_and_sizes_are_checked_before(
    files: dict[str, int], is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing: dict[str, Any] = {name: {"size": size} for name, size in files.items()}
    inner = SimpleNamespace(find=lambda *_, **__: listing)
    bucket = SimpleNamespace(isdir=lambda _: True, fs=inner)
    monkeypatch.setattr(dvc_fs, "parse_external_url", lambda _, **__: (bucket, "bucket/books"))
    if is_right:
        check_listing("s3://bucket/books")
    else:
        with pytest.raises(UserError):
            check_listing("s3://bucket/books")


def test_benchmarks_are_chosen_by_name_and_licence() -> None:
    def chosen(address: str, *, non_commercial: bool = False) -> list[str]:
        return benchmarks_of(f"benchmarks:{address}", non_commercial=non_commercial)

    assert chosen("piqa,arc_easy,piqa") == ["piqa", "arc_easy"]
    assert chosen("sciq", non_commercial=True) == ["sciq"]
    with pytest.raises(UserError, match=r"CC BY-NC 3\.0.*--non-commercial"):
        chosen("piqa,sciq")
    for address in ("", "piqa,", "nothing", "../piqa", "PIQA"):
        with pytest.raises(UserError, match="take some of arc_easy"):
            chosen(address)


def test_a_benchmark_of_one_s_own_is_kept(here: Path) -> None:
    (here / "data/benchmarks").mkdir(parents=True)
    (here / "data/benchmarks/piqa.jsonl").write_text("mine")
    with pytest.raises(SystemExit, match=r"piqa\.jsonl exists"):
        main(["fetch", "benchmarks:arc_easy,piqa"])
    assert [path.name for path in here.rglob("*.jsonl")] == ["piqa.jsonl"]
    (here / "data/benchmarks/csqa.jsonl.dvc").touch()
    with pytest.raises(SystemExit, match=r"dvc pull data/benchmarks/csqa\.jsonl"):
        main(["fetch", "benchmarks:csqa"])
    with pytest.raises(SystemExit, match="--name other"):
        main(["fetch", "benchmarks:boolq", "--name", "other"])
