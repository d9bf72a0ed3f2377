"""A real project in a folder of its own, to type the user's commands in."""

import contextlib
import hashlib
import io
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.imports import ROOT
from tests.isolation import SETTINGS
from tests.pipeline.dvc_server import forking
from tokenmill.cli.main import main

SMALL: dict[str, Any] = {
    "sample.conversations": 200,
    "tokenizer.vocab_size": 320,
    "tokenize.val_fraction": 0.1,
    "model.n_layer": 1,
    "model.n_head": 2,
    "model.n_embd": 16,
    "model.context_length": 32,
    "train.epochs": 2,
    "train.batch_size": 16,
    "train.schedule.type": "constant",
    "train.schedule.warmup_steps": 5,
    "train.validation_bytes": 2000,
    "evaluate.max_new_tokens": 8,
    "runtime.device": "cpu",
    "runtime.checkpoint.every_steps": 7,
}

STAGES = [
    "check",
    "sample",
    "clean",
    "tokenizer",
    "tokenize",
    "unpack",
    "index",
    "data_report",
    "train",
    "evaluate",
    "trace",
    "benchmark",
    "report",
]
"""The stages of the default run, in the order in which DVC runs them."""

LEFT_OUT = ("metrics/", "reports/", "tests/", "bench/", "docs/")
"""Results, and what no stage reads."""


KEPT_IN_GIT = {"data/README.md", "data/benchmarks/README.md", "models/random/README.md"}
"""All else below data/ and models/ is DVC's."""


@dataclass(frozen=True)
class Project:
    """A git and DVC repository to type commands in."""

    root: Path

    @property
    def env(self) -> dict[str, str]:
        """As in an activated environment, and nothing of an outer DVC run."""
        env = {
            key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "GIT_"))
        }
        env |= SETTINGS
        env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
        identity = {"NAME": "Test", "EMAIL": "test@example.org"}
        return env | {
            f"GIT_{who}_{k}": v for who in ("AUTHOR", "COMMITTER") for k, v in identity.items()
        }

    @property
    def forking_env(self) -> dict[str, str]:
        """The same, but DVC, stages and commands are forked: quick, and nothing to kill."""
        return self.env | {"PATH": f"{forking()}{os.pathsep}{self.env['PATH']}"}

    @classmethod
    def new(cls, root: Path, *, remote: bool = False, top: Path | None = None) -> "Project":
        """A DVC repository in a folder, with a DVC remote beside it if `remote`. The git repository
        is the folder, or `top` above it."""
        root.mkdir(parents=True, exist_ok=True)
        project = cls(root)
        project.run("git", "init", "-q", "-b", "main", str(top or root))
        project.run("dvc", "init", "-q", *(["--subdir"] if top else []))
        if remote:
            project.run("dvc", "remote", "add", "-q", "-d", "beside", "../remote")
        return project

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command here; give its output and errors together."""
        code, said = self._run(command, self.forking_env)
        assert not check or code == 0, f"{' '.join(command)} exited {code}:\n{said}"
        assert check or code != 0, f"{' '.join(command)} did not fail:\n{said}"
        return said

    def typed(self, *arguments: str, check: bool = True) -> str:
        """What `tokenmill ARGUMENTS` says here, output and errors together."""
        code, said = self.answer(*arguments)
        assert (code == 0) == check, f"tokenmill {' '.join(arguments)} exited {code}:\n{said}"
        return said

    def answer(self, *arguments: str) -> tuple[int, str]:
        """The exit code of `tokenmill ARGUMENTS` and what it says. It runs in this process; one of
        its own would have to import PyTorch."""
        said = io.StringIO()
        code = 0
        with (
            contextlib.chdir(self.root),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            try:
                main(arguments)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
                if isinstance(end.code, str):
                    print(end.code)
        return code, said.getvalue()

    def _run(self, command: tuple[str, ...], env: dict[str, str]) -> tuple[int, str]:
        pipes: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }
        done = subprocess.run(command, cwd=self.root, env=env, check=False, text=True, **pipes)
        return done.returncode, done.stdout

    def repro(self, *arguments: str) -> str:
        """`dvc repro`."""
        return self.run("dvc", "repro", *arguments)

    def really_repro(self, *arguments: str) -> str:
        """`dvc repro` where each stage is a new Python."""
        code, said = self._run((str(forking() / "dvc"), "repro", *arguments), self.env)
        assert code == 0, said
        return said

    def set(self, **values: object) -> None:
        """Change parameters, `__` for a dot."""
        change_params(
            self.root / "params.yaml",
            {name.replace("__", "."): value for name, value in values.items()},
        )

    def commit(self) -> None:
        """Commit everything that git does not ignore."""
        self.run("git", "add", "-A")
        self.run("git", "commit", "-q", "--allow-empty", "-m", "state")

    def output(self, stage: str, path: str) -> str:
        """The hash that dvc.lock records for a stage's output."""
        lock = YAML(typ="safe").load(self.root / "dvc.lock")
        return next(out["md5"] for out in lock["stages"][stage]["outs"] if out["path"] == path)

    def digest(self, *paths: str) -> str:
        """One hash of files and folders: their names and bytes."""
        total = hashlib.sha256()
        for path in paths:
            top = self.root / path
            for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
                if file.is_file():
                    total.update(
                        file.relative_to(self.root).as_posix().encode() + b"\0" + file.read_bytes()
                    )
        return total.hexdigest()

    def forget_training(self) -> None:
        """As if nothing had ever been trained here: no checkpoint, no model in dvc.lock or the
        run-cache."""
        shutil.rmtree(self.root / ".resume", ignore_errors=True)
        shutil.rmtree(self.root / ".dvc/cache/runs", ignore_errors=True)
        yaml = YAML()
        lock = yaml.load(self.root / "dvc.lock")
        lock["stages"].pop("train", None)
        yaml.dump(lock, self.root / "dvc.lock")

    def copy(self, target: Path | str) -> "Project":
        """A copy of everything, in a folder of this name beside this one or anywhere."""
        return Project(shutil.copytree(self.root, self.root.parent / target))

    def clone(self, name: str) -> "Project":
        """What git gives another machine, beside this one: no cache, no artefacts, no
        checkpoints."""
        target = self.root.parent / name
        self.run("git", "clone", "-q", str(self.root), str(target))
        return Project(target)


def small_project(folder: Path) -> Project:
    """This checkout's files as a repository with a small model, before anything ran."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file() and name != "dvc.lock" and not name.startswith(LEFT_OUT):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    change_params(folder / "params.yaml", SMALL)
    content = YAML().load(folder / "params.yaml")
    content["evaluate"]["prompts"] = [{"user": "What is the capital of France?"}, {"text": "User:"}]
    YAML().dump(content, folder / "params.yaml")
    project = Project(folder)
    project.run("git", "init", "-q", "-b", "main", "--template=")
    project.commit()
    return project


def ran(output: str) -> list[str]:
    """The stages that a `dvc repro` or `dvc exp run` really ran."""
    return [line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage ")]


def change_params(path: Path, values: dict[str, Any]) -> None:
    """Set dotted names in a params.yaml."""
    yaml = YAML()
    content = yaml.load(path)
    for name, value in values.items():
        *sections, last = name.split(".")
        section = content
        for part in sections:
            section = section[part]
        section[last] = value
    yaml.dump(content, path)
