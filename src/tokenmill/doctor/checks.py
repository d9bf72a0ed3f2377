"""All checks, in the order in which a run would meet the problems, and those of the environment.

A new check is a function and a line in CHECKS.
"""

import importlib.metadata
import os
import platform
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import torch
from packaging.requirements import Requirement

from tokenmill import git
from tokenmill.core.errors import UserError
from tokenmill.core.params import PARAMS_FILE
from tokenmill.core.units import override, size
from tokenmill.data.readers import FORMATS
from tokenmill.data.sources import find
from tokenmill.doctor import disk, dvc
from tokenmill.doctor.finding import BUILT_IN, ONE_COMMIT, Check, Finding, Project, ok, problem, warning
from tokenmill.model.device import Compute, choose_compute, unused_gpu
from tokenmill.runs.under_way import under_way
from tokenmill.schema import check_all
from tokenmill.training.compile import missing_compiler

ACTIVATE = ". .venv/bin/activate"

INSTALL = "pip install -c constraints.txt -e ."


def check_python(_: Project) -> Iterator[Finding]:
    """The stages run as `python -m …`, so `python` must be this interpreter."""
    here, found = Path(sys.executable), shutil.which("python")
    version = f"{platform.python_version()}, {here}"
    if found is None:
        yield problem("python", f"{version}; the stages run by `python`, which is not on the PATH", ACTIVATE)
    elif Path(found).parent.resolve() != here.parent.resolve():
        yield problem("python", f"{version}; but the stages would run by {found}", ACTIVATE)
    else:
        yield ok("python", version)


def check_packages(project: Project) -> Iterator[Finding]:
    """The installed packages are those that pyproject.toml asks for."""
    pyproject = project.root / "pyproject.toml"
    try:
        content = tomllib.loads(pyproject.read_text(encoding="utf-8"))
        wanted = [Requirement(text) for text in content["project"]["dependencies"]]
    except (OSError, ValueError, KeyError) as error:
        text = f"the packages in {pyproject} cannot be read ({type(error).__name__})"
        yield problem("packages", text, "git checkout pyproject.toml")
        return
    missing, other = [], []
    for name, versions in ((each.name, each.specifier) for each in wanted):
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if not versions.contains(installed, prereleases=True):
            other.append(f"{name} {installed} instead of {str(versions).removeprefix('==')}")
    if missing:
        yield problem("packages", f"missing: {', '.join(missing)}", INSTALL)
    elif other:
        yield warning("packages", f"not the tested versions: {', '.join(other)}", INSTALL)
    else:
        yield ok("packages", f"all {len(wanted)} in supported versions")


def check_params(project: Project) -> Iterator[Finding]:
    """Every value of params.yaml is allowed."""
    try:
        project.params = check_all(project.root / PARAMS_FILE)
    except UserError as error:
        yield problem("parameters", str(error), f"edit {PARAMS_FILE} (`tokenmill params` explains each parameter)")
        return
    yield ok("parameters", f"{PARAMS_FILE} is valid")


def check_text(project: Project) -> Iterator[Finding]:
    """There is text to train on, where all kinds of runs find it."""
    if project.params is None:
        return
    raw, root = project.params.data.raw, project.root
    if raw == BUILT_IN and not (root / raw).exists():
        count = project.params.sample.conversations
        yield ok("text", f"the built-in {count:,} conversations, made by the first stage")
        return
    try:
        project.raw = find(root / raw, FORMATS)
    except UserError as error:
        yield problem("text", str(error), "dvc exp run -S data.raw=/path/to/texts")
        return
    sources = project.raw.sources
    text = f"{raw}: {len(sources):,} files, {sum(source.size for source in sources):,} bytes"
    if not Path(raw).is_absolute() and not (root / raw).resolve().is_relative_to(root.resolve()):
        fix = f"dvc exp run {override('data.raw', str((root / raw).resolve()))}"
        yield warning("text", f"{text}; queued and --temp runs do not find a relative path outside", fix)
    else:
        yield ok("text", text)


def check_git(project: Project) -> Iterator[Finding]:
    """There is a repository, a branch is checked out, and the pipeline's results are committed."""
    root = project.root
    try:
        files = uncommitted(root)
    except UserError as error:
        yield problem("git", f"{error}", "install git")
        return
    if files is None:
        yield problem("git", f"{root.resolve()} is not in a git repository, or git refuses it", "git status")
        return
    branch = git.ask(root, "symbolic-ref", "--quiet", "--short", "HEAD")
    if branch is None and dvc.check_running(root).level != "ok":
        yield ok("git", "on no branch while an experiment runs")
    elif branch is None:
        yield warning("git", "HEAD is on no branch, as after a killed `dvc exp run`", "git switch main")
    else:
        yield ok("git", f"on branch {branch.strip()}")
    yield from _locked(root)
    gone = [file for file in files if not (root / file).exists()]
    run = under_way(root) if gone else None
    if run and run.run.is_on:
        yield ok("commit", f"deleted until the training ends: {few(gone)}")
    elif gone:
        text = f"deleted, as by a run that was stopped or refused: {few(gone)}"
        yield warning("commit", text, "dvc repro; or, to go back: git checkout metrics reports && dvc checkout")
    elif files:
        yield warning("commit", f"not committed: {few(files)}", "git add -A && git commit")
    else:
        yield ok("commit", f"{', '.join(ONE_COMMIT)} are as committed")


def check_identity(project: Project) -> Iterator[Finding]:
    """Git, if it is there, knows whom commits are by; on a fresh machine, such as Colab's, it does not."""
    names = ("name", "email") if shutil.which("git") else ()
    known = [
        os.environ.get(f"GIT_COMMITTER_{name.upper()}") or git.ask(project.root, "config", f"user.{name}")
        for name in names
    ]
    if not all(known):
        fix = 'git config --global user.name "Your Name" && git config --global user.email you@example.org'
        yield warning("identity", "git does not know your name, so neither `git commit` nor `dvc exp run` works", fix)


def _locked(root: Path) -> Iterator[Finding]:
    """Locks that a killed git left behind, in the index and beside the refs that `report` writes."""
    folder = root / (git.ask(root, "rev-parse", "--git-dir") or ".git").strip()
    if locks := sorted([*folder.glob("*.lock"), *folder.glob("refs/epoch-*.lock")]):
        text = f"locked by a git that runs or was killed: {few([path.name for path in locks])}"
        yield problem("lock", text, f"if no git runs: rm {' '.join(quote(str(path)) for path in locks)}")


def uncommitted(root: Path) -> list[str] | None:
    """Files of ONE_COMMIT that differ from the last commit or are in none; None outside a git repository."""
    status = git.ask(root, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *ONE_COMMIT)
    return None if status is None else sorted(entry[3:] for entry in status.split("\0") if entry)


def few(names: list[str]) -> str:
    """Four of the names, and the number of the others."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def check_device(project: Project) -> Iterator[Finding]:
    """What `runtime.device` and `train.precision` mean on this machine."""
    if project.params is None:
        return
    precision = project.params.train.precision
    try:
        compute = project.compute = choose_compute(project.params.runtime.device, precision)
    except UserError as error:
        yield problem("device", str(error), "set runtime.device to auto")
        return
    chosen = str(compute.precision).removeprefix("torch.")
    text = f"{compute.name}{_about_gpu(compute)}, {chosen}{_why_precision(compute, precision)}"
    if unseen := unused_gpu(compute.device):
        fix = "install a build of torch for this GPU: https://pytorch.org/get-started/locally"
        yield warning("device", f"{text}; {unseen}", fix)
    else:
        yield ok("device", text)


def _about_gpu(compute: Compute) -> str:
    if compute.device.type != "cuda":
        return ""
    major, minor = torch.cuda.get_device_capability(compute.device)
    free, total = torch.cuda.mem_get_info(compute.device)
    several = f"{torch.cuda.device_count()} of them, " if torch.cuda.device_count() > 1 else ""
    return f" ({several}capability {major}.{minor}, {size(free)} of {size(total)} free)"


def _why_precision(compute: Compute, wanted: str) -> str:
    if wanted != "auto":
        return " (train.precision)"
    if compute.device.type == "cpu":
        has = compute.precision == torch.bfloat16
        return " (the processor multiplies it)" if has else " (no AVX512_BF16 or AMX in this processor)"
    if compute.device.type == "cuda" and compute.precision == torch.float16:
        return " (this GPU has no bfloat16)"
    return ""


def check_compiler(project: Project) -> Iterator[Finding]:
    """torch.compile finds what it needs, if `runtime.compile` asks for it or a GPU would gain much by it."""
    if project.params is None or project.compute is None:
        return
    setting, device = project.params.runtime.compile, project.compute.device
    if setting == "off" or (setting == "auto" and device.type != "cuda"):
        return
    missing, fix = missing_compiler(device), "apt install g++ python3-dev, or set runtime.compile to off"
    if missing is None:
        yield ok("compiler", "what torch.compile needs is there")
    elif setting != "auto":
        yield problem("compiler", f"torch.compile needs {missing}, which is not there", fix)
    else:
        yield warning("compiler", f"torch.compile needs {missing}, which is not there; steps will be slower", fix)


CHECKS: tuple[Check, ...] = (
    check_python,
    check_packages,
    check_params,
    check_text,
    check_git,
    check_identity,
    dvc.check_repository,
    dvc.check_cache,
    dvc.check_remote,
    dvc.check_pipeline,
    dvc.check_runs,
    check_device,
    check_compiler,
    disk.check_memory,
    disk.check_disk,
)


def run_checks(root: Path) -> Iterator[Finding]:
    """Check the project in the folder `root`; each finding comes as soon as it is known."""
    project = Project(root)
    for check in CHECKS:
        yield from check(project)
