"""`tokenmill generate`: an answer, several, a pipe, errors, and a chat on a real terminal with
Ctrl-C."""

import io
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.evaluation.trained import make_tokenizer_file
from tests.fresh import COMPILER, imported_by
from tests.imports import ROOT
from tests.runs.finished import write_models
from tokenmill.cli.main import main

pytestmark = pytest.mark.slow
RATE = re.compile(r"^[\d,]+ tokens in [\d.]+ s, [\d,]+ tokens/s$", re.MULTILINE)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work tree with models of two epochs, as far as this command looks."""
    root = tmp_path_factory.mktemp("project")
    make_tokenizer_file(root / "data", "bpe").rename(root / "tokenizer.json")
    (root / "data/tokenizer").mkdir(parents=True)
    (root / "tokenizer.json").rename(root / "data/tokenizer/tokenizer.json")
    # With this seed the likeliest tokens go round without a special one, so no answer ends
    write_models(root, seed=3, epochs=2)
    (root / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    return root


@dataclass(frozen=True)
class Said:
    """What the command wrote."""

    out: str
    err: str


@pytest.fixture
def generate(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Said]]:
    """The command in this process, in the project."""
    monkeypatch.chdir(project)
    threads = torch.get_num_threads()

    def run(*arguments: str, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        main(["generate", *arguments])
        said = capsys.readouterr()
        return Said(said.out, said.err)

    yield run
    torch.set_num_threads(threads)


Generate = Callable[..., Said]


def test_an_answer_imports_no_compiler_and_no_dvc(project: Path):
    found = imported_by(
        "-m", "tokenmill", "generate", "--text", "one", "--max-new-tokens", "3", cwd=project
    )
    assert {"torch", "tokenmill.runs.writer"} <= found
    assert not (COMPILER | {"dvc", "polars", "matplotlib"}) & found


def test_answers_go_to_stdout_and_their_speed_to_stderr(generate: Generate):
    one = generate("--text", "one", "--max-new-tokens", "9")
    assert one.out.endswith("\n")
    assert RATE.fullmatch(one.err.strip()), one.err
    assert one.err.startswith("9 tokens ")
    several = generate("--text", "one", "--max-new-tokens", "9", "--samples", "2")
    assert several.out.startswith(one.out)
    assert len(several.out) > len(one.out)
    assert several.err.startswith("18 tokens ")
    earlier = generate("--text", "one", "--max-new-tokens", "9", "--epoch", "1")
    folder = "models/gpt/epoch-1"
    file = "data/tokenizer/tokenizer.json"
    named = generate(
        "--text", "one", "--max-new-tokens", "9", "--model", folder, "--tokenizer", file
    )
    assert earlier.out == named.out != one.out


def test_the_model_reads_what_clean_would_write(generate: Generate):
    for argument in ("--text", "--"):
        typed, clean = (
            generate("--max-new-tokens", "6", argument, text).out for text in ("“one”…", '"one"...')
        )
        assert typed == clean


def test_each_line_of_a_pipe_is_a_question(generate: Generate):
    lines = generate("--max-new-tokens", "6", "--temperature", "0", stdin=b"one?\n\ntwo\xff")
    alone = [
        generate("--max-new-tokens", "6", "--temperature", "0", text)
        for text in ("one?", "two\ufffd")
    ]
    assert lines.out == "".join(said.out for said in alone)
    assert len(RATE.findall(lines.err)) == 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("a", "--text", "b"), ("--text",)),
        (("a", "--epoch", "3"), ("epoch 3", "1 to 2")),
        (("a", "--temperature", "-1"), ("temperature", "-1.0")),
        (("a", "--rev", "HEAD"), ("git",)),
    ],
)
def test_a_mistake_names_the_value(
    generate: Generate, arguments: tuple[str, ...], named: tuple[str, ...]
):
    with pytest.raises(SystemExit) as error:
        generate(*arguments)
    sentence = str(error.value)
    assert sentence.startswith("error: ")
    assert all(name in sentence for name in named), sentence


@dataclass
class Person:
    """Somebody at a terminal: what they see and type."""

    process: subprocess.Popen[bytes]
    seen: str = ""

    def type(self, text: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(text.encode())

    def wait(self, pattern: str, seconds: float = 90) -> str:
        """Read on until `pattern` appears; give what came up to it."""
        assert self.process.stdout
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < end, f"{pattern!r} never came after {self.seen!r}"
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                self.seen += os.read(self.process.stdout.fileno(), 4096).decode("utf-8", "replace")
        before = self.seen[: found.end()]
        self.seen = self.seen[found.end() :]
        return before


@pytest.fixture
def terminal(project: Path) -> Iterator[Person]:
    """The chat in a terminal of its own; the likeliest tokens of this model never end."""
    spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    chat = [
        sys.executable,
        "-m",
        "tokenmill",
        "generate",
        "--max-new-tokens",
        "200000",
        "--temperature",
        "0",
    ]
    with subprocess.Popen(
        [sys.executable, "-c", spawn, *chat],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "TERM": "dumb"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:
        yield Person(process)
        process.kill()


def test_ctrl_c_stops_the_answer_and_not_the_chat(terminal: Person):
    assert "epoch 2; /reset begins anew, /quit or Ctrl-D leaves" in terminal.wait("> ")
    for _ in range(2):
        terminal.type("one?\n")
        terminal.wait(r"one\?\r\n")
        terminal.wait("(?s).{50}")
        terminal.type("\x03")
        terminal.wait("stopped")
        terminal.wait("> ")
    terminal.type("/what\n")
    assert "there is no /what; " in terminal.wait(r"stops an\s+answer")
    terminal.wait("> ")
    terminal.type("half a line")
    terminal.wait("half a line")
    time.sleep(0.5)  # Python misses a signal just before it waits for the next key
    terminal.type("\x03")
    terminal.wait("> ")
    assert terminal.process.poll() is None
    terminal.type("/reset\n")
    terminal.wait("> ")
    terminal.type("\x04")
    assert terminal.process.wait(30) == 0


def test_quit_leaves(terminal: Person):
    terminal.wait("> ")
    terminal.type("/quit\n")
    assert terminal.process.wait(30) == 0
