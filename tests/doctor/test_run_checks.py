"""All checks on real projects, and the command's lines and exit code."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.pipeline.project import Project as Repository
from tokenmill.cli.main import main
from tokenmill.doctor.checks import run_checks
from tokenmill.doctor.finding import Finding


@pytest.fixture(autouse=True)
def _activated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Test")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "test@example.org")


def found(repository: Repository) -> dict[str, Finding]:
    findings = list(run_checks(repository.root))
    assert len({finding.name for finding in findings}) == len(findings)
    for finding in findings:
        assert (finding.fix is None) == (finding.level == "ok"), finding
    return {finding.name: finding for finding in findings}


def test_fresh_project_is_well_and_stays_as_it_is(project: Repository):
    before = project.digest(".git/HEAD", ".dvc/config", "params.yaml", "dvc.yaml", "src")
    listed = {path for path in project.root.rglob("*") if ".dvc/tmp" not in path.as_posix()}
    findings = found(project)
    stages = (
        "check, sample, clean, tokenizer, tokenize, unpack, index, data_report, train, evaluate, "
        "trace, benchmark, report"
    )
    assert findings.pop("pipeline") == Finding(
        "warning", "pipeline", f"to run: {stages}", "dvc repro"
    )
    assert {finding.level for finding in findings.values()} == {"ok"}, findings
    assert {path for path in project.root.rglob("*") if ".dvc/tmp" not in path.as_posix()} == listed
    assert project.digest(".git/HEAD", ".dvc/config", "params.yaml", "dvc.yaml", "src") == before


def test_a_folder_that_is_no_project_gets_no_advice(here: Path):
    with pytest.raises(SystemExit, match=rf"{re.escape(str(here))} is no project"):
        main(["doctor"])


def test_command_lists_findings_and_exits_with_1_on_a_problem(
    project: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(project.root)
    main(["doctor"])
    assert "→ dvc repro" in capsys.readouterr().out
    project.set(model__n_head=3)
    with pytest.raises(SystemExit) as error:
        main(["doctor"])
    assert error.value.code == 1
    shown = capsys.readouterr().out
    assert "✗ problem  parameters " in shown
    assert "model.n_head (3) must divide model.n_embd (16)" in shown
    assert shown.endswith("1 problem, 2 warnings\n"), "params.yaml is not committed either"


@pytest.mark.slow
def test_finished_project_has_nothing_to_run(finished: Repository):
    findings = found(finished)
    assert {finding.level for finding in findings.values()} == {"ok"}, findings
    assert findings["disk"].text.startswith("nothing to write; ")
