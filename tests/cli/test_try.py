"""`tokenmill try`: what is written, which command runs, and how it ends."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.imports import ROOT
from tokenmill import git
from tokenmill.cli import summary
from tokenmill.cli.main import main
from tokenmill.core.params import PARAMS_FILE, read_yaml
from tokenmill.planning import benchmark

TRY = importlib.import_module("tokenmill.cli.try")  # its name is a word of Python


class Session:
    """What was run and opened at a terminal where `dvc repro` ends at once, with a code."""

    def __init__(self) -> None:
        self.code = 0
        self.ran: list[list[str]] = []
        self.opened: list[str] = []

    def passed_through(self, command: list[str]) -> int:
        """Note the command, and with which text it would run."""
        self.ran.append([*command[1:], read_yaml(PARAMS_FILE)["data"]["raw"]])
        return self.code


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Somebody in a committed project, with a text beside it."""
    (tmp_path / "a.txt").write_text("the old man and the sea went up to a hill\n" * 900)
    root = tmp_path / "project"
    root.mkdir()
    (root / PARAMS_FILE).write_text((ROOT / PARAMS_FILE).read_text())
    monkeypatch.chdir(root)
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@b commit -qm first"):
        git.execute(root, *command.split())
    session = Session()
    monkeypatch.setattr(benchmark, "step_timer", lambda _: lambda _: 0.1)
    monkeypatch.setattr(summary, "print_summary", lambda: session.opened.append("summary"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(TRY, "passed_through", session.passed_through)
    monkeypatch.setattr(TRY.webbrowser, "open", session.opened.append)
    return session


def test_it_fits_runs_and_opens_the_report(session: Session):
    main(["try", "../a.txt", "--minutes", "1"])
    text = Path("../a.txt").resolve()
    assert session.ran == [["-m", "dvc", "repro", text.as_posix()]]
    assert read_yaml(PARAMS_FILE)["tokenizer"]["vocab_size"] != 1024
    assert [Path(page).name for page in session.opened] == ["summary", "index.html"]


def test_your_own_edits_are_not_written_over(session: Session, capsys: pytest.CaptureFixture[str]):
    edited = PARAMS_FILE.read_text().replace("n_layer: 4", "n_layer: 5")
    PARAMS_FILE.write_text(edited)
    for is_staged in (False, True):
        if is_staged:
            git.execute(Path(), "add", str(PARAMS_FILE))
        with pytest.raises(SystemExit) as ended:
            main(["try", "../a.txt"])
        assert ended.value.code == 1
        assert PARAMS_FILE.read_text() == edited
        assert "--yes" in capsys.readouterr().out
        assert not session.ran
    main(["try", "../a.txt", "--yes"])
    assert session.ran


def test_no_browser_opens_where_nobody_looks(session: Session, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    main(["try", "../a.txt"])
    assert session.opened == ["summary"]


def test_a_pipeline_that_stops_ends_in_a_sentence(
    session: Session, capsys: pytest.CaptureFixture[str]
):
    session.code = 255
    with pytest.raises(SystemExit, match="255"):
        main(["try", "../a.txt"])
    assert not session.opened


@pytest.mark.parametrize("command", ["try", "fit"])
def test_a_path_that_is_no_text_is_refused(session: Session, command: str):
    before = PARAMS_FILE.read_text()
    with pytest.raises(SystemExit, match="nowhere"):
        main([command, "nowhere", "--minutes", "1"])
    assert PARAMS_FILE.read_text() == before
    assert not session.ran


def test_ctrl_c_belongs_to_the_program_that_runs(capfd: Any):
    program = "import os, signal; os.kill(os.getppid(), 2); print('saved', flush=True)"
    assert TRY.passed_through([sys.executable, "-c", program]) == 0
    assert capfd.readouterr().out == "saved\n"
