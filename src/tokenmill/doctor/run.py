"""All checks, in the order in which a run would meet the problems. A new check is a function and a line in CHECKS."""

from collections.abc import Iterator
from pathlib import Path

from tokenmill.doctor import checks, disk, dvc
from tokenmill.doctor.finding import Check, Finding, Project

CHECKS: tuple[Check, ...] = (
    checks.check_python,
    checks.check_packages,
    checks.check_params,
    checks.check_text,
    checks.check_git,
    dvc.check_repository,
    dvc.check_cache,
    dvc.check_remote,
    dvc.check_pipeline,
    dvc.check_runs,
    dvc.check_leftovers,
    checks.check_device,
    checks.check_compiler,
    disk.check_memory,
    disk.check_disk,
)


def run_checks(root: Path) -> Iterator[Finding]:
    """Check the project in the folder `root`; each finding comes as soon as it is known."""
    project = Project(root)
    for check in CHECKS:
        yield from check(project)
