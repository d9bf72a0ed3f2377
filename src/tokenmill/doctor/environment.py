"""The interpreter and the packages: those that this repository was tested with?"""

import importlib.metadata
import platform
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tokenmill.doctor.finding import Finding, ok, problem, warning

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
