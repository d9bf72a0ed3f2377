"""The GPU's marks: each met, missed or not measured; a part that fails or takes too long costs none of the others."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import Part, marks_of, run_part
from tests.bench.conftest import in_a_process

LADDER = [
    {"rung": "memory map", "seconds a step": 1.6, "times the first": 1.0, "utilisation": 0.03},
    {"rung": "TokenMill, GPT-2", "seconds a step": 0.09, "times the first": 17.8, "utilisation": 0.499},
    {"rung": "TokenMill", "seconds a step": 0.1, "times the first": 16.0, "utilisation": 0.45},
]
STEPS = [{"steps": "nanoGPT, bfloat16", "times the first": 1.0}, {"steps": "TokenMill", "times the first": 1.31}]
LOSS: list[dict[str, Any]] = [{"to the loss": "nanoGPT"}, {"tokens, times fewer": 2.5, "reached": True}]


def verdicts(**parts: Part) -> list[str]:
    return [mark.verdict for mark in marks_of({name.replace("_", " "): part for name, part in parts.items()})]


def test_marks_are_met_or_missed():
    steps = {"steps_64_x_512": Part(STEPS), "steps_16_x_1024": Part(STEPS)}
    met = verdicts(ladder=Part(LADDER), loss=Part(LOSS), **steps)
    assert met == ["met", "MISSED", "met", "met", "met"]
    assert verdicts(loss=Part([LOSS[0], LOSS[1] | {"reached": False}]))[-1] == "MISSED"


def test_what_was_not_measured_says_why():
    marks = verdicts(
        ladder=Part([*LADDER[:1], {"rung": "TokenMill", "left out": "OutOfMemoryError: …"}]),
        steps_64_x_512=Part(STEPS[1:]),
        steps_16_x_1024=Part(failed="not done in 180 s"),
    )
    assert marks == [
        "not measured: OutOfMemoryError: …",
        "not measured: there is no rung TokenMill, GPT-2",
        "not measured: nanoGPT did not run (--nanogpt)",
        "not measured: not done in 180 s",
        "not measured: not run",
    ]


@pytest.mark.parametrize(("code", "failed"), [("pass", None), ("1 / 0", "exit code 1, which the lines above explain")])
def test_a_part_gives_its_rows_or_says_that_it_failed(tmp_path: Path, code: str, failed: str | None):
    file = tmp_path / "rows.json"
    program = f"import pathlib; pathlib.Path({str(file)!r}).write_text('[1]'); {code}"
    part = run_part([sys.executable, "-c", program], file, limit=60)
    assert (part.rows, part.failed) == ([1], failed)


def test_a_part_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path):
    """Its child counts on as long as it lives."""
    count = tmp_path / "count"
    child = f"import itertools, pathlib\nfor i in itertools.count(): pathlib.Path({str(count)!r}).write_text(str(i))"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    part = run_part([sys.executable, "-c", program], tmp_path / "rows.json", limit=2)
    assert part.failed == "not done in 2 s"
    ended_at = count.read_text()
    time.sleep(0.3)
    assert count.read_text() == ended_at


@pytest.mark.slow
def test_one_command_runs_all_parts_and_prints_all_marks(tmp_path: Path):
    (tmp_path / "text.txt").write_text("Now is the winter of our discontent.\n" * 500, encoding="utf-8")
    done = in_a_process("gpu", "--tiny", "--text", tmp_path / "text.txt", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "out" / "figures.json").read_text())
    assert len(figures["marks"]) == 5
    assert not [part["failed"] for part in figures["parts"].values() if part["failed"]]
    lines = done.stdout.splitlines()[-5:]
    assert [line.split("  ")[0] for line in lines] == [mark["name"] for mark in figures["marks"]]
    assert lines[2].endswith("not measured: nanoGPT did not run (--nanogpt)")
