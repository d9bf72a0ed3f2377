"""`tokenmill doctor` on real projects: healthy ones, and each thing that may be wrong."""

import importlib.metadata
import io
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.pipeline.project import Project
from tokenmill.cli.main import main
from tokenmill.commands import doctor
from tokenmill.doctor import dvc
from tokenmill.doctor.finding import Finding
from tokenmill.doctor.run import examine


@pytest.fixture(autouse=True)
def _activated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def found(project: Project) -> dict[str, Finding]:
    findings = list(examine(project.root))
    assert len({finding.name for finding in findings}) == len(findings)
    for finding in findings:
        assert (finding.mend is None) == (finding.level == "ok"), finding
    return {finding.name: finding for finding in findings}


def wrong(project: Project) -> dict[str, Finding]:
    """What is not well, but that nothing has run yet."""
    return {name: f for name, f in found(project).items() if f.level != "ok" and name != "pipeline"}


def levels(findings: dict[str, Finding]) -> dict[str, str]:
    return {name: finding.level for name, finding in findings.items()}


def test_a_fresh_project_is_well_and_looking_changes_nothing(project: Project):
    before = project.digest(".git/HEAD", ".dvc/config", "params.yaml", "dvc.yaml", "src")
    listed = {path for path in project.root.rglob("*") if ".dvc/tmp" not in path.as_posix()}
    findings = found(project)
    assert wrong(project) == {}
    stages = "sample, clean, tokenizer, tokenize, unpack, data_report, train, evaluate, report"
    assert findings["pipeline"] == Finding("warning", "pipeline", f"to run: {stages}", "dvc repro")
    assert findings["device"].text.startswith("cpu (")
    assert findings["packages"].text.startswith("all ")
    assert findings["text"].text.startswith("the built-in 200 conversations")
    assert "estimated" in findings["disk"].text
    assert {path for path in project.root.rglob("*") if ".dvc/tmp" not in path.as_posix()} == listed
    assert project.digest(".git/HEAD", ".dvc/config", "params.yaml", "dvc.yaml", "src") == before


def test_exit_code_and_lines(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(project.root)
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 warning, nothing that stops a run"
    assert "\n                      → dvc repro" in "\n".join(lines)
    project.set(model__n_head=3)
    with pytest.raises(SystemExit) as error:
        main(["doctor"])
    assert error.value.code == 1
    shown = capsys.readouterr().out
    assert "✗ problem  parameters " in shown
    assert "model.n_head (3) must divide model.n_embd (16)" in shown
    assert shown.endswith("1 problem, 2 warnings\n"), "params.yaml is not committed either"


def test_colour_is_for_terminals(monkeypatch: pytest.MonkeyPatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    finding = Finding("problem", "disk", "full", "make room")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert doctor.line(finding, Terminal()).count("\033[31m") == 2
    assert "\033" not in doctor.line(finding, io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in doctor.line(finding, Terminal())


def test_every_problem_of_params_yaml_is_told(project: Project):
    project.set(model__n_layer=0, train__batch_size=0)
    project.commit()
    (finding,) = wrong(project).values()
    assert finding.name == "parameters"
    assert "params.yaml has 2 problems" in finding.text
    assert "model.n_layer (0)" in finding.text


def test_a_text_that_is_not_there(project: Project):
    project.set(data__raw="/nowhere/at/all")
    project.commit()
    findings = wrong(project)
    assert levels(findings) == {"text": "problem"}
    assert "data.raw (/nowhere/at/all) does not exist" in findings["text"].text


def test_versions_are_compared_with_the_pins(project: Project):
    pyproject, there = project.root / "pyproject.toml", importlib.metadata.version("tqdm")
    text = pyproject.read_text().replace(f"tqdm=={there}", "tqdm==0.0.1")
    pyproject.write_text(text)
    findings = wrong(project)
    assert levels(findings) == {"packages": "warning"}
    assert findings["packages"].text == f"not the tested versions: tqdm {there} instead of 0.0.1"
    assert "pip install -c constraints.txt" in (findings["packages"].mend or "")
    pyproject.write_text(text.replace('"tqdm==0.0.1"', '"tqdm==0.0.1", "never-heard-of-it==1.0"'))
    assert wrong(project)["packages"].text == "missing: never-heard-of-it"


def test_another_python_on_the_path(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    findings = wrong(project)
    assert levels(findings) == {"python": "problem"}
    assert f"the stages would run by {tmp_path / 'bin' / 'python'}" in findings["python"].text


class TestGit:
    """Commits."""

    def test_a_dirty_lock_and_metrics_that_are_in_no_commit(self, project: Project):
        (project.root / "dvc.lock").write_text("schema: '2.0'\n")
        project.commit()
        assert wrong(project) == {}
        (project.root / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
        (project.root / "metrics").mkdir(exist_ok=True)
        (project.root / "metrics" / "new one.json").write_text("{}")
        (project.root / "notes.txt").write_text("mine")
        findings = wrong(project)
        assert levels(findings) == {"commit": "warning"}
        assert findings["commit"].text == "not committed: dvc.lock, metrics/new one.json"
        assert findings["commit"].mend == "git add -A && git commit"

    def test_no_branch(self, project: Project):
        project.run("git", "checkout", "-q", "--detach")
        assert levels(wrong(project)) == {"git": "warning"}

    def test_no_repository(self, project: Project):
        shutil.rmtree(project.root / ".git")
        findings = wrong(project)
        assert levels(findings) == {"git": "problem", "dvc": "problem"}


class TestRemote:
    """The remote."""

    def remote(self, project: Project, url: str) -> Finding:
        project.run("dvc", "remote", "modify", "beside", "url", url)
        return found(project)["remote"]

    def test_a_folder_that_is_there_and_one_that_will_be(self, project: Project, tmp_path: Path):
        assert self.remote(project, str(tmp_path)).text == f"beside, {tmp_path}"
        coming = self.remote(project, str(tmp_path / "a" / "b"))
        assert coming.level == "ok"
        assert "which the first `dvc push` makes" in coming.text
        assert not (tmp_path / "a").exists()

    def test_a_folder_that_cannot_be(self, project: Project, tmp_path: Path):
        (tmp_path / "file").touch()
        finding = self.remote(project, str(tmp_path / "file" / "remote"))
        assert finding.level == "problem"
        assert f"cannot be made, because {tmp_path / 'file'} is no folder" in finding.text
        assert "dvc remote modify beside url FOLDER" in (finding.mend or "")

    @pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may write everywhere")
    def test_a_folder_that_may_not_be_written(self, project: Project, tmp_path: Path):
        tmp_path.joinpath("locked").mkdir(mode=0o500)
        assert "cannot be written" in self.remote(project, str(tmp_path / "locked")).text

    def test_a_kind_that_dvc_lacks_a_package_for(self, project: Project):
        finding = self.remote(project, "gs://bucket/path")
        assert (finding.level, finding.mend) == ("problem", "pip install dvc-gs")

    def test_nobody_answers(self, project: Project, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(dvc, "PATIENCE", 0.5)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            finding = self.remote(project, f"http://127.0.0.1:{silent.getsockname()[1]}/data")
        assert finding.level == "problem"
        assert "did not answer within" in finding.text

    def test_none_and_a_wrong_default(self, project: Project):
        project.run("dvc", "config", "core.remote", "elsewhere")
        assert "elsewhere is the default, but there is beside" in found(project)["remote"].text
        project.run("dvc", "config", "--unset", "core.remote")
        assert found(project)["remote"].level == "warning"


class TestRoom:
    """Disk and memory."""

    def full(self, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
        usage: Any = shutil.disk_usage("/")
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))

    def test_a_disk_that_is_too_small_or_nearly(self, project: Project, monkeypatch: pytest.MonkeyPatch):
        project.set(model__n_layer=4, model__n_embd=256, train__epochs=3)
        project.commit()
        need = 3_000_000 * 4 * (3 + 3 * 4)  # 3 epochs, 4 checkpoints of weights and two moments
        self.full(monkeypatch, need // 2)
        findings = wrong(project)
        assert levels(findings) == {"disk": "problem"}
        assert "checkpoints" in findings["disk"].text
        assert "runtime.checkpoint.keep" in (findings["disk"].mend or "")
        self.full(monkeypatch, need * 4)
        assert wrong(project) == {}

    def test_a_cache_on_another_disk_takes_the_outputs_twice(self, project: Project):
        shm = Path("/dev/shm")  # noqa: S108 (a second file system, where there is one)
        if not shm.is_dir() or shm.stat().st_dev == project.root.stat().st_dev:
            pytest.skip("no second file system here")
        project.run("dvc", "config", "cache.type", "hardlink,copy")
        project.run("dvc", "cache", "dir", str(shm / f"tokenmill-test-{os.getpid()}"))
        findings = list(examine(project.root))
        by_name = {finding.name: finding for finding in findings}
        assert by_name["cache"].level == "warning"
        assert "every output lies on the disk twice" in by_name["cache"].text
        disks = [finding for finding in findings if finding.name == "disk"]
        assert len(disks) == 2
        assert str(shm) in disks[1].text

    def test_a_model_that_memory_does_not_hold(self, project: Project, monkeypatch: pytest.MonkeyPatch):
        memory = psutil.virtual_memory()
        monkeypatch.setattr("psutil.virtual_memory", lambda: memory._replace(available=10_000))
        findings = wrong(project)
        assert levels(findings) == {"memory": "problem"}
        assert "with 1 sequences at a time, 10 kB of" in findings["memory"].text


class TestRuns:
    """Other runs and their leftovers."""

    @pytest.fixture
    def other(self) -> Iterator["subprocess.Popen[bytes]"]:
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "dvc repro"]) as process:
            yield process
            process.kill()

    def lock(self, project: Project, text: str) -> None:
        (project.root / ".dvc" / "tmp").mkdir(exist_ok=True)
        (project.root / ".dvc" / "tmp" / "rwlock").write_text(text)

    def test_one_at_work_is_named_and_a_dead_one_is_not(self, project: Project, other: "subprocess.Popen[bytes]"):
        holder = {"pid": other.pid, "cmd": "dvc repro"}
        self.lock(project, json.dumps({"write": {"models/gpt": holder}, "read": {"data/tokens": [holder]}}))
        finding = dvc.check_running(project.root)
        assert (finding.level, finding.text) == ("warning", f"at work here: dvc repro (process {other.pid})")
        other.kill()
        other.wait()
        assert dvc.check_running(project.root).level == "ok"

    def test_a_damaged_lock(self, project: Project):
        self.lock(project, '{"write": ')
        finding = dvc.check_running(project.root)
        assert finding.level == "problem"
        assert finding.mend == f"rm {project.root / '.dvc/tmp/rwlock'}"

    def test_what_a_killed_run_left(self, project: Project):
        (project.root / "data" / ".clean.tmp").mkdir(parents=True)
        (project.root / "data" / ".clean.tmp" / ".part.tmp").write_bytes(b"x" * 5000)
        (project.root / ".resume" / "abc" / ".step-000000007.tmp").mkdir(parents=True)
        findings = wrong(project)
        assert levels(findings) == {"leftovers": "warning"}
        text = "half-written by a killed run: .resume/abc/.step-000000007.tmp, data/.clean.tmp (5 kB)"
        assert findings["leftovers"].text == text

    def test_a_pipeline_that_dvc_cannot_read(self, project: Project):
        (project.root / "dvc.yaml").write_text("stages: {train: {deps: 3}}\n")
        project.commit()
        findings = wrong(project) | {"pipeline": found(project)["pipeline"]}
        assert levels(findings) == {"pipeline": "problem"}

    def test_it_does_not_wait_for_a_long_comparison(self, project: Project, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(dvc, "PATIENCE", 0.0)
        assert found(project)["pipeline"].text.startswith("not compared: that takes more than")


@pytest.mark.slow
def test_what_was_said_to_be_written_is_what_is_written(finished: Project):
    """The estimate against the bytes of a real run, by part; afterwards nothing is to be written."""
    from tokenmill.core.token_file import read_metadata  # noqa: PLC0415
    from tokenmill.doctor.disk import needs  # noqa: PLC0415
    from tokenmill.schema import check_all  # noqa: PLC0415

    def size(pattern: str) -> int:
        return sum(path.stat().st_size for path in finished.root.glob(pattern) if path.is_file())

    params = check_all(finished.root / "params.yaml")
    text = size("data/raw/sample/*")
    stages = ("clean", "tokenize", "unpack", "train")
    before = needs(params, text=text, tokens=None, to_run=stages)
    after = needs(params, text=0, tokens=read_metadata(finished.root / "data/tokens"), to_run=stages)
    assert before.estimated
    assert not after.estimated
    assert after.parts["tokens"] == size("data/tokens/*.bin")
    assert after.parts["weights of the epochs"] == pytest.approx(size("models/gpt/epoch-*/model.safetensors"), rel=0.05)
    newest = max((finished.root / ".resume").glob("*/step-*"))
    checkpoint = sum(path.stat().st_size for path in newest.glob("*.safetensors"))
    assert after.parts["checkpoints"] == pytest.approx(4 * checkpoint, rel=0.1)
    assert size(".resume/*/step-*/*.safetensors") <= after.parts["checkpoints"]
    for part, pattern in (
        ("clean text", "data/clean/*"),
        ("packed tokens", "data/packed/*"),
        ("tokens", "data/tokens/*"),
    ):
        assert size(pattern) / 3 < before.parts[part] < 3 * size(pattern), part
    assert found(finished)["pipeline"].level == "ok"
    assert found(finished)["disk"].text.startswith("nothing to write; ")
    assert wrong(finished) == {}
