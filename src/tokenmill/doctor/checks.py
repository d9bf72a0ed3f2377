"""The interpreter and the packages: those that this repository was tested with?

Git: is there a repository, and is what the pipeline wrote in it?

params.yaml and the text that it names.

What training would compute on, in which precision and why, and what its compiler needs.
"""

import importlib.metadata
import platform
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import torch

from tokenmill.core import git
from tokenmill.core.errors import UserError
from tokenmill.core.params import PARAMS_FILE
from tokenmill.core.units import size
from tokenmill.data.sources import Found, find
from tokenmill.doctor.finding import Finding, ok, problem, warning
from tokenmill.model.device import Compute, choose_compute
from tokenmill.schema import AllParams, check_all
from tokenmill.training.compile import lacks
from tokenmill.training.params import RuntimeParams

INSTALL = "pip install -c constraints.txt -e '.[dev]'"


ACTIVATE = ". .venv/bin/activate"


def check(root: Path) -> Iterator[Finding]:
    """Look at Python and at the packages that pyproject.toml of `root` pins."""
    yield _python()
    yield _packages(root / "pyproject.toml")


def _python() -> Finding:
    """The stages run as `python -m …`, so `python` must be this very one."""
    here, found = Path(sys.executable), shutil.which("python")
    version = f"{platform.python_version()}, {here}"
    if found is None:
        return problem("python", f"{version}; there is no `python` on the PATH, by which the stages run", ACTIVATE)
    if Path(found).parent.resolve() != here.parent.resolve():
        return problem("python", f"{version}; but the stages would run by {found}", ACTIVATE)
    return ok("python", version)


def _packages(pyproject: Path) -> Finding:
    try:
        project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    except (OSError, ValueError, KeyError) as error:
        text = f"{pyproject} does not say what belongs here ({type(error).__name__})"
        return problem("packages", text, "git checkout pyproject.toml")
    pins = [pin.partition("==") for pin in project["dependencies"]]
    missing, other = [], []
    for name, _, wanted in pins:
        try:
            there = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if there.partition("+")[0] != wanted:  # 2.13.0+cpu is torch's 2.13.0
            other.append(f"{name} {there} instead of {wanted}")
    if missing:
        return problem("packages", f"missing: {', '.join(missing)}", INSTALL)
    if other:
        return warning("packages", f"not the tested versions: {', '.join(other)}", INSTALL)
    return ok("packages", f"all {len(pins)} as pinned")


TOGETHER = ("dvc.lock", "dvc.yaml", "params.yaml", "metrics", "reports")
"""What belongs into one commit: a clone without matching ones trains again."""


COMMIT = "git add -A && git commit"


def uncommitted(root: Path) -> list[str] | None:
    """Files of TOGETHER that differ from the last commit or are in none; None outside of a git repository."""
    status = git.ask(root, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *TOGETHER)
    return None if status is None else sorted(entry[3:] for entry in status.split("\0") if entry)


def checks(root: Path) -> Iterator[Finding]:
    """The repository, its branch, what is not committed."""
    try:
        files = uncommitted(root)
    except UserError:
        yield problem("git", "there is no `git` on the PATH; DVC needs it", "install git")
        return
    if files is None:
        yield problem("git", f"{root.resolve()} is not in a git repository, or git refuses it", "git status")
        return
    yield _branch(root)
    if files:
        yield warning("commit", f"not committed: {few(files)}", COMMIT)
    else:
        yield ok("commit", f"{', '.join(TOGETHER)} are as committed")


def _branch(root: Path) -> Finding:
    branch = git.ask(root, "symbolic-ref", "--quiet", "--short", "HEAD")
    if branch is None:
        return warning("git", "HEAD is on no branch, as after a killed `dvc exp run`", "git switch main")
    return ok("git", f"on branch {branch.strip()}")


def few(files: list[str]) -> str:
    """Four of the names, and how many more."""
    return ", ".join(files[:4]) + (f" and {len(files) - 4} more" if len(files) > 4 else "")


BUILT_IN = "data/raw/sample"
"""What the stage `sample` writes."""


BUILT_IN_BYTES = 125
"""Of a conversation in it, about."""


def check_params(root: Path) -> tuple[Finding, AllParams | None]:
    """Whether every value is one that the pipeline takes, and the values."""
    try:
        params = check_all(root / PARAMS_FILE)
    except UserError as error:
        return problem(
            "parameters", str(error), f"edit {PARAMS_FILE} as it says (`tokenmill params` explains each)"
        ), None
    return ok("parameters", f"{PARAMS_FILE} is valid"), params


def check_raw(root: Path, params: AllParams) -> tuple[Finding, Found | None]:
    """Whether there is text to read, and the files."""
    raw = params.data.raw
    if raw == BUILT_IN and not (root / raw).exists():
        return ok("text", f"the built-in {params.sample.conversations:,} conversations, made by the first stage"), None
    try:
        found = find(root / raw)
    except UserError as error:
        return problem("text", str(error), "dvc exp run -S data.raw=/path/to/texts"), None
    size = f"{sum(source.size for source in found.sources):,} bytes"
    text = f"{raw}: {len(found.sources):,} files, {size}"
    if not Path(raw).is_absolute() and not (root / raw).resolve().is_relative_to(root.resolve()):
        mend = f"dvc exp run -S data.raw={(root / raw).resolve()}"
        return warning("text", f"{text}; queued and --temp runs do not find a relative path outside", mend), found
    return ok("text", text), found


OFF = "set runtime.compile to off"


def compute_of(params: AllParams) -> tuple[Finding, Compute | None]:
    """The device that `runtime.device` comes to here."""
    try:
        compute = choose_compute(params.runtime.device, params.train.precision)
    except UserError as error:
        return problem("device", str(error), "set runtime.device to auto"), None
    precision = str(compute.precision).removeprefix("torch.")
    text = f"{compute.name}{_about(compute)}, {precision}{_why(compute, params.train.precision)}"
    if compute.device.type == "cpu" and _unused_gpu():
        mend = "install a build of torch for this GPU: https://pytorch.org/get-started/locally"
        return warning(
            "device", f"{text}; there is an NVIDIA GPU that torch {torch.__version__} does not see", mend
        ), compute
    return ok("device", text), compute


def check_compiler(runtime: RuntimeParams, compute: Compute) -> Iterator[Finding]:
    """Whether torch.compile finds what it needs, where `runtime.compile` wants it or a GPU gains much by it."""
    wanted = runtime.compile == "on"
    if not wanted and (runtime.compile == "off" or compute.device.type != "cuda"):
        return
    missing = lacks(compute.device)
    if missing is None:
        yield ok("compiler", "what torch.compile needs is there")
    else:
        text = f"torch.compile needs {missing}, which is not there"
        mend = f"apt install g++ python3-dev, or {OFF}"
        yield problem("compiler", text, mend) if wanted else warning("compiler", f"{text}; steps will be slower", mend)


def _about(compute: Compute) -> str:
    if compute.device.type != "cuda":
        return ""
    major, minor = torch.cuda.get_device_capability(compute.device)
    free, total = torch.cuda.mem_get_info(compute.device)
    several = f"{torch.cuda.device_count()} of them, " if torch.cuda.device_count() > 1 else ""
    return f" ({several}capability {major}.{minor}, {size(free)} of {size(total)} free)"


def _why(compute: Compute, wish: str) -> str:
    """Why matrix products run in this precision."""
    if wish != "auto":
        return " (train.precision)"
    if compute.device.type == "cpu":
        has = compute.precision == torch.bfloat16
        return " (the processor multiplies it)" if has else " (no AVX512_BF16 or AMX in this processor)"
    if compute.device.type == "cuda" and compute.precision == torch.float16:
        return " (this GPU has no bfloat16)"
    return ""


def _unused_gpu() -> bool:
    """Whether there is a driver of NVIDIA's, but no CUDA in PyTorch."""
    return Path("/proc/driver/nvidia/version").exists() and not torch.cuda.is_available()
