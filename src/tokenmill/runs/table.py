"""All commits and experiments as one table: what each changed, its results, its times and costs.

DVC collects parameters and metrics (`dvc.api.exp_show`). Times are those that `.resume` keeps,
found by the model in DVC's cache; a run that was trained elsewhere, or in part, has none.
"""

import contextlib
import hashlib
import io
import json
import logging
import queue
import re
import statistics
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pygit2
from dvc.api import exp_show
from dvc.exceptions import DvcException
from dvc.repo import Repo
from scmrepo.exceptions import SCMError

from tokenmill import git
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import NOT_PERMITTED
from tokenmill.costs import are_whole, find_times, read_timing, spent
from tokenmill.display import note
from tokenmill.dvc_lock import Lock
from tokenmill.formats.records import read_record
from tokenmill.runs.consistency import cached_manifest, false_parameters
from tokenmill.runs.find import open_repo
from tokenmill.schema import AllParams

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

TRIES = 5
"""How often DVC is asked for the runs while it sets an experiment up, which takes seconds."""

MOMENT = 1.0
"""Seconds between two tries."""

NO_COMMIT = "Empty git repo"
"""What scmrepo says, without a path, of a repository without a commit: of a copy alone, because DVC
asks this repository for commits by their hashes."""

IN_YAML = {"None": "null", "True": "true", "False": "false"}
"""Values of params.yaml as DVC shows them, and as they are typed."""


def find_runs(root: Path, *, commits: int) -> pd.DataFrame:
    """A row of COLUMNS for the workspace, for each of the newest `commits` that changed the model,
    and for every experiment."""
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
        with open_repo(root) as repo:
            shown = _entries(root, [*newest, *sorted(here - set(newest))])
            shown = [_as_trained(of_own_model(entry, root), repo) for entry in shown]
            rows = [_row(entry, before, repo, root) for entry, before in _with_base(shown)]
    except (DvcException, SCMError, OSError) as error:
        if isinstance(error, OSError) and not _is_of_copy(error):
            raise
        said = " ".join(str(error).split())
        raise UserError(f"{root.resolve()}: {said}; {_way_out(error)}.") from None
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(COUNTS, "Int64"))


def read_whole(blob: pygit2.Blob, **options: Any) -> io.BytesIO:
    """The bytes of a file in git, as `pygit2.BlobIO` reads them, but without its thread: if that
    ends with an error, its reader waits for ever."""
    chunks = queue.Queue[bytes]()
    blob._write_to_queue(chunks, threading.Event(), threading.Event(), **options)  # noqa: SLF001
    return io.BytesIO(b"".join(chunks.queue))


def _entries(root: Path, revs: Sequence[str]) -> list[dict[str, Any]]:
    """What DVC shows of these commits, their experiments and the workspace."""
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


def names_of_runs(root: Path, *, commits: int) -> list[str]:
    """The finished runs in the order of the table, by names that are revisions of git: a commit's
    instead of an experiment's that two experiments have."""
    runs = find_runs(root, commits=commits).dropna(subset="val_loss")
    is_twice = runs["run"].duplicated(keep=False)
    return runs["run"].mask(is_twice, runs["rev"]).tolist()


def of_own_model(entry: dict[str, Any], root: Path) -> dict[str, Any]:
    """An entry of DVC with the model that `train` wrote last, where DVC shows what a later stage
    read, and without what was measured of another one: of a model of another text, or trained with
    other parameters than the entry's."""
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


def _validation(entry: Mapping[str, Any], lock: Lock) -> str:
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


def _as_trained(entry: dict[str, Any], repo: Repo) -> dict[str, Any]:
    """An entry without what was measured, if its model was trained with other parameters than the
    entry's, as its manifest says."""
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
    folders = root / paths.METRICS, root / paths.FINETUNED_METRICS
    files = (folder / name for folder in folders for name in ("train.json", "eval.json"))
    for file in files:
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
    entry: dict[str, Any], base: dict[str, Any] | None, repo: Repo, root: Path
) -> dict[str, Any]:
    state = (entry["State"] or "").lower().removeprefix("success")
    row = {
        "run": entry["Experiment"] or entry["rev"],
        "rev": entry["rev"],
        # DVC's own time has no date or no time of day, and no time zone
        "created": git.commit_time(root, entry["rev"]) if entry["Created"] else None,
        "state": state,
        "changed": " ".join(_changes(entry, base)) if base else "",
        "text": str(entry.get("data.raw") or ""),
    }
    columns = SHOWN_METRICS | (FINETUNED_METRICS if entry.get("finetune.methods") else {})
    found = {name: _metric(entry, metric) for name, metric in columns.items()}
    if state or found["val_loss"] is None:  # until it ends, its metrics are of the run before
        return row
    row |= found | {name: _whole(found[name]) for name in COUNTS}
    row["validation_text"] = entry.get(VALIDATION)
    row["tokenizer"] = entry.get(paths.TOKENIZER.parent.as_posix())
    return row | _times(entry, repo, root)


def _metric(entry: Mapping[str, Any], name: str) -> float | None:
    """A metric. DVC adds the name of its file if another file or a parameter has the same name."""
    names = (name, f"metrics/train.json:{name}", f"metrics/eval.json:{name}")
    found = (entry.get(each) for each in names)
    return next((float(value) for value in found if isinstance(value, int | float)), None)


def _whole(number: float | None) -> int | None:
    """A count as a whole number; None if it is none, as in metrics that are damaged."""
    return int(number) if number is not None and number.is_integer() else None


def _model(entry: Mapping[str, Any]) -> str:
    return str(entry.get(paths.MODEL.as_posix()))


def _changes(entry: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parameters whose values differ from the base, as `model.n_layer=2`; only the name
    if the value is long."""
    if entry.get("data.raw") is None:  # DVC knows no parameter while it sets an experiment up
        return
    for name, value in entry.items():
        section = name.partition(".")[0]
        if section in AllParams.model_fields and section != "runtime" and value != base.get(name):
            text = f"{value:g}" if isinstance(value, float) else str(value)
            text = IN_YAML.get(text, text)
            yield f"{name}={text}" if len(text) <= 40 else name


def _times(entry: Mapping[str, Any], repo: Repo, root: Path) -> dict[str, Any]:
    """The time and cost of all training up to the last step of the run, if this machine knows
    them."""
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
