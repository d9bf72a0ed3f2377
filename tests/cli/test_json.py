"""`--json`: the fields are those that docs/programs.md states, all of them and no other."""

import contextlib
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.imports import ROOT
from tests.pipeline.project import Project
from tests.reports.html_page import Page
from tests.runs.unfinished import begin
from tests.training.tiny import write_tokens
from tokenmill.cli.main import main
from tokenmill.display import print_record
from tokenmill.runs.comparison import find_epochs

DOCUMENT = (ROOT / "docs/programs.md").read_text(encoding="utf-8")


def stated(command: str) -> set[str]:
    """The fields in the first column of the command's table."""
    section = DOCUMENT.split(f"## `tokenmill {command} --json`\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {field for row in rows for field in re.findall(r"`([^`]+)`", row)}


def fields(value: Any, name: str = "") -> Iterator[str]:
    """The names of everything in a record, as the document writes them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from fields(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for inner in value:
            yield from fields(inner, f"{name}[]")
    else:
        yield name


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """What a command prints with `--json`, and nothing else on stdout."""

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        with contextlib.suppress(SystemExit):  # doctor's, where it finds a problem
            main([*arguments, "--json"])
        return json.loads(capsys.readouterr().out)

    return run


def test_plan(printed: Callable[..., Any], here: Path) -> None:
    shutil.copy(ROOT / "params.yaml", here)
    timed = ["--hardware", "A100", "--step-seconds", "0.1"]
    plan = printed("plan", "--preset", "phase3", *timed)
    assert plan["mixture"] == []
    write_tokens(here / "data/tokens", sequences=100, sources=("a", "b"))
    mixed = printed("plan", "-S", "data.mixture={a: 2}", *timed)
    assert set(fields(mixed)) == stated("plan")
    assert [(one["source"], one["tokens"]) for one in mixed["mixture"]] == [("a", 402), (None, 401)]
    assert set(fields(plan)) == {name for name in stated("plan") if "mixture" not in name}
    assert plan["parameters"] == 134_601_216
    assert [row["name"] for row in plan["rows"]] == ["A100"]
    assert plan["reached"]["step_seconds"] == 0.1
    assert plan["reached"]["shares"] == [{"name": "A100", "share": pytest.approx(0.75, abs=0.005)}]
    assert printed("plan", "--preset", "phase3", "--hardware", "A100")["reached"] is None


def test_compare(
    printed: Callable[..., Any], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    found = printed("compare", "epoch-1", "epoch-2")
    assert set(fields(found)) <= stated("compare")
    assert [column["epoch"] for column in found["columns"]] == [1, 2]
    assert found["columns"][1] == {
        "name": "epoch-2",
        "same": [],
        "epoch": 2,
        "epochs": 3,
        "train_loss": 2.0,
        "val_loss": 2.5,
        "perplexity": 1234.5 / 2,
        "bits_per_byte": 1.25,
        "right": 1,
        "asked": 2,
        "repetition": 0.0,
        "steps": 40,
        "tokens": 40 * 2048,
        "parameters": 57_344,
    }
    first = found["prompts"][0]
    assert (first["prompt"], first["expect"]) == (
        "What is the capital of France?",
        "France is Paris",
    )
    assert [answer["greedy"] for answer in first["answers"]] == [
        "The capital of Spain is Madrid.",
        "The capital of France is Paris.",
    ]
    assert {len(prompt["answers"]) for prompt in found["prompts"]} == {2}
    missing = stated("compare") - set(fields(found))
    assert missing <= {
        "columns[].same[]",
        "prompts[].answers[]",
        "settings[].name",
        "settings[].values[]",
    }


def test_compare_all(
    printed: Callable[..., Any], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    first, last = find_epochs(workspace, [])
    found = [replace(first, same=["twin"]), last]
    monkeypatch.setattr("tokenmill.runs.table.names_of_runs", lambda *_, **__: [])
    monkeypatch.setattr("tokenmill.runs.comparison.find_all", lambda *_: found)
    assert [column["same"] for column in printed("compare", "--all")["columns"]] == [["twin"], []]
    assert "twin" in Page((workspace / "reports/compare.html").read_text()).words


def test_trace(
    printed: Callable[..., Any], finished: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.root)
    text = "What is the capital of France?"
    found = printed("trace", text, "--words", "2")
    assert set(fields(found)) == stated("trace")
    assert found["text"] == text
    assert found["copied"] == found["words"] == 6


def to_a_tracker(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, dict[str, float]]]:
    """Steps and rows that the document's script logs in this folder."""
    logged = []
    tracker = ModuleType("trackio")
    tracker.__dict__.update(
        init=lambda **_: None,
        log=lambda row, step: logged.append((step, row)),
        finish=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "trackio", tracker)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (script,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    exec(script, {})  # noqa: S102 (our own document)
    return logged


@pytest.mark.slow
def test_a_finished_project(
    printed: Callable[..., Any], finished: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.root)
    summary = printed("summary")
    assert set(fields(summary)) | {"warnings[]"} == stated("summary") | {"warnings[]"}
    assert summary["state"] == "finished"
    assert [epoch["epoch"] for epoch in summary["epochs"]] == [1, 2]
    runs = printed("runs")["runs"]
    assert set(fields(runs, "runs")) == stated("runs")
    assert (runs[0]["run"], runs[0]["epochs"]) == ("workspace", 2)
    logged = to_a_tracker(monkeypatch)
    assert {step for step, row in logged if "val_loss" in row} == {
        round(epoch["epoch"] * logged[-1][0] / 2) for epoch in summary["epochs"]
    }
    assert all(("loss" in row) != ("val_loss" in row) for _, row in logged)
    findings = printed("doctor")["findings"]
    assert set(fields(findings, "findings")) == stated("doctor")
    assert "ok" in {finding["level"] for finding in findings}


def test_a_training_that_is_not_finished(printed: Callable[..., Any], here: Path) -> None:
    begin(here)
    summary = printed("summary")
    assert set(fields(summary)) < stated("summary")
    assert (summary["state"], summary["epochs"][0]["val_loss"]) == ("training", 4.25)


def test_foreign_text_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_record({"name": "\x1b[2J\u202e"})
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out) == {"name": "\x1b[2J\u202e"}


def test_a_number_that_json_does_not_have_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_record({"epochs": [{"perplexity": math.inf, "val_loss": 701.5}], "cost": math.nan})
    record = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert record == {"epochs": [{"perplexity": None, "val_loss": 701.5}], "cost": None}
