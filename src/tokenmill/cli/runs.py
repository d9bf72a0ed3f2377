"""`tokenmill runs`: one table of all commits and experiments, with changed parameters, results and
costs.

DVC collects parameters and metrics (`dvc.api.exp_show`). Times are those that `.resume` keeps,
found by the model in DVC's cache; a run that was trained elsewhere, or in part, has none.
"""

import argparse
import contextlib
import hashlib
import io
import json
import logging
import queue
import re
import statistics
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill import git
from tokenmill.cli.main import Parser, add_json, count
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import NOT_PERMITTED
from tokenmill.display import console, note, print_columns, print_record, say, shortened
from tokenmill.words.units import duration, fixed, money

if TYPE_CHECKING:
    import pandas as pd
    import pygit2
    from dvc.repo import Repo

    from tokenmill.dvc_lock import Lock

TRAINED = {
    "epochs": "epoch",
    "steps": "steps",
    "parameters": "parameters",
    "train_loss": "train_loss",
    "val_loss": "val_loss",
}
"""The columns of the table that show a metric of `train`, each with its name in
metrics/train.json."""

EVALUATED = {
    "bits_per_byte": "bits_per_byte",
    "right": "expected_found",
    "seen_right": "seen_right",
    "held_out_right": "held_out_right",
}
"""Those that show a metric of `evaluate`, each with its name in metrics/eval.json. They are left
out while the evaluation is of another model."""

SHOWN_METRICS = TRAINED | EVALUATED

COUNTS = ("epochs", "steps", "parameters")
"""The columns with whole numbers."""

FINETUNED_METRICS = {
    "chats_loss": f"{paths.FINETUNED_METRICS}/train.json:val_loss",
    "base_text_loss": "base_text_loss",
}
"""More columns, of a fine-tuned model: its losses on held-out chats and on the base's text."""

VALIDATION = "validation text"
"""The name of its hash among what DVC shows of a run."""

COLUMNS = ["run", "rev", "created", "state", "changed", "text", "validation_text", "tokenizer"]
COLUMNS += [*SHOWN_METRICS, *FINETUNED_METRICS]
COLUMNS += ["seconds", "units", "money", "currency", "tokens_per_second"]

FINGERPRINT = re.compile(r"\w[\w-]*")
"""Matches the fingerprint of a run. The fingerprint becomes a part of a path, so nothing else may
pass."""

SORT = {
    "new": "",
    "loss": "val_loss",
    "bits": "bits_per_byte",
    "right": "right",
    "time": "seconds",
    "cost": "money",
    "speed": "tokens_per_second",
}
"""The names by which rows can be sorted, each with its column."""

BEST_IS_MOST = ("right", "speed")

AGREE = {
    "val_loss": ("tokenizer", "validation_text"),
    "bits_per_byte": ("validation_text",),
    "money": ("currency", "text"),
}
"""The columns in which runs must agree so that their numbers have an order, the last of them the
first to look at; for other numbers, `text`."""

NAME_WIDTH = 40
"""The most columns that a name takes on a terminal. A pipe gets it whole."""

TRIES = 5
"""How often DVC is asked for the runs while it sets an experiment up, which takes seconds."""

MOMENT = 1.0
"""Seconds between two tries."""

NO_COMMIT = "Empty git repo"
"""What scmrepo says, without a path, of a repository without a commit: of a copy alone, because DVC
asks this repository for commits by their hashes."""

IN_YAML = {"None": "null", "True": "true", "False": "false"}
"""Values of params.yaml as DVC shows them, and as they are typed."""

COMMITS = 10
"""The number of commits whose runs are listed."""

EXAMPLES = """\
  tokenmill runs                        the workspace, commits and their experiments
  tokenmill runs --sort bits            the best first, those of each text together
  tokenmill runs --csv > runs.csv       every column, for pandas or a spreadsheet
  tokenmill runs --json                 the same for a program
"""


def add_arguments(parser: Parser) -> None:
    """Declare the order, extent and form of the table."""
    parser.add_argument(
        "--sort", choices=SORT, default="new", metavar="COLUMN", help=f"one of {', '.join(SORT)}"
    )
    parser.add_argument(
        "--commits",
        type=count,
        default=COMMITS,
        metavar="N",
        help=f"of how many commits (default {COMMITS})",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print all columns as CSV")
    add_json(form)


def run(options: argparse.Namespace) -> None:
    """Print the table of the project in the current folder."""
    runs = find_runs(Path(), commits=options.commits)
    if column := SORT[options.sort]:
        runs = ranked(runs, column, ascending=options.sort not in BEST_IS_MOST)
    if options.csv:
        say(runs.to_csv(index=False, float_format="%.6g").rstrip("\n"))
        return
    if options.json:
        known = runs.astype(object).where(runs.notna(), None)
        print_record({"runs": known.to_dict("records")})
        return
    _print(runs)
    several = [name for name in AGREE.get(column, ("text",)) if runs.loc[:, name].nunique() > 1]
    if column and several:
        names = " and ".join(name.replace("_", " ") for name in reversed(several))
        console().print(
            f"runs of one {names} stand together, the workspace's first;\n"
            "numbers of different ones have no order"
        )
    lacking = runs.loc[runs["val_loss"].notna() & runs["bits_per_byte"].isna(), "run"]
    if len(lacking):
        console().print(f"not evaluated yet, which `dvc repro` does there: {', '.join(lacking)}")
    for name in runs.loc[runs["state"] == "failed", "run"]:
        console().print(f"why {name} failed: `dvc queue logs {name}`")
    if runs.loc[:, "seconds"].hasnans:
        console().print(
            "times and costs are known where all of a run was trained in this folder, and\n"
            "its model is in DVC's cache"
        )


def ranked(runs: "pd.DataFrame", column: str, *, ascending: bool) -> "pd.DataFrame":
    """The runs sorted by a column, those whose numbers have an order together. First come those
    that agree with the first row, which is the workspace's, then the others in the order of their
    best runs."""
    own = runs.head(1)
    runs = runs.sort_values(column, ascending=ascending, kind="stable")
    for name in AGREE.get(column, ("text",)):
        runs = _together(runs, name, first=[*own[name].dropna()])
    return runs


def _together(runs: "pd.DataFrame", column: str, *, first: Sequence[str]) -> "pd.DataFrame":
    """The runs with equal values of a column together, otherwise in their order: those of the value
    in `first` before the others, those without one at the end."""
    values = dict.fromkeys([*first, *runs[column].dropna()])
    order = {value: number for number, value in enumerate(values)}
    return runs.sort_values(column, key=lambda cells: cells.map(order), kind="stable")


def find_runs(root: Path, *, commits: int) -> "pd.DataFrame":
    """A row of COLUMNS for the workspace, for each of the newest `commits` that changed the model,
    and for every experiment."""
    import pandas as pd
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from scmrepo.exceptions import SCMError

    from tokenmill.runs.find import remotes_here

    logging.getLogger("dvc").setLevel(logging.ERROR)
    git.refuse_unreadable(root)  # where DVC ends in a traceback
    _note_damage(root)
    experiments = git.experiments(root)
    newest = (
        git.ask(root, "rev-list", "--first-parent", f"--max-count={commits}", "HEAD") or ""
    ).split()
    here = git.commits_here(root, [one.baseline for one in experiments])
    if unknown := [one.name for one in experiments if one.baseline not in here]:
        names = ", ".join(unknown)
        note(f"not listed, because the commits that they began from are not here: {names}")
    try:
        remotes_here(root)  # else DVC ends in a traceback
        shown = _entries(root, [*newest, *sorted(here - set(newest))])
        with Repo(str(root)) as repo:
            shown = [_as_trained(of_own_model(entry, root), repo) for entry in shown]
            rows = [_row(entry, before, repo, root) for entry, before in _with_base(shown)]
    except (DvcException, SCMError, OSError) as error:
        if isinstance(error, OSError) and not _is_of_copy(error):
            raise
        said = " ".join(str(error).split())
        raise UserError(f"{root.resolve()}: {said}; {_way_out(error)}.") from None
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(COUNTS, "Int64"))


def read_whole(blob: "pygit2.Blob", **options: Any) -> io.BytesIO:
    """The bytes of a file in git, as `pygit2.BlobIO` reads them, but without its thread: if that
    ends with an error, its reader waits for ever."""
    chunks = queue.Queue[bytes]()
    blob._write_to_queue(chunks, threading.Event(), threading.Event(), **options)  # noqa: SLF001
    return io.BytesIO(b"".join(chunks.queue))


def _entries(root: Path, revs: Sequence[str]) -> list[dict[str, Any]]:
    """What DVC shows of these commits, their experiments and the workspace."""
    import pygit2
    from dvc.api import exp_show
    from dvc.exceptions import DvcException
    from scmrepo.exceptions import SCMError

    # DVC removes the copy of an experiment that has just ended while its files are read here
    pygit2.BlobIO = read_whole
    for _ in range(TRIES - 1):
        try:
            return exp_show(str(root), revs=list(revs))
        except (DvcException, SCMError, OSError) as error:
            if not _is_of_copy(error):
                raise
        time.sleep(MOMENT)
    return exp_show(str(root), revs=list(revs))


def _is_of_copy(error: Exception) -> bool:
    """Whether DVC fails on a copy of the project that is not whole, or on its record of one, while
    it makes or removes them for an experiment. It lists nothing then."""
    is_barred = isinstance(error, OSError) and error.errno in NOT_PERMITTED
    return (str(paths.COPIES) in str(error) or str(error) == NO_COMMIT) and not is_barred


def _way_out(error: Exception) -> str:
    """What the user can do where DVC does not list the runs."""
    if not _is_of_copy(error):
        return "`tokenmill doctor` says more"
    moment = "DVC is setting an experiment up or has just ended it; try again in a moment"
    if isinstance(error, OSError) and str(error.filename).endswith(".run"):
        # A worker of DVC (3.67) that is shut down may take one more experiment, and never begins it
        return (
            f"{moment}. If `dvc queue status` shows the experiment as Running, but no active "
            "worker: `dvc queue kill NAME`, then queue it again"
        )
    return moment


def names_of_runs(root: Path) -> list[str]:
    """The finished runs in the order of the table, by names that are revisions of git: a commit's
    instead of an experiment's that two experiments have."""
    runs = find_runs(root, commits=COMMITS).dropna(subset="val_loss")
    is_twice = runs["run"].duplicated(keep=False)
    return runs["run"].mask(is_twice, runs["rev"]).tolist()


def of_own_model(entry: dict[str, Any], root: Path) -> dict[str, Any]:
    """An entry of DVC with the model that `train` wrote last, where DVC shows what a later stage
    read, and without what was measured of another one: of a model of another text, or trained with
    other parameters than the entry's."""
    from tokenmill.dvc_lock import Lock

    rev = None if entry["rev"] == "workspace" else entry["rev"]
    try:
        lock = Lock.read(root, rev)
    except UserError:  # what DVC itself shows of it then is little
        return entry
    is_other = any(
        entry.get(name, "None") != _shown(value) for name, value in lock.trained_with.items()
    )
    raw = entry.get("data.raw")  # None while DVC sets an experiment up
    is_of_raw = raw is None or lock.is_of_raw(str(raw), root)
    left_out = set() if lock.is_evaluated else set(EVALUATED.values())
    if is_other or not (is_of_raw and lock.is_of_text):
        left_out |= set(SHOWN_METRICS.values())
    for method in re.findall(r"\w+", str(entry.get("finetune.methods", ""))):
        is_of_method = lock.is_finetuned(method, root, rev)
        left_out |= set() if is_of_method else set(FINETUNED_METRICS.values())
    own = (paths.MODEL.as_posix(), paths.TOKENIZER.parent.as_posix())
    hashes = {name: lock.outputs.get(name) for name in own}
    return _without(entry, left_out) | hashes | {VALIDATION: _validation(entry, lock)}


def _validation(entry: Mapping[str, Any], lock: "Lock") -> str:
    """A hash of what decides on which text losses are measured: the clean text, and the parameters
    that choose from it. Text that nothing records is told by its place."""
    clean = lock.outputs.get(paths.CLEAN.as_posix()) or entry.get("data.raw")
    chosen = {
        name: value
        for name, value in entry.items()
        if name.startswith("tokenize.") or name == "train.validation_bytes"
    }
    said = json.dumps([clean, chosen], sort_keys=True)
    return hashlib.md5(said.encode(), usedforsecurity=False).hexdigest()[:12]


def _shown(value: Any) -> float | str:
    """A parameter as DVC shows it: a number, or text; an empty mapping as none."""
    text = "None" if value == {} else str(value)
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def _as_trained(entry: dict[str, Any], repo: "Repo") -> dict[str, Any]:
    """An entry without what was measured, if its model was trained with other parameters than the
    entry's, as its manifest says."""
    from tokenmill.runs.consistency import cached_manifest, false_parameters

    recorded = {name: None if value == "None" else value for name, value in entry.items()}
    is_false = false_parameters(cached_manifest(repo, _model(entry)), recorded)
    return _without(entry, SHOWN_METRICS.values()) if is_false else entry


def _without(entry: Mapping[str, Any], metrics: Collection[str]) -> dict[str, Any]:
    """An entry without these metrics."""
    return {
        name: value
        for name, value in entry.items()
        if re.sub(r"^metrics/(train|eval)\.json:", "", name) not in metrics
    }


def _note_damage(root: Path) -> None:
    """Say which metrics of the workspace are damaged. DVC leaves them out without a word."""
    from tokenmill.formats.records import read_record

    folders = paths.METRICS, paths.FINETUNED_METRICS
    for file in [
        root / folder / name for folder in folders for name in ("train.json", "eval.json")
    ]:
        with contextlib.suppress(OSError):
            try:
                if file.exists():
                    read_record(file, dict[str, float])
            except UserError as error:
                note(str(error))


def _with_base(
    shown: list[dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Yield the experiments, and the commits that changed the model, each with the commit that it
    is compared with."""
    commits = [entry for entry in shown if entry["typ"] == "baseline"]
    trained = list(
        {
            _model(entry): entry for entry in reversed(commits[1:]) if _metric(entry, "val_loss")
        }.values()
    )
    base = None
    for entry in shown:
        if entry["typ"] != "baseline":
            yield entry, base
            continue
        base = entry
        if entry is commits[0]:
            yield entry, commits[1] if len(commits) > 1 else None
        elif entry in trained:
            number = trained.index(entry)
            yield entry, trained[number - 1] if number else None


def _row(
    entry: dict[str, Any], base: dict[str, Any] | None, repo: "Repo", root: Path
) -> dict[str, Any]:
    state = (entry["State"] or "").lower().removeprefix("success")
    row = {name: _metric(entry, metric) for name, metric in SHOWN_METRICS.items()}
    is_trained = row["val_loss"] is not None and not state  # until it ends, of the run before
    if not is_trained:
        row = dict.fromkeys(SHOWN_METRICS)
    else:
        row |= {
            "validation_text": entry.get(VALIDATION),
            "tokenizer": entry.get(paths.TOKENIZER.parent.as_posix()),
        }
    if is_trained and entry.get("finetune.methods"):
        row |= {name: _metric(entry, metric) for name, metric in FINETUNED_METRICS.items()}
    counts = {name: _whole(row[name]) for name in COUNTS}
    named = {
        "run": entry["Experiment"] or entry["rev"],
        "rev": entry["rev"],
        # DVC's own time has no date or no time of day, and no time zone
        "created": git.commit_time(root, entry["rev"]) if entry["Created"] else None,
        "state": state,
        "changed": " ".join(_changes(entry, base)) if base else "",
        "text": str(entry.get("data.raw") or ""),
    }
    return named | row | counts | (_times(entry, repo, root) if is_trained else {})


def _metric(entry: Mapping[str, Any], name: str) -> float | None:
    """A metric. DVC adds the name of its file if another file or a parameter has the same name."""
    found = (
        entry.get(key) for key in (name, f"metrics/train.json:{name}", f"metrics/eval.json:{name}")
    )
    return next((float(value) for value in found if isinstance(value, int | float)), None)


def _whole(number: float | None) -> int | None:
    """A count as a whole number; None if it is none, as in metrics that are damaged."""
    return int(number) if number is not None and number.is_integer() else None


def _model(entry: Mapping[str, Any]) -> str:
    return str(entry.get(paths.MODEL.as_posix()))


def _changes(entry: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parameters whose values differ from the base, as `model.n_layer=2`; only the name
    if the value is long."""
    from tokenmill.schema import AllParams

    if entry.get("data.raw") is None:  # DVC knows no parameter while it sets an experiment up
        return
    for name, value in entry.items():
        section = name.partition(".")[0]
        if section in AllParams.model_fields and section != "runtime" and value != base.get(name):
            text = f"{value:g}" if isinstance(value, float) else str(value)
            text = IN_YAML.get(text, text)
            yield f"{name}={text}" if len(text) <= 40 else name


def _times(entry: Mapping[str, Any], repo: "Repo", root: Path) -> dict[str, Any]:
    """The time and cost of all training up to the last step of the run, if this machine knows
    them."""
    from tokenmill.costs import are_whole, find_times, read_timing, spent
    from tokenmill.runs.consistency import cached_manifest

    manifest = cached_manifest(repo, _model(entry))
    found = FINGERPRINT.fullmatch(str(manifest.get("fingerprint", "")))
    if found is None:
        return {}
    steps = _whole(_metric(entry, "steps")) or 0
    rows = read_timing(find_times(root / paths.resume_root(), found[0]), steps=steps)
    if not are_whole(rows):
        return {}
    rate = statistics.median(row.tokens_per_second for row in rows)
    return asdict(spent(rows)) | {"tokens_per_second": rate}


def _print(runs: "pd.DataFrame") -> None:
    known = [row.dropna().to_dict() for _, row in runs.iterrows()]
    head = ("run", "val loss", "bits/byte", "right", "time", "tokens/s", "cost")
    names, *columns = zip(head, *map(_cells, known), strict=True)
    shown = list(zip(names, *(cells for cells in columns if any(cells[1:])), strict=True))
    if sys.stdout.isatty():
        shown = [(shortened(name, NAME_WIDTH), *numbers) for name, *numbers in shown]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    changes = [": ".join(filter(None, (row["state"], row["changed"]))) for row in known]
    tuned = map(_finetuned, known)
    for (name, *numbers), *below in zip(shown, ["", *changes], ["", *tuned], strict=True):
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        console().print("  ".join([name.ljust(widths[0]), *cells]).rstrip(), soft_wrap=True)
        for line in filter(None, below):
            print_columns([("   ", line)], gap=1)


def _finetuned(known: Mapping[Any, Any]) -> str:
    if not known.keys() >= FINETUNED_METRICS.keys():
        return ""
    chats, text = (known[name] for name in FINETUNED_METRICS)
    return f"fine-tuned: loss {fixed(chats)} on held-out chats, {fixed(text)} on the base's text"


def _cells(known: Mapping[Any, Any]) -> tuple[str, ...]:
    return (
        str(known["run"]),
        *(fixed(known[name]) if name in known else "" for name in ("val_loss", "bits_per_byte")),
        f"{known['right']:.0%}" if "right" in known else "",
        duration(known["seconds"]) if "seconds" in known else "",
        f"{known['tokens_per_second']:,.0f}" if "tokens_per_second" in known else "",
        money(known["money"], known.get("currency")) if "money" in known else "",
    )
