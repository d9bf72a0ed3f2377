"""`tokenmill compare` as a person types it."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reports.html_page import Page
from tests.terminal import Terminal
from tokenmill.cli.main import main

COMPARE = [sys.executable, "-W", "error", "-m", "tokenmill", "compare"]


def env(**more: str) -> dict[str, str]:
    return (
        {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        | {"COLUMNS": "90"}
        | more
    )


def test_compare_prints_and_writes_a_page(workspace: Path):
    done = subprocess.run(
        [*COMPARE, "epoch-1", "epoch-2"], cwd=workspace, env=env(), capture_output=True, check=True
    )
    text = done.stdout.decode()
    assert text.splitlines()[0].split() == ["epoch-1", "epoch-2"]
    assert "{+France+}" in text
    assert text.endswith("as a page: reports/compare.html\n")
    page = Page((workspace / "reports/compare.html").read_text())
    page.assert_self_contained()
    assert "epoch-1 and epoch-2" in page.words


def test_no_number_is_broken_in_a_narrow_terminal(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(workspace)
    shown = []
    for width in ("45", "200"):
        monkeypatch.setenv("COLUMNS", width)
        monkeypatch.setattr(sys, "stdout", terminal := Terminal())
        main(["compare", "epoch-1", "workspace:2", "workspace"])
        table, *_ = terminal.getvalue().split("\n\n* the best")
        shown.append(set(table.split()))
    assert shown[0] == shown[1]


def test_wrong_name_is_an_error_and_no_page(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(workspace)
    with pytest.raises(
        SystemExit, match=r"^error: there is no epoch 7 in workspace: it has epochs 1 to 3\.$"
    ):
        main(["compare", "epoch-7"])
    assert capsys.readouterr() == ("", "")
    assert not (workspace / "reports/compare.html").exists()


def test_all_goes_without_names(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(workspace)
    with pytest.raises(SystemExit, match="leave out epoch-1 epoch-2"):
        main(["compare", "--all", "epoch-1", "epoch-2"])


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pty")
@pytest.mark.parametrize(("more", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_only_on_terminals_without_no_color(
    workspace: Path, more: dict[str, str], coloured: bool
):
    leader, follower = pty.openpty()
    with subprocess.Popen(COMPARE, cwd=workspace, env=env(**more), stdout=follower) as process:
        os.close(follower)
        text = b""
        while piece := read(leader):
            text += piece
    os.close(leader)
    assert process.returncode == 0
    assert (b"\033[1;32mFrance\033[0m" in text) == coloured


def read(terminal: int) -> bytes:
    """What comes next; nothing at the end, which Linux tells by an error."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""
