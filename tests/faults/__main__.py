"""`make faults`, or `python -m tests.faults`: provoke faults and print one table of how they ended.

Examples:
    python -m tests.faults --count 2000                    of every kind
    python -m tests.faults --kinds damage --match .json    damaged JSON files
"""

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults import corpora, damage, disk, kills, places, sharing, surroundings, trial, values
from tests.faults.material import Quiet
from tests.faults.table import Result, table
from tests.pipeline.project import small_project

KINDS: dict[str, Callable[[Quiet, random.Random, int, str], Iterator[Result]]] = {
    "damage": damage.trials,
    "values": values.trials,
    "corpora": corpora.trials,
    "disk": disk.trials,
    "kills": kills.stage_trials,
    "dvc": kills.dvc_trials,
    "sharing": sharing.trials,
    "pipes": places.pipe_trials,
    "links": places.link_trials,
    "live": places.live_trials,
    "surround": surroundings.environment_trials,
    "address": surroundings.address_trials,
}

SHARES = {
    "damage": 0.3,
    "values": 0.15,
    "corpora": 0.07,
    "disk": 0.07,
    "kills": 0.17,
    "dvc": 0.02,
    "sharing": 0.01,
    "pipes": 0.05,
    "links": 0.05,
    "live": 0.04,
    "surround": 0.04,
    "address": 0.03,
}
"""How many of all trials are of a kind, unless one kind is asked for: those that run DVC take half
a minute each."""


def main() -> None:
    """Prepare a quiet project, run the trials, print the bad ones and the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200, help="how many faults")
    parser.add_argument("--seed", type=int, default=0, help="another seed provokes others")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--match", default="", help="only trials whose name contains this")
    parser.add_argument(
        "--project", type=Path, help="a finished small project; without it one is made"
    )
    parser.add_argument("--log", type=Path, help="a file for every trial and what it said")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        root = options.project or small_project(Path(folder) / "quiet").root
        if not options.project:
            finish(root)
        trial.import_everything()
        results = list(campaign(Quiet(root), options))
    print(table(results))
    bad = [result for result in results if result.is_bad]
    sys.exit(f"{len(bad)} of {len(results)} faults ended badly" if bad else 0)


def finish(root: Path) -> None:
    """Run the whole pipeline once."""
    from tests.pipeline.project import Project  # noqa: PLC0415

    project = Project(root)
    project.repro()
    project.commit()
    project.run("git", "gc", "--quiet")  # few files, so that copies are quick


def campaign(quiet: Quiet, options: argparse.Namespace) -> Iterator[Result]:
    """The trials of all kinds; what ends badly is printed at once."""
    total = sum(SHARES[kind] for kind in options.kinds)
    with open(options.log or "/dev/null", "a", encoding="utf-8") as log:  # noqa: PTH123
        for kind in options.kinds:
            began = time.monotonic()
            count = round(options.count * SHARES[kind] / total)
            chance = random.Random(f"{kind} {options.seed}")
            for result in itertools.islice(KINDS[kind](quiet, chance, count, options.match), count):
                yield result
                print(
                    f"{result.ending:<9} {result.kind:<7} {result.name}\n{result.said}\n",
                    file=log,
                    flush=True,
                )
                if result.is_bad:
                    print(
                        f"{result.ending:<9} {result.kind:<7} {result.name}\n    "
                        f"{last_line(result.said)}",
                        flush=True,
                    )
            print(f"{kind}: {time.monotonic() - began:,.0f} s", file=sys.stderr)


def last_line(said: str) -> str:
    """The last line of an output: a traceback's error, or the sentence."""
    return (said.strip().splitlines() or [""])[-1][:200]


if __name__ == "__main__":
    main()
