"""The GPU's marks: each met, missed or not measured; a part that fails or takes too long costs none of the others."""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import Part, marks_of, run_part
from bench.rungs import RUNGS
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


@dataclass(frozen=True)
class Run:
    """What one tiny run printed, and the folder that it wrote to."""

    lines: list[str]
    folder: Path

    def json(self, name: str) -> Any:
        return json.loads((self.folder / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The ladder and the peers are run by it, too."""
    here = tmp_path_factory.mktemp("gpu")
    (here / "text.txt").write_text("Now is the winter of our discontent.\n" * 500, encoding="utf-8")
    done = in_a_process("gpu", "--tiny", "--text", here / "text.txt", "--output", here / "out")
    assert done.returncode == 0, done.stderr
    return Run(done.stdout.splitlines(), here / "out")


@pytest.mark.slow
def test_one_command_runs_all_parts_and_prints_all_marks(tiny: Run):
    figures = tiny.json("figures")
    assert len(figures["marks"]) == 5
    assert not [part["failed"] for part in figures["parts"].values() if part["failed"]]
    assert [line.split("  ")[0] for line in tiny.lines[-5:]] == [mark["name"] for mark in figures["marks"]]
    assert tiny.lines[-3].endswith("not measured: nanoGPT did not run (--nanogpt)")


@pytest.mark.slow
def test_the_ladder_has_a_row_for_each_rung_and_a_picture(tiny: Run):
    rows = tiny.json("ladder")
    assert [row["rung"] for row in rows] == list(RUNGS)
    assert all(row["tokens/s"] > 0 < row["utilisation"] for row in rows if "left out" not in row)
    assert rows[0]["original, s"] == 1.6
    table = next(number for number, line in enumerate(tiny.lines) if line.startswith("rung "))
    assert tuple(line.split("  ")[0] for line in tiny.lines[table + 1 : table + 1 + len(RUNGS)]) == RUNGS
    assert (tiny.folder / "ladder.svg").read_text().lstrip().startswith("<?xml")


@pytest.mark.slow
def test_without_a_checkout_the_peers_benchmark_says_so_and_runs_alone(tiny: Run):
    assert [line for line in tiny.lines if line.startswith("no --nanogpt PATH: TokenMill runs alone")]
    (to_the_loss,) = tiny.json("loss")
    assert to_the_loss["to the loss"] == "TokenMill"
    assert all(row["tokens/s"] > 0 for row in tiny.json("steps-64-x-512"))
