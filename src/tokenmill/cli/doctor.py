"""`tokenmill doctor`: one line for each check, and the command to type where something is wrong."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from tokenmill.cli.main import Parser, add_json
from tokenmill.core.errors import UserError
from tokenmill.display import print_columns, print_record, say
from tokenmill.words.units import counted, size

if TYPE_CHECKING:
    from tokenmill.doctor.finding import Finding

SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}

EXAMPLES = """\
  tokenmill doctor                       before the first run, and when something is strange
  tokenmill doctor && dvc repro          run only if nothing is in the way
  tokenmill doctor --deep                when a file is damaged: what brings it back
  tokenmill doctor --store               what of runtime.store this project does not use
  tokenmill doctor --store --remove      remove that
"""

BRING_ALL = "dvc fetch --all-commits data/clean data/packed"
"""The command that brings the manifests of all commits but those of experiments."""


def add_arguments(parser: Parser) -> None:
    """Declare how deep to look."""
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also hash every object of DVC's cache, and every file here that dvc.lock names",
    )
    parser.add_argument(
        "--store",
        nargs="?",
        const="",
        metavar="URL",
        help="only list what no manifest of this project names in a store (default: runtime.store)",
    )
    parser.add_argument(
        "--remove", action="store_true", help="with --store: remove what no manifest names"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Print every finding as soon as it is known. The exit code is 1 if one is a problem."""
    if options.store is not None:
        if options.json or options.deep:
            raise UserError("--store goes with neither --json nor --deep.")
        _show_store(options.store, remove=options.remove)
        return
    if options.remove:
        raise UserError("--remove goes with --store.")
    found = []
    for finding in _findings(Path(), deep=options.deep):
        found.append(finding)
        if not options.json:
            print_finding(finding)
    counts = Counter[str](finding.level for finding in found)
    if options.json:
        print_record({"findings": [asdict(finding) for finding in found]})
    else:
        say(f"\n{_verdict(counts)}")
    if counts["problem"]:
        sys.exit(1)


def _show_store(url: str, *, remove: bool) -> None:
    """List what is missing and what is unused in a store, or remove what is unused."""
    from tokenmill.doctor.environment import check_running
    from tokenmill.doctor.store import compare, configured_store
    from tokenmill.formats.store import Store

    url = url or configured_store()
    store = Store(url)
    found = compare(store, url, Path())
    running = check_running(Path())  # after the comparison: a run may have begun meanwhile
    if remove and running.fix:
        raise UserError(
            f"{running.text}, and a shard that is being written looks unused; {running.fix}."
        )
    if remove and found.unread:
        raise UserError(_about_unread(found.unread))
    say(f"{url}: {_shards(found.used)} of this project, {_shards(found.unused)} unused")
    for name in found.missing:
        say(f"missing: {name}")
    for name in found.unused:
        if remove:
            store.remove(name)
        say(f"{'removed' if remove else 'unused'}: {name}")
    if found.unread:
        say(_about_unread(found.unread))
    elif found.unused and not remove:
        say(
            "Shards of other projects look unused, too, and those of earlier commits and other "
            f"clones until `git fetch && {BRING_ALL}` brings their manifests. Then: "
            "tokenmill doctor --store --remove"
        )


def _about_unread(commits: Sequence[str]) -> str:
    from tokenmill.doctor.finding import few

    names = few([commit[:12] for commit in commits])
    return (
        f"DVC's cache lacks the manifests of {counted(len(commits), 'commit')} ({names}), so their "
        f"shards look unused; bring them: `{BRING_ALL}`, or, faster and for experiments, too, "
        "`git switch --detach COMMIT && dvc fetch data/clean data/packed`; or remove their "
        "branches, tags and experiments."
    )


def _shards(sizes: dict[str, int]) -> str:
    return f"{counted(len(sizes), 'shard')} ({size(sum(sizes.values()))})"


def _findings(root: Path, *, deep: bool) -> Iterator["Finding"]:
    """Limits first: in too little address space nothing else can be imported.

    Raises:
        UserError: the folder has nothing of a project, so advice such as `git init` would be wrong.
    """
    from tokenmill.doctor.environment import check_limits
    from tokenmill.process import narrow_address_space

    yield from check_limits(root)
    if not narrow_address_space():
        if not any(os.path.lexists(root / name) for name in ("dvc.yaml", "params.yaml")):
            raise UserError(f"{root.resolve()} is no project; run this in the project's root.")
        from tokenmill.doctor.checks import run_checks

        yield from run_checks(root, deep=deep)


def print_finding(finding: "Finding", out: TextIO | None = None) -> None:
    """Print one finding, with its fix on a line of its own."""
    sign, colour = SIGNS[finding.level]
    mark = Text(f"{sign} {finding.level:<8}", colour)
    rows: list[tuple[str | Text, ...]] = [(mark, f"{finding.name:<10}", finding.text)]
    if finding.fix:
        rows.append(("", "", Text(f"→ {finding.fix}", colour)))
    print_columns(rows, gap=1, out=out)


def _verdict(counts: Counter[str]) -> str:
    found = [counted(counts[level], level) for level in ("problem", "warning") if counts[level]]
    if not found:
        return "all is well: `dvc repro`"
    return ", ".join(found if counts["problem"] else [*found, "nothing that stops a run"])
