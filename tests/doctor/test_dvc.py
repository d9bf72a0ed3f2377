"""Checks of DVC's repository, cache and remote, and of other runs."""

import errno
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from shlex import quote
from threading import Event
from unittest.mock import Mock

import pytest
from dvc.lock import LockError

from tests.doctor.small import opened, single
from tests.imports import ROOT
from tests.pipeline.project import Project as Repository
from tests.pipeline.project import ran
from tests.runs.unfinished import begin, stop
from tokenmill.core import paths
from tokenmill.doctor import checks, dvc, environment
from tokenmill.doctor.environment import KEEP_ONE_SIDE
from tokenmill.doctor.finding import Finding, Pipeline, Project
from tokenmill.doctor.objects import check_objects
from tokenmill.schema import check_all
from tokenmill.words.units import message


def test_folder_without_dvc_is_a_problem(tmp_path: Path):
    project = Project(tmp_path)
    assert single(dvc.check_repository, project).level == "problem"
    for check in (dvc.check_cache, dvc.check_remote, dvc.check_pipeline):
        assert list(check(project)) == []


VERSION = "core.repositoryformatversion"


@pytest.mark.parametrize(
    ("name", "value"), [(VERSION, "99"), (VERSION, "one"), ("extensions.new", "true")]
)
def test_what_dulwich_cannot_read_is_a_problem(repository: Repository, name: str, value: str):
    """DVC opens git by it, and takes none of its errors for its own."""
    repository.run("git", "config", VERSION, "1")
    repository.run("git", "config", name, value)
    assert single(dvc.check_repository, Project(repository.root)).level == "problem"


def test_a_missing_section_is_said_once(repository: Repository):
    (repository.root / "dvc.yaml").write_text(
        "stages: {tune: {foreach: '${finetune.methods}', do: {cmd: ls}}}\n"
    )
    project = opened(repository)
    assert project.params is None, "which `check_params` has told"
    (repository.root / "params.yaml").write_text("model: {n_layer: 1}\n")
    assert list(dvc.check_pipeline(project)) == []
    project.params = check_all(ROOT / "params.yaml")  # then it is a mistake in dvc.yaml
    assert "finetune.methods" in single(dvc.check_pipeline, project).text


@pytest.mark.parametrize("name", dvc.READ_BY_DVC)
def test_dvc_reads_no_pipe(repository: Repository, name: str):
    """It would wait for ever, and read a device until memory is full."""
    (repository.root / "dvc.lock").write_text("schema: '2.0'\n")
    (repository.root / ".gitignore").write_text("/models\n")
    repository.commit()
    (repository.root / name).unlink(missing_ok=True)
    os.mkfifo(repository.root / name)
    project = Project(repository.root)
    found = single(dvc.check_repository, project)
    assert found.level == "problem"
    assert [*dvc.check_pipeline(project), *check_objects(project)] == []
    repository.run("sh", "-c", str(found.fix))
    opened(repository)


@pytest.mark.parametrize("what", ["cache", "file"])
def test_links_to_what_the_cache_lacks_are_one_problem(repository: Repository, what: str):
    books = repository.root / "data/raw/sample/book.txt"
    books.parent.mkdir(parents=True)
    books.write_text("text")
    (repository.root / "data/link").symlink_to("nowhere")
    repository.run("dvc", "config", "cache.type", "symlink")
    repository.run("dvc", "add", "-q", "data/raw/sample")
    cache = books.readlink().parents[3]
    (cache if what == "cache" else books.readlink()).rename(repository.root / "away")
    project = Project(repository.root, params=check_all(ROOT / "params.yaml"))
    found = single(dvc.check_repository, project)
    assert (found.level, str(cache) in found.text) == ("problem", True)
    later = (dvc.check_cache, dvc.check_pipeline, checks.check_text)
    assert [finding for check in later for finding in check(project)] == []
    mount, _, command = str(found.fix).partition("; or: ")
    assert (mount == "mount it again") == (what == "cache")
    command = (command or str(found.fix)).partition(";")[0]
    repository.run("sh", "-c", command)
    assert [path.is_symlink() for path in (books, repository.root / "data/link")] == [False, True]
    assert "dvc pull" in str(single(dvc.check_pipeline, opened(repository)).fix)


def test_cache_should_be_linked(repository: Repository):
    for kind, level in (("hardlink,copy", "ok"), ("copy", "warning")):
        repository.run("dvc", "config", "cache.type", kind)
        assert single(dvc.check_cache, opened(repository)).level == level


def test_a_cache_with_letters_beyond_ascii_is_moved(repository: Repository, tmp_path: Path):
    project = opened(repository.copy("Bücher"))
    warned, linked = dvc.check_cache(project)
    assert (warned.level, linked.level) == ("warning", "warning")
    elsewhere = tmp_path / "cache"
    command, _, _ = str(warned.fix).partition(";")
    Repository(project.root).run("sh", "-c", command.replace("/path/to/cache", str(elsewhere)))
    assert single(dvc.check_cache, opened(Repository(project.root))).level == linked.level


def test_a_full_disk_of_the_cache_is_a_problem(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(dvc.generic, "test_links", fail)
    project = opened(repository)
    assert project.repo
    found = single(dvc.check_cache, project)
    assert found.level == "problem"
    assert project.repo.cache.local.path in found.text
    assert dvc.links(project.repo)[0] is False  # for the check of the disk
    (repository.root / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.setattr(dvc, "_compared", fail)
    assert "df -h" in str(single(dvc.check_pipeline, project).fix)


def test_a_cache_of_another_user_is_given_back(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
):
    refused = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(dvc.generic, "test_links", Mock(side_effect=refused))
    found = single(dvc.check_cache, opened(repository))
    assert (found.level, str(found.fix).split(" ")[:2]) == ("problem", ["sudo", "chown"])


def test_an_index_that_dvc_cannot_keep_is_a_problem(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dvc, "Repo", Mock(side_effect=sqlite3.OperationalError("disk I/O error")))
    found = single(dvc.check_repository, Project(repository.root))
    assert (found.level, "disk I/O error" in found.text) == ("problem", True)


def test_what_a_kill_leaves_in_the_run_cache_is_removed(repository: Repository):
    """DVC itself does not get past it."""
    (repository.root / "dvc.yaml").write_text(
        "stages: {train: {cmd: mkdir -p models/gpt, deps: [params.yaml], outs: [models/gpt]}}\n"
    )
    repository.repro()
    (result,) = repository.root.glob(".dvc/cache/runs/*/*/*")
    result.unlink()
    (repository.root / "dvc.lock").unlink()
    repository.run("dvc", "repro", check=False)
    found = single(dvc.check_cache, opened(repository))
    assert (found.level, found.fix) == ("problem", f"rmdir {quote(str(result.parent))}")
    repository.run("sh", "-c", str(found.fix))
    assert ran(repository.repro()) == ["train"]


PRINT_LEVEL = """
from pathlib import Path
from tokenmill.doctor import dvc
from tokenmill.doctor.finding import Project
list(dvc.check_repository(project := Project(Path())))
print(*(finding.level for finding in dvc.check_remote(project)))
"""


class TestRemote:
    """Where `dvc push` goes."""

    def check(self, repository: Repository, url: str) -> Finding:
        repository.run("dvc", "remote", "modify", "beside", "url", url)
        return single(dvc.check_remote, opened(repository))

    def test_folder_may_exist_or_be_made(self, repository: Repository, tmp_path: Path):
        assert self.check(repository, str(tmp_path)) == Finding(
            "ok", "remote", f"beside, {tmp_path}"
        )
        assert self.check(repository, str(tmp_path / "a/b")).level == "ok"
        assert not (tmp_path / "a").exists()

    def test_folder_may_have_a_mark_of_addresses_in_its_name(
        self, repository: Repository, tmp_path: Path
    ):
        (folder := tmp_path / "drive #1?").mkdir()
        expected = Finding("ok", "remote", f"beside, {folder}")
        assert self.check(repository, str(folder)) == expected

    def test_folder_below_a_file_is_a_problem(self, repository: Repository, tmp_path: Path):
        (tmp_path / "file").touch()
        finding = self.check(repository, str(tmp_path / "file/remote"))
        assert finding.level == "problem"
        assert str(tmp_path / "file") in finding.text

    def test_folder_as_an_address_is_given_as_a_path(self, repository: Repository, tmp_path: Path):
        """DVC would push it below the current folder."""
        (folder := tmp_path / "a drive").mkdir()
        finding = self.check(repository, folder.as_uri())
        assert finding.level == "problem"
        (repository.root / "text").write_text("text")
        repository.run("dvc", "add", "text")
        repository.run("dvc", "push", "text.dvc")
        assert not list(folder.iterdir()), "so it is a problem"
        repository.run("sh", "-c", str(finding.fix))
        assert single(dvc.check_remote, opened(repository)).level == "ok"
        repository.run("dvc", "push", "text.dvc")
        assert list(folder.iterdir())

    @pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may write everywhere")
    @pytest.mark.parametrize(
        ("mode", "level"), [(0o500, "warning"), (0o400, "problem"), (0o300, "problem")]
    )
    def test_folder_that_can_be_read_is_enough_to_pull(
        self, repository: Repository, tmp_path: Path, mode: int, level: str
    ):
        (folder := tmp_path / "locked").mkdir(mode=mode)
        found = self.check(repository, str(folder))
        folder.chmod(0o700)  # pytest removes it
        assert found.level == level

    @pytest.mark.skipif(sys.platform != "linux", reason="mounts a disk")
    @pytest.mark.parametrize(("below", "level"), [("", "warning"), ("/missing", "problem")])
    def test_remote_on_a_read_only_disk(
        self, repository: Repository, tmp_path: Path, below: str, level: str
    ):
        (folder := tmp_path / "drive").mkdir()
        assert self.check(repository, f"{folder}{below}").level == "ok"
        (repository.root / "text").write_text("text")
        repository.run("dvc", "add", "text")
        if level == "warning":
            repository.run("dvc", "push", "text.dvc")
        shutil.rmtree(repository.root / ".dvc/cache")
        (repository.root / "text").unlink()
        unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
        mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"'
        if subprocess.run([*unshare, mount, folder], check=False, capture_output=True).returncode:
            pytest.skip("no disk can be mounted here")
        said = subprocess.run(
            [*unshare, f'{mount} && python -c "$1" && dvc pull -q text.dvc', folder, PRINT_LEVEL],
            cwd=repository.root,
            env=repository.env,
            capture_output=True,
            text=True,
            check=level == "warning",
        ).stdout
        assert said.split() == [level]
        assert (repository.root / "text").exists() == (level == "warning")

    def test_password_is_masked(self, repository: Repository):
        said = self.check(repository, "gs://me:secret@bucket/path")
        assert "secret" not in message(said.text)

    def test_missing_package_is_named(self, repository: Repository):
        finding = self.check(repository, "gs://bucket/path")
        assert (finding.level, finding.fix) == ("problem", "pip install dvc-gs")

    def test_silent_server_is_a_problem(
        self, repository: Repository, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(dvc, "REMOTE_TIMEOUT", 0.5)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            finding = self.check(repository, f"http://127.0.0.1:{silent.getsockname()[1]}/data")
        assert finding.level == "problem"
        assert "dvc remote modify --local beside" in (finding.fix or "")

    def test_no_default_and_a_wrong_one(self, repository: Repository):
        repository.run("dvc", "config", "core.remote", "elsewhere")
        assert single(dvc.check_remote, opened(repository)).level == "problem"
        repository.run("dvc", "config", "--unset", "core.remote")
        assert single(dvc.check_remote, opened(repository)).level == "warning"


@pytest.fixture(scope="module")
def uncommitted(repository_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Two stages ran, and of their files and the text none is in the cache."""
    folder = tmp_path_factory.mktemp("uncommitted")
    repository = Repository(repository_template).copy(folder / "project")
    copies = """
    stages:
      train: {cmd: cp params.yaml model, deps: [params.yaml, text], outs: [model]}
      show: {cmd: cat model extra > shown, deps: [model, extra], outs: [shown]}
    """
    (repository.root / "dvc.yaml").write_text(copies)
    for name in ("text", "extra"):
        (repository.root / name).write_text(name)
    repository.run("dvc", "add", "--no-commit", "text")
    repository.run("dvc", "repro", "--no-commit")
    return repository


def compared(project: Project) -> Pipeline:
    """The pipeline of a project that was checked."""
    assert project.pipeline
    return project.pipeline


class TestPipeline:
    """What `dvc repro` would run."""

    def test_outdated_stages_are_named(self, repository: Repository):
        project = opened(repository)
        finding = single(dvc.check_pipeline, project)
        assert finding == Finding("warning", "pipeline", "to run: train", "dvc repro")
        assert compared(project).outdated == ["train"]

    def test_what_the_remote_may_have_is_to_be_fetched(self, repository: Repository):
        lock = repository.root / "dvc.lock"
        for is_locked in (False, True):
            lock.unlink(missing_ok=True)
            if is_locked:
                lock.write_text("schema: '2.0'\n")
            finding = single(dvc.check_pipeline, opened(repository))
            assert (dvc.FETCH in finding.text) == is_locked
            assert finding.fix == "dvc repro"
        (repository.root / paths.CLEAN).mkdir(parents=True)
        assert dvc.FETCH not in single(dvc.check_pipeline, opened(repository)).text

    def test_a_training_that_diverged_is_not_to_be_repeated(self, repository: Repository):
        begin(repository.root)
        stop(repository.root, diverged="in step 19")
        finding = single(dvc.check_pipeline, opened(repository))
        assert finding.fix == "dvc exp run -S train.learning_rate=LOWER"

    def test_stages_after_a_missing_output_do_not_run(self, repository: Repository):
        copies = """
        stages:
          unpack:
            {cmd: cp params.yaml tokens, deps: [params.yaml], outs: [tokens: {cache: false}]}
          train: {cmd: cp tokens model, deps: [tokens], outs: [model]}
          show: {cmd: ls, deps: [model]}
        """
        (repository.root / "dvc.yaml").write_text(copies)
        repository.repro()
        for change, expected in (
            ("", []),
            ("tokens", ["unpack"]),
            ("params.yaml", ["unpack", "train", "show"]),
            ("frozen", ["unpack"]),
            ("model", ["unpack", "train", "show"]),
        ):
            frozen = copies.replace("outs: [model]", "outs: [model], frozen: true")
            (repository.root / "dvc.yaml").write_text(frozen if change == "frozen" else copies)
            if change == "params.yaml":
                (repository.root / change).write_text("other: text\n")
            elif change not in ("", "frozen"):
                (repository.root / change).unlink()
            project = opened(repository)
            assert single(dvc.check_pipeline, project).level == ("warning" if expected else "ok")
            assert compared(project).outdated == expected

    def test_what_only_the_check_leads_to_does_not_run(self, repository: Repository):
        """The model to start from is checked, and the check always writes the same."""
        stages = """
        stages:
          check: {cmd: echo ok > data/checked.txt, deps: [start], outs: [data/checked.txt]}
          clean: {cmd: cp data/checked.txt text, deps: [data/checked.txt], outs: [text]}
          train: {cmd: cat text start > model, deps: [text, start], outs: [model]}
        """
        (repository.root / "dvc.yaml").write_text(stages)
        (repository.root / "data").mkdir(exist_ok=True)
        start = repository.root / "start"
        start.write_text("one")
        repository.run("dvc", "add", "start")
        repository.repro()
        start.unlink()
        start.write_text("other")
        project = opened(repository)
        assert single(dvc.check_pipeline, project).level == "warning"
        assert compared(project).outdated == ["check", "train"]

    @pytest.mark.parametrize(
        ("damage", "outdated", "uncached"),
        [
            ("true", [], ["text", "train", "show"]),
            ("dvc commit train", [], ["text", "show"]),
            ("dvc commit -q; dvc gc -qfw --not-in-remote; rm -r .dvc/cache", [], None),
            ("rm model", ["train", "show"], ["text"]),
            ("rm model; echo other > model", ["train", "show"], ["text"]),
            ("dvc commit -q; rm -r .dvc/cache model", ["train", "show"], ["text"]),
            ("rm params.yaml; echo seed: 2 > params.yaml", ["train", "show"], ["text"]),
            ("echo new > extra", ["show"], ["text", "train"]),
        ],
    )
    def test_what_only_the_cache_lacks_is_committed(
        self,
        uncommitted: Repository,
        tmp_path: Path,
        damage: str,
        outdated: list[str],
        uncached: list[str] | None,
    ):
        """What is to run may read what the cache lacks; what is not as recorded is no result."""
        repository = uncommitted.copy(tmp_path / "project")
        repository.run("sh", "-c", damage)
        uncached = ["text", "train", "show"] if uncached is None else uncached
        project = opened(repository)
        finding = single(dvc.check_pipeline, project)
        assert (compared(project).outdated, sorted(compared(project).uncached)) == (
            outdated,
            sorted(uncached),
        )
        repository.run("sh", "-c", str(finding.fix))
        project = opened(repository)
        assert single(dvc.check_pipeline, project).level == "ok"

    def test_a_frozen_stage_is_named_with_how_to_run_it(self, repository: Repository):
        frozen = """
        stages:
          train: {cmd: cp params.yaml model, deps: [params.yaml], outs: [model], frozen: true}
          show: {cmd: "cp model ${train.seed}", deps: [model], outs: [shown], frozen: true}
          last: {cmd: cp shown last, deps: [shown], outs: [last]}
        """
        (repository.root / "dvc.yaml").write_text(frozen)
        project = opened(repository)
        single(dvc.check_pipeline, project)
        assert compared(project).frozen == {"train": True, "show": False}
        fix, by_hand = str(single(dvc.check_frozen, project).fix).split("; then ")
        repository.run("sh", "-c", fix)
        assert "show" in by_hand
        project = opened(repository)
        single(dvc.check_pipeline, project)
        assert list(compared(project).frozen) == ["show"]

    def test_text_that_is_not_here_is_fetched_first(self, repository: Repository):
        (repository.root / "text").touch()
        repository.run("dvc", "add", "text")
        (repository.root / "text").unlink()
        project = opened(repository)
        finding = single(dvc.check_pipeline, project)
        assert (compared(project).outdated, compared(project).unfetched) == (["train"], ["text"])
        assert (finding.level, finding.fix) == ("warning", "dvc pull text && dvc repro")

    def test_unreadable_pipeline_is_a_problem(self, repository: Repository):
        (repository.root / "dvc.yaml").write_text("stages: {train: {deps: 3}}\n")
        assert single(dvc.check_pipeline, opened(repository)).level == "problem"

    @pytest.mark.parametrize(
        ("error", "level", "way_out"),
        [
            (LockError("locked"), "warning", "wait for the other DVC command"),
            (sqlite3.DatabaseError("malformed"), "problem", "rm -r {index}"),
        ],
    )
    def test_what_hinders_the_comparison_is_named(
        self,
        repository: Repository,
        monkeypatch: pytest.MonkeyPatch,
        error: Exception,
        level: str,
        way_out: str,
    ):
        monkeypatch.setattr(dvc, "_compared", Mock(side_effect=error))
        project = opened(repository)
        assert project.repo
        finding = single(dvc.check_pipeline, project)
        fix = way_out.format(index=quote(str(project.repo.site_cache_dir)))
        assert (finding.level, finding.fix, project.pipeline) == (level, fix, None)

    def test_a_failure_of_the_system_is_not_blamed_on_the_pipeline(
        self, repository: Repository, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(dvc, "_compared", lambda _: (repository.root / "gone").read_text())
        assert "dvc.yaml" not in str(single(dvc.check_pipeline, opened(repository)).fix)

    def test_a_lock_file_that_was_cut_off_comes_from_git(self, repository: Repository):
        lock = repository.root / "dvc.lock"
        text = "schema: '2.0'\nstages: {train: {cmd: make}}\n"
        for kept, fix in ((False, "rm dvc.lock"), (True, "git checkout dvc.lock")):
            if kept:
                lock.write_text(text)
                repository.commit()
            lock.write_text(text[:30])
            finding = single(dvc.check_pipeline, opened(repository))
            assert (finding.level, finding.fix) == ("problem", fix)

    def test_an_unfinished_merge_is_neither_committed_nor_undone(self, repository: Repository):
        repository.run("git", "branch", "other")
        for branch in ("main", "other"):
            repository.run("git", "checkout", "-q", branch)
            (repository.root / "dvc.lock").write_text(f"schema: '2.0'\nstages: {{{branch}: 1}}\n")
            repository.commit()
        repository.run("git", "merge", "main", check=False)
        project = opened(repository)
        assert single(dvc.check_pipeline, project).fix == KEEP_ONE_SIDE
        *_, git = environment.check_git(project)
        commit = single(environment.check_commit, project)
        assert (git.level, commit.level) == ("ok", "warning")
        assert str(commit.fix).startswith("dvc repro && git add")
        assert commit.text.endswith(": dvc.lock")

    def test_a_damaged_lock_of_dvc_is_not_blamed_on_the_pipeline(self, repository: Repository):
        path = repository.root / ".dvc/tmp/rwlock"
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"write": ')
        finding = single(dvc.check_pipeline, opened(repository))
        assert (finding.level, finding.fix) == ("problem", f"rm {quote(str(path))}")

    def test_long_comparison_is_not_awaited(
        self, repository: Repository, monkeypatch: pytest.MonkeyPatch
    ):
        never = Event()
        monkeypatch.setattr(dvc, "STATUS_TIMEOUT", 0.01)
        monkeypatch.setattr(dvc, "_compared", lambda _: never.wait())
        project = opened(repository)
        finding = single(dvc.check_pipeline, project)
        never.set()
        assert (finding.level, finding.fix) == ("warning", "dvc status")
        assert project.pipeline is None, "everything may be outdated"


def test_timeout_passes_results_and_errors_on():
    assert dvc.with_timeout(10, lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        dvc.with_timeout(10, lambda: 1 // 0)
    never = Event()
    with pytest.raises(TimeoutError):
        dvc.with_timeout(0.01, never.wait)
    never.set()
