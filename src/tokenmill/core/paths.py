"""Where artefacts are, relative to the root of a project. The paths are the same in the work tree,
in every revision, and in dvc.yaml.

A stage or command works on the project in which it runs, whatever the environment names.
"""

import os
import re
from pathlib import Path
from shlex import quote

from tokenmill.core.errors import UserError

CHECKED = Path("data/checked.txt")
SAMPLE = Path("data/raw/sample")
PROMPTS_FILE = "prompts.yaml"
"""The name of the file of prompts directly in the folder `data.raw`, for any corpus. With
`evaluate.prompts: auto` the models answer these prompts."""

VALIDATION_WORDS = "val|valid|validation"
"""A regular expression of the words by which data sets name their files of validation text."""

VALIDATION_NAME = rf"(?i)(^|[-_./ ])({VALIDATION_WORDS})($|[-_./ ])"
"""Matches the path of a file that holds validation text, as data sets are published:
`TinyStories-valid.txt`, `validation-00000-of-00001.parquet`, `val/7.txt`."""

CLEAN = Path("data/clean")
CLEAN_REPORT = Path("data/clean_report.json")
TOKENIZER = Path("data/tokenizer/tokenizer.json")
PACKED = Path("data/packed")
TOKENS = Path("data/tokens")
INDEX = Path("data/index")
BENCHMARKS = Path("data/benchmarks")
"""The folder of benchmarks, each a file that `tokenmill fetch` brings or that a user writes."""

MODEL = Path("models/gpt")
STARTS = Path("models/start")
"""The folder in which `tokenmill import` puts each model to start from, in a folder of its own that
DVC tracks."""

FINETUNED = Path("models/finetuned")
MODELS = MODEL.parent

LIVE = Path("live")

METRICS = Path("metrics")
TRAIN_METRICS = METRICS / "train.json"
HISTORY = METRICS / "history.csv"
STEPS = METRICS / "steps.csv"
BENCHMARK_ROWS = METRICS / "benchmarks.csv"
FINETUNED_METRICS = METRICS / "finetuned"

EVALUATION = Path("reports/evaluation.json")
VALIDATION_DOCUMENTS = Path("reports/validation_documents.csv")
TRACES = Path("reports/answer_traces.json")
BENCHMARK_RESULTS = Path("reports/benchmarks.json")
SAMPLES = Path("reports/samples.md")
FINETUNED_REPORT = Path("reports/finetuned.md")
HELD_OUT = Path("reports/finetuned_held_out.json")
"""Chats that `finetune` did not learn from, for `evaluate_finetuned` to ask."""
DATA_REPORT = Path("reports/data.html")
RUN_REPORT = Path("reports/index.html")


COPIES = Path(".dvc/tmp/exps")
"""Where DVC runs the experiments of a queue, each in a copy of the repository; those with `--temp`
in `standalone/`."""


def main_root() -> Path:
    """The main repository: the current folder, unless that is in a copy in which DVC runs an
    experiment. Copies are below the main repository, so nothing else needs to name it."""
    here = Path.cwd()
    for folder in here.parents:
        if folder.parts[-len(COPIES.parts) :] == COPIES.parts:
            return folder.parents[len(COPIES.parts) - 1]
    return Path()


def enclosing_project(folder: Path) -> Path | None:
    """The project that a folder is, or else the nearest one in which it lies. A project has a
    dvc.yaml beside a params.yaml."""
    here = folder.resolve()
    for root in (here, *here.parents):
        if (root / "dvc.yaml").is_file() and (root / "params.yaml").is_file():
            return root
    return None


def resume_root() -> Path:
    """The folder `.resume` of the main repository."""
    return main_root() / ".resume"


STEP_NAME = re.compile(r"step-(\d{9,})")
"""Matches the name of a checkpoint's folder in `.resume/<fingerprint>`, with its step."""


def step_folders(run: Path) -> list[tuple[int, Path]]:
    """The steps and the folders of all checkpoints in a run's folder, in order; none behind a
    link."""
    if run.is_symlink():
        return []
    found = ((STEP_NAME.fullmatch(path.name), path) for path in run.glob("step-*"))
    return sorted((int(name[1]), path) for name, path in found if name)


EPOCH_NAME = re.compile(r"epoch-(\d+)(?:-[0-9a-f]{8})?")
"""Matches the name of the folder of an epoch's weights, with its number. In `.resume` digits of
their hash follow."""


def epoch_folder(run: Path, epoch: int, sha256: str) -> Path:
    """The folder of the weights with this hash at an epoch's end, in a run's folder of checkpoints.
    Runs over more and over fewer epochs share that folder, and have other weights at the same
    end."""
    return run / "epochs" / f"epoch-{epoch}-{sha256[:8]}"


PACKED_SHARDS = "packed"
"""The name of a folder beside those of training in `.resume`: the packed shards that `tokenize` has
finished."""


OUTPUTS = (
    SAMPLE,
    CLEAN,
    TOKENIZER.parent,
    PACKED,
    TOKENS,
    INDEX,
    METRICS / "data",
    MODEL,
    FINETUNED,
)
"""The folders that stages write. DVC removes what else is in them."""


def real_path(place: str | Path) -> Path:
    """The absolute path of a place without links, with the home folder for `~`. A link to itself
    stays as it is; `~` of a user who is not here is a name in the current folder."""
    return Path(os.path.realpath(os.path.expanduser(place)))  # noqa: PTH111 (pathlib raises errors)


def refuse_output(target: Path, root: Path = Path()) -> None:
    """Refuse a place in a folder that a stage of the project at `root` writes."""
    place = real_path(target)
    for output in OUTPUTS:
        if place.is_relative_to(real_path(root / output)):
            raise UserError(
                f"{target} lies in {output}, where DVC removes what the stage did not write; name "
                "a folder elsewhere."
            )


WRITTEN = ("data", "models", "metrics", "reports")
"""The folders of a project in which everything is recorded by DVC, by `dvc add` or by git."""

DEEP = "`tokenmill doctor --deep` names the command that mends it"
"""The way out in errors about a file that DVC or git records."""


def way_out(path: Path) -> str:
    """What to do about a damaged file, or one of another version: the end of a sentence, with a
    command where there is one."""
    below = Path(os.path.relpath(path)).parts
    if below[0] in WRITTEN:
        return DEEP
    checkpoints = [one for one in (path, *path.parents) if STEP_NAME.fullmatch(one.name)]
    if checkpoints:
        return f"after `rm -r {quote(str(checkpoints[0]))}` training continues from before it"
    if ".resume" in below:
        return "`dvc repro` makes it again"
    # As of an exported model, which the version that reads it may take for damaged
    return (
        "bring it again from where it is from; if TokenMill wrote it, use the version that did so"
    )


def damaged(path: Path, what: str) -> UserError:
    """The error about a file that is not what a stage wrote; `what` follows its path."""
    return UserError(f"{path} {what}; {way_out(path)}.")
