"""What `tokenmill watch` shows."""

import io
import itertools
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from rich.console import Console

from tests.imports import ROOT
from tests.runs.unfinished import begin
from tests.terminal import Terminal
from tokenmill.cli import watch
from tokenmill.cli.main import main
from tokenmill.cli.watch import PAGE, Watched, draw, found, newest_answers
from tokenmill.core.errors import UserError
from tokenmill.doctor.finding import ok, warning
from tokenmill.reports.charts import Series, line_chart

PROMPTS = """\
  prompts:
  - user: Who are you?
  - text: A text that is longer than one line of a terminal has columns, so it
      must be cut somewhere near here
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    params = (ROOT / "params.yaml").read_text(encoding="utf-8")
    before, line, after = params.partition("  prompts: auto")
    assert line
    (root / "params.yaml").write_text(before + PROMPTS.rstrip() + after, encoding="utf-8")
    return root


def shown(watched: Watched, width: int, height: int) -> list[str]:
    screen = Console(width=width, height=height, markup=False, highlight=False)
    with screen.capture() as captured:
        screen.print(watched.frame(width, height))
    return captured.get().splitlines()


def test_80_columns_and_24_lines_hold_all_of_it(project: Path):
    begin(project)
    watched = found(None, Console(quiet=True), once=True)
    watched.answers.update(watched.now, wait=True)
    assert watched.answers.problem == ""
    assert (watched.answers.step, watched.answers.rows[0][0]) == (15, "Who are you?")
    lines = shown(watched, 80, 24)
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "step 18 of 20" in text
    assert "90%" in text
    assert "loss 3.200" in text
    assert "validation 3.750" in text
    assert "lowest 3.750 at step 15" in text
    assert "at step 15:" in text
    assert "A text that is longer" in text
    assert "─●─ validation" in text
    assert sum(line.count("●") for line in lines) == 3, "two validations, and the legend"


def test_weights_that_were_removed_for_newer_ones_answer_no_more(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    begin(project)
    watched = found(None, Console(quiet=True), once=True)
    _, chosen = watched.now.weights() or (0, Path())
    told = project / "live/run.json"

    def save_meanwhile(folder: Path, weights: Path, tokenizer: Path) -> list[tuple[str, str]]:
        if weights == chosen:
            chosen.rename(chosen.with_name("step-000000018"))
            told.write_text(json.dumps(json.loads(told.read_text()) | {"saved": 18}))
        return newest_answers(folder, weights, tokenizer)

    monkeypatch.setattr(watch, "newest_answers", save_meanwhile)
    watched.answers.update(watched.now, wait=True)
    assert (watched.answers.step, watched.answers.problem) == (18, "")


@pytest.mark.parametrize(("width", "used"), [(40, 40), (200, 120)])
def test_it_has_one_width(project: Path, width: int, used: int):
    begin(project)
    watched = found(None, Console(quiet=True), once=True)
    assert max(map(len, shown(watched, width, 10))) <= used


def test_rows_come_before_the_first_validation(project: Path):
    begin(project)
    (project / "live/validation.csv").write_text("step,epoch,val_loss,val_bits_per_byte\n")
    watched = found(None, Console(quiet=True), once=True)
    assert "loss 3.200" in "\n".join(shown(watched, 80, 24))
    (project / "live/steps.csv").write_text("step,epoch,loss,learning_rate,gradient_norm\n")
    assert watched.look()
    assert "step 0 of 20" not in shown(watched, 80, 24)
    assert watched.write_page(reloads=True).exists()


def test_once_prints_and_ends(project: Path, capsys: pytest.CaptureFixture[str]):
    begin(project)
    main(["watch", "--once"])
    assert "step 18 of 20" in capsys.readouterr().out


def test_the_other_trainings_are_named(project: Path, capsys: pytest.CaptureFixture[str]):
    begin(project)
    begin(project, project / ".dvc/tmp/exps/tmp1", fingerprint="1" * 16)
    main(["watch", "--once", "tmp1"])
    said = capsys.readouterr().out
    assert "under way in the copy tmp1" in said
    assert "also under way: this workspace\n" in said


def test_a_terminal_that_draws_nothing_is_shown_it_once(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    screen = Terminal()
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", screen)
    begin(project)
    main(["watch"])
    assert "step 18 of 20" in screen.getvalue()
    assert "\x1b" not in screen.getvalue()


def test_an_end_during_the_answers_is_told(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    begin(project)
    monkeypatch.setattr(
        "tokenmill.cli.watch.newest_answers", lambda *_: (project / "live/run.json").unlink() or []
    )
    main(["watch", "--once"])
    assert "is finished" in capsys.readouterr().out


def test_ctrl_c_during_the_answers_ends_it_quietly(project: Path):
    """Python cannot stop the thread, and PyTorch aborts the process if Python ends under it."""
    begin(project)
    asking = """
        import os, signal, torch
        from tokenmill.cli import main, watch

        def answers(*_):
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                torch.ones(64, 64) @ torch.ones(64, 64)

        watch.newest_answers = answers
        main.main(["watch", "--once"])
    """
    command = [sys.executable, "-c", textwrap.dedent(asking)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "step 18 of 20" in done.stdout


def test_without_a_training_it_says_what_to_type(project: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(SystemExit, match="`dvc exp run`"):
        main(["watch"])
    begin(project)
    with pytest.raises(SystemExit, match="blest-jube"):
        main(["watch", "blest-jube"])


def test_it_waits_beside_a_training_that_stopped(project: Path, monkeypatch: pytest.MonkeyPatch):
    """DVC is at work on it, and has not yet come to the training. Between two stages it holds no
    lock."""
    begin(project)
    path = project / "live/run.json"
    is_on = path.read_text()
    path.write_text(json.dumps(json.loads(is_on) | {"fingerprint": "0" * 16, "started": 1.0}))
    at_work = warning("runs", "dvc repro", "wait")
    looks = itertools.chain([at_work, at_work], itertools.repeat(ok("runs", "none")))
    monkeypatch.setattr("tokenmill.doctor.environment.check_running", lambda _: next(looks))
    naps = itertools.chain([path.read_text()], itertools.repeat(is_on))
    monkeypatch.setattr("time.sleep", lambda _: path.write_text(next(naps)))
    assert found(None, Console(quiet=True), once=True).now.run.started == 1.0
    assert found(None, Console(quiet=True), once=False).now.is_on


def test_it_does_not_wait_where_the_lock_of_dvc_is_damaged(project: Path):
    lock = project / ".dvc/tmp/rwlock"
    lock.parent.mkdir(parents=True)
    lock.write_text("garbage")
    with pytest.raises(UserError, match=r"rwlock is damaged, .*`rm \.dvc/tmp/rwlock`"):
        found(None, Console(quiet=True), once=False)
    begin(project)
    assert found(None, Console(quiet=True), once=False).now.is_on


def test_the_end_is_told(project: Path):
    begin(project)
    watched = found(None, Console(quiet=True), once=True)
    (project / "live/run.json").unlink()
    with (project / "live/steps.csv").open("a") as file:
        file.write("20,1.33,2.5,0.0,1.0\n")
    assert not watched.look()
    lines = shown(watched, 80, 24)
    assert "is finished" in lines[0]
    assert "100%" in lines[2], "of the last row, which is written as the run ends"


def test_the_page_loads_itself_again_until_the_end(project: Path):
    begin(project)
    watched = found(None, Console(quiet=True), once=True)
    page = watched.write_page(reloads=True).read_text()
    assert '<meta http-equiv="refresh" content="5">' in page
    assert page.count("18 of 20") == 1, "one counter of steps"
    assert re.search(r'<progress [^>]*aria-label="[^"]+" value="18" max="20">', page)
    assert "<polyline" in page


@pytest.mark.parametrize("is_ended", [False, True], ids=["Ctrl-C", "end of the training"])
def test_the_last_page_does_not_load_itself_again(
    project: Path, monkeypatch: pytest.MonkeyPatch, is_ended: bool
):
    def pause(_: float) -> None:
        if not is_ended:
            raise KeyboardInterrupt
        (project / "live/run.json").unlink()

    begin(project)
    opened = []
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr("tokenmill.cli.watch.newest_answers", lambda *_: [])
    monkeypatch.setattr("webbrowser.open", lambda _: opened.append(PAGE.read_text()))
    monkeypatch.setattr("time.sleep", pause)
    main(["watch", "--open"])
    pages = [*opened, PAGE.read_text()]
    assert ['http-equiv="refresh"' in page for page in pages] == [True, False]
    leads = [re.findall('class="lead">(.*)</p>', page)[0] for page in pages]
    assert ["is finished" in lead for lead in leads] == [False, is_ended]
    assert [bool(re.search(r"as of \d\d:\d\d", lead)) for lead in leads] == [False, not is_ended]


@pytest.mark.parametrize(("seconds", "pause"), [(0.01, 1.0), (0.25, 5.0), (4.0, 10.0)])
def test_a_slow_update_is_rarer(
    project: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, pause: float
):
    def look(_: Watched) -> bool:
        nonlocal now
        now += seconds
        return len(pauses) < 3

    def sleep(length: float) -> None:
        nonlocal now
        now += length
        pauses.append(length)

    begin(project)
    watched = found(None, Console(quiet=True), once=True)
    now = 0.0
    pauses = list[float]()
    monkeypatch.setattr(Watched, "look", look)
    monkeypatch.setattr("tokenmill.cli.watch.newest_answers", lambda *_: [])
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr("time.sleep", sleep)
    watch._follow(watched, Console(file=io.StringIO()), with_page=False)
    assert pauses == pytest.approx([pause] * 3)


def test_weights_that_are_gone_are_no_end(project: Path):
    begin(project)
    watched = found(None, Console(quiet=True), once=True)
    (project / "data/tokenizer/tokenizer.json").unlink()
    watched.answers.update(watched.now, wait=True)
    assert "tokenizer.json" in watched.answers.problem
    assert shown(watched, 80, 24)


def test_a_curve_in_braille_falls_from_left_to_right():
    chart = line_chart(
        [Series([4.0, 3.0, 2.0], 1, "", [0, 5, 10])], x_label="step", y_label="loss", alt=""
    )
    lines = draw(chart, 40, 5)
    assert not any(line.style for line in lines[:-1]), "only the labels of the axis are dim"
    *rows, ticks = [text.plain for text in lines]
    assert len(rows) == 5
    assert max(map(len, [*rows, ticks])) <= 40
    filled = [[column for column, char in enumerate(row) if ord(char) >= 0x2800] for row in rows]
    assert filled[0][0] < filled[-1][-1]
    assert all(
        above[0] <= below[0] for above, below in itertools.pairwise(filled) if above and below
    )
    assert "10" in ticks
