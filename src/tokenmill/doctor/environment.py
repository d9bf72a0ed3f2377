"""Checks of the system's limits, Python, packages, git, and other runs.

The limits are checked first, and this module imports nothing that takes much memory: below them the
other checks could not run.
"""

import importlib.metadata
import itertools
import os
import platform
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import psutil
from packaging.requirements import Requirement
from pydantic import BaseModel, Field

from tokenmill import git
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_bytes
from tokenmill.doctor.finding import Finding, Project, few, ok, problem, warning
from tokenmill.formats.records import read_record
from tokenmill.process import narrow_address_space
from tokenmill.runs.under_way import copies, under_way
from tokenmill.words.units import message

ONE_COMMIT = ("dvc.lock", "dvc.yaml", "params.yaml", "metrics", "reports")
"""The files that belong into one commit. A clone in which they do not match trains again."""

STATUS = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *ONE_COMMIT)
"""How git is asked which of them differ from the last commit."""

ACTIVATE = ". .venv/bin/activate"

NEW_REPOSITORY = "git init && git add -A && git commit -m start"

BACK = "git checkout HEAD . && dvc checkout"
"""Back to the last commit and its model."""

KEEP_ONE_SIDE = "keep one side of it, as docs/sharing.md says (Two branches)"

CONSTRAINTS = ".venv/constraints.txt"
"""Written by make, with the PyTorch of `make TORCH=…`, which constraints.txt would replace."""


def check_limits(root: Path) -> Iterator[Finding]:
    """Check the limits under which a run in the folder `root` would work; nothing is said of limits
    that are wide enough."""
    if narrow := narrow_address_space():
        yield problem("limits", f"{narrow} (nothing else was checked)", "ulimit -v unlimited")
    if sys.flags.safe_path:
        text = "PYTHONSAFEPATH is set: `python -m stages` does not find the stages"
        yield problem("limits", text, "unset PYTHONSAFEPATH")
    if (encoding := sys.getfilesystemencoding()) != "utf-8":
        text = f"names of files are {encoding} here: those with other letters are not found"
        yield warning("limits", text, "export PYTHONUTF8=1")
    if not is_writable(root):
        text = (
            f"{root.resolve()} cannot be written (read-only, or another user's); cache, pipeline "
            "and disk were not checked"
        )
        yield problem("folder", text, "take a copy of your own: git clone")


def is_writable(root: Path) -> bool:
    """Whether this user may write in a folder, on a file system that can be written."""
    return os.access(root, os.W_OK | os.X_OK)


def check_python(_: Project) -> Iterator[Finding]:
    """Check that `python` is this interpreter, because the stages run as `python -m …`."""
    here = Path(sys.executable)
    found = shutil.which("python")
    version = f"{platform.python_version()}, {here}"
    if found is None:
        text = f"{version}; the stages run by `python`, which is not on the PATH"
        yield problem("python", text, ACTIVATE)
    elif Path(found).parent.resolve() != here.parent.resolve():
        yield problem("python", f"{version}; but the stages would run by {found}", ACTIVATE)
    else:
        yield ok("python", version)


def check_variables(_: Project) -> Iterator[Finding]:
    """Check that no variable of the environment stops Python's packages."""
    value = os.environ.get("PYTHONWARNINGS", "")
    if "error" in value:
        text = f"PYTHONWARNINGS={value}: DVC or PyTorch may stop at a mere warning"
        yield warning("variables", text, "unset PYTHONWARNINGS")


def check_folder(project: Project) -> Iterator[Finding]:
    """Check that DVC can work in the project's folder, and that no link stands in place of the
    folders of outputs."""
    root = project.root.resolve()
    if set("{}") & set(str(root)):
        text = f"{root} has a brace in it, with which `dvc repro` and `dvc exp run` fail"
        yield problem("folder", text, "move the project to a folder without one")
    for name in paths.WRITTEN:
        folder = root / name
        if folder.is_symlink():
            text = f"{name} is a link, and DVC keeps no output behind one"
            fix = f"rm {name} && mv {quote(str(folder.resolve()))} {name}"
            yield problem(f"{name}/", text, fix)


def check_names(project: Project) -> Iterator[Finding]:
    """Check that no file of the folder stands for a module without which `python -m` cannot start.
    Files with the names of other modules do no harm: a stage does not import from the folder."""
    names = [path.name for path in project.root.glob("*.py")]
    names += [path.parent.name for path in project.root.glob("*/__init__.py")]
    taken = [name for name in sorted(names) if name.removesuffix(".py") in sys.stdlib_module_names]
    if not taken:
        return
    command = [sys.executable, "-B", "-c", "import runpy"]
    tried = subprocess.run(command, cwd=project.root, capture_output=True, check=False)
    if tried.returncode:
        text = f"{', '.join(taken)}: Python takes it for its own module and cannot start a stage"
        moves = [f"mv {quote(name)} my_{quote(name)}" for name in taken]
        yield problem("names", text, " && ".join(moves))


def check_packages(project: Project) -> Iterator[Finding]:
    """Check that the installed packages are those that pyproject.toml asks for."""
    pyproject = project.root / "pyproject.toml"
    try:
        content = tomllib.loads(read_bytes(pyproject).decode("utf-8"))
        wanted = [Requirement(text) for text in content["project"]["dependencies"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = f"the packages in {pyproject} cannot be read ({type(error).__name__})"
        yield problem("packages", text, "git checkout pyproject.toml")
        return
    missing = []
    other = []
    for each in wanted:
        try:
            installed = importlib.metadata.version(each.name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(each.name)
            continue
        if not each.specifier.contains(installed, prereleases=True):
            tested = str(each.specifier).removeprefix("==")
            other.append(f"{each.name} {installed} instead of {tested}")
    constraints = CONSTRAINTS if (pyproject.parent / CONSTRAINTS).is_file() else "constraints.txt"
    install = f"pip install -c {constraints} -e ."
    if missing:
        yield problem("packages", f"missing: {', '.join(missing)}", install)
    elif other:
        yield warning("packages", f"not the tested versions: {', '.join(other)}", install)
    else:
        yield ok("packages", f"all {len(wanted)} in supported versions")


def check_git(project: Project) -> Iterator[Finding]:
    """Check that there is a repository, and that a branch is checked out."""
    root = project.root
    try:
        files = uncommitted(root)
    except UserError as error:
        yield problem("git", f"{error}", "install git")
        return
    if files is None or git.failure_of_dvc(root):
        yield _refused(root)
        return
    if git.ask(root, "check-ignore", "-q", "dvc.yaml") is not None:
        text = f"the repository around this project ignores it, as {git.folder(root)}"
        yield problem("git", text, f"move it out; then {NEW_REPOSITORY}")
        return
    branch = git.ask(root, "symbolic-ref", "--quiet", "--short", "HEAD")
    if branch is None and check_running(root).level == "warning":
        yield ok("git", "on no branch while an experiment runs")
    elif branch is None:
        here = "for-each-ref", "--points-at=HEAD", "--format=%(refname:short)", "refs/heads"
        names = (git.ask(root, *here) or "").split() or ["-"]
        text = "HEAD is on no branch, as after a killed `dvc exp run`"
        others = f"; {few(names)} are at this commit" if len(names) > 1 else ""
        yield warning("git", text + others, f"git switch {quote(names[0])}")
    else:
        yield ok("git", f"on branch {branch.strip()}")
    yield from _locked(root)
    for ref in git.broken_experiments(root):
        text = f"{ref} is no experiment, and DVC fails on it"
        yield problem("experiments", text, f"git update-ref -d {quote(ref)}")
    project.uncommitted = files


def check_commit(project: Project) -> Iterator[Finding]:
    """Check that the pipeline's results are committed."""
    files = project.uncommitted
    if files is None:
        return
    if conflicts := unmerged(project.root):
        text = f"a merge is unfinished: {few(conflicts)}"
        yield warning("commit", text, "dvc repro && git add -A && git commit --no-edit")
        return
    gone = [file for file in files if not (project.root / file).exists()]
    if gone:
        yield _deleted(project.root, few(gone))
    elif files:
        yield warning("commit", f"not committed: {few(files)}", "git add -A && git commit")
    else:
        yield ok("commit", f"{', '.join(ONE_COMMIT)} are as committed")


def _refused(root: Path) -> Finding:
    """Why git says nothing about the files of the project, or DVC cannot ask it."""
    here = root.resolve()
    top = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)
    if top is None:
        return problem("git", f"{here} is not in a git repository", NEW_REPOSITORY)
    said = git.failure(root, *STATUS)
    if "safe.directory" in said:  # the only words of it that git does not translate
        fix = f"git config --global --add safe.directory {quote(str(top))}"
        return problem("git", f"git refuses {top}, as that of another user", fix)
    if said:
        return problem("git", f"git refuses {top}: {message(said)}", "git status")
    said = git.failure_of_dvc(root)
    fix = f"git clone {quote(str(top))} /path/to/another"
    if "not owned" in said:
        fix = f"git config --file ~/.gitconfig --add safe.directory {quote(str(top))}"
    return problem("git", f"DVC cannot read git: {message(said)}", fix)


def check_identity(project: Project) -> Iterator[Finding]:
    """Check that git, if it is there, knows the author of commits. On a fresh machine, such as
    Colab's, it does not."""
    names = ("name", "email") if shutil.which("git") else ()
    known = [
        os.environ.get(f"GIT_COMMITTER_{name.upper()}")
        or git.ask(project.root, "config", f"user.{name}")
        for name in names
    ]
    if not all(known):
        text = "git does not know your name, so neither `git commit` nor `dvc exp run` works"
        name = 'git config --global user.name "Your Name"'
        fix = f"{name} && git config --global user.email you@example.org"
        yield warning("identity", text, fix)


def _deleted(root: Path, files: str) -> Finding:
    """Why results that are committed are not there."""
    run = under_way(root)
    if run and run.is_on:
        return ok("commit", f"deleted until the training ends: {files}")
    if run and run.run.diverged:
        return warning("commit", f"{run.sentence}; deleted: {files}", BACK)
    why = "as by a run that was stopped or refused"
    return warning("commit", f"deleted, {why}: {files}", f"dvc repro; or, to go back: {BACK}")


def _locked(root: Path) -> Iterator[Finding]:
    """Find locks that a killed git left behind: of the index, and of the refs that `report`
    writes."""
    said = git.execute(root, "rev-parse", "--git-dir", "--git-common-dir")
    own, shared = (root / line for line in said.splitlines())  # two, in a further work tree
    if locks := sorted([*own.glob("*.lock"), *shared.glob("refs/epoch-*.lock")]):
        text = f"locked by a git that runs or was killed: {few([path.name for path in locks])}"
        remove = f"rm {' '.join(quote(str(path)) for path in locks)}"
        yield problem("lock", text, f"if no git runs: {remove}")


def uncommitted(root: Path) -> list[str] | None:
    """The files of ONE_COMMIT that differ from the last commit or are missing there; None outside
    git."""
    status = git.ask(root, *STATUS)
    if status is None:
        return None
    before = len("XY ") + len(git.folder(root))
    return sorted(entry[before:] for entry in status.split("\0") if entry)


def unmerged(root: Path) -> list[str]:
    """The files of the project with conflicts of a merge that is not finished."""
    said = git.ask(root, "diff", "--name-only", "--relative", "--diff-filter=U", "-z") or ""
    return [name for name in said.split("\0") if name]


def check_runs(project: Project) -> Iterator[Finding]:
    """Check that no other run works on this project."""
    yield check_running(project.root)


def check_running(root: Path) -> Finding:
    """A finding about the commands that work on this pipeline now, here or in the copies in which
    DVC runs experiments."""
    at_work = []
    in_copies = [(copy, f"in {where}") for copy, where, _ in copies(root)]
    for folder, where in [(root, "here"), *in_copies]:
        lock = lock_file(folder)
        try:
            commands = _running(lock)
        except UserError:
            text = f"{lock} is damaged, DVC will refuse to run"
            return problem("runs", text, f"rm {quote(str(lock))}")
        if commands:
            at_work.append(f"{where}: {', '.join(commands)}")
    if at_work:
        fix = "wait for it, or press Ctrl-C there (queue: dvc queue kill NAME): it saves and stops"
        return warning("runs", f"at work {'; '.join(at_work)}", fix)
    return ok("runs", "none is at work here")


class Holder(BaseModel):
    """A process that holds a lock."""

    pid: int = Field(ge=0, lt=1 << 31)
    cmd: str


class Locks(BaseModel):
    """The contents of DVC's `.dvc/tmp/rwlock`: the processes that write and read each path."""

    write: dict[str, Holder] = {}
    read: dict[str, list[Holder]] = {}


MOMENT = 0.1
"""Seconds between two readings of a lock file that looks damaged."""


def lock_file(root: Path) -> Path:
    """The path of DVC's `rwlock`."""
    return root / ".dvc" / "tmp" / "rwlock"


def _running(lock: Path, *, tries: int = 5) -> list[str]:
    """The commands in DVC's lock file whose processes still exist. DVC writes the file in place, so
    one that looks damaged may be whole a moment later."""
    if not lock.exists():
        return []
    try:
        locks = read_record(lock, Locks, way_out="remove it")
    except UserError:
        if tries == 1:
            raise
        time.sleep(MOMENT)
        return _running(lock, tries=tries - 1)
    holders = itertools.chain(locks.write.values(), *locks.read.values())
    at_work = (holder for holder in holders if _is_dvc(holder.pid))
    return sorted({f"{holder.cmd} (process {holder.pid})" for holder in at_work})


def _is_dvc(pid: int) -> bool:
    """Whether the process with this id is one of DVC. Another process may have got the id since."""
    try:
        return any("dvc" in word for word in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False
