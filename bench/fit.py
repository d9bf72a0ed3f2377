"""What `tokenmill fit` promises, against trained models: `python -m bench.fit TEXT [TEXT ...]
--minutes 1 4`.

For each text and each number of minutes, the proposal is trained, and then its neighbours for as
long: a smaller and a larger model, half and twice the batch, half and twice the vocabulary. A good
proposal takes the time that it promises, and none of its neighbours learns much more. Losses are
bits per byte, which vocabularies cannot change. Behind the seconds stand those of the processor: if
they are fewer, the machine did something else, too. A machine that is faster at one time than at
another promises something else after the training than before.
"""

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import Any

from bench.data import measure
from bench.data.jobs import STAGES
from bench.data.project import make_project
from bench.program import ROOT, RowFile, command_line
from tokenmill.core.paths import HISTORY
from tokenmill.formats.records import read_rows
from tokenmill.formats.token_file import read_metadata
from tokenmill.planning.benchmark import step_timer
from tokenmill.planning.fit import (
    LADDER,
    Corpus,
    Fit,
    StepSeconds,
    TokenizedText,
    epoch_seconds,
    fit,
    workload,
)
from tokenmill.planning.params_file import params_with
from tokenmill.schema import AllParams
from tokenmill.stage import report_errors
from tokenmill.training.history import EpochRow
from tokenmill.training.schedule import Workload


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A model and its training, for a vocabulary."""

    name: str
    work: Workload
    vocabulary: int
    epochs: float
    """As many as the time allows; only the proposal's are whole."""


def main() -> None:
    """Train every proposal and its neighbours, and print a table for each."""
    parser = command_line(__doc__)
    parser.add_argument(
        "texts", type=Path, nargs="+", metavar="TEXT", help="a file or a folder, as data.raw"
    )
    parser.add_argument("--minutes", type=float, nargs="+", default=[1.0])
    parser.add_argument("--alone", action="store_true", help="without the neighbours")
    options = parser.parse_args()
    rows = RowFile(options.json)
    report_errors(lambda: run(options.texts, options.minutes, rows, alone=options.alone))


def run(texts: list[Path], minutes: list[float], rows: RowFile, *, alone: bool) -> None:
    """All texts for the first number of minutes, then for the next."""
    for each in minutes:
        for text in texts:
            with tempfile.TemporaryDirectory() as folder:
                compare(text.resolve(), each, Path(folder), rows, alone=alone)


def compare(text: Path, minutes: float, folder: Path, rows: RowFile, *, alone: bool) -> None:
    """The proposal for a text, and its neighbours unless it is `alone`, trained one after the
    other."""
    params = params_with({"data.raw": str(text)}, ROOT / "params.yaml")
    step_seconds = step_timer(params.runtime)
    corpus = Corpus.read(Path(), params)
    proposal = fit(corpus, params, seconds=60 * minutes, step_seconds=step_seconds)
    print(f"\n{text.name}, {minutes:g} minutes: {proposal.seconds:.0f} s promised", flush=True)
    # All of a text is one source of `data.mixture`
    raw = shutil.copytree(text, folder / "raw/text").parent if text.is_dir() else text
    best = None
    work, vocabulary = proposal.work, proposal.text.vocabulary
    proposed = Candidate("proposed", work, vocabulary, work.train.epochs)
    others = [] if alone else neighbours(proposal, params, step_seconds)
    for candidate in [proposed, *others]:
        row = train(candidate, raw, folder)
        if best is None:
            again = epoch_seconds(
                proposal.work, proposal.text, step_timer(params.runtime)(proposal.work)
            )
            print(f"{again * candidate.epochs:.0f} s promised after it", flush=True)
        best = best or row["bits_per_byte"]
        print(
            f"{candidate.name:18} {row['model']:>9} {candidate.vocabulary:>6,} x {row['batch']:<3} "
            f"{candidate.epochs:5.2f} epochs {row['seconds']:6.0f} s ({row['cpu_seconds']:.0f})  "
            f"{row['bits_per_byte']:.4f} {100 * (row['bits_per_byte'] / best - 1):+.1f}%",
            flush=True,
        )
        rows.add({"text": text.name, "minutes": minutes, "promised": proposal.seconds} | row)


def neighbours(proposal: Fit, params: AllParams, step_seconds: StepSeconds) -> list[Candidate]:
    """What lies around the proposal, with as many epochs as take the same time."""
    work = proposal.work
    corpus = proposal.text.corpus
    vocabulary = proposal.text.vocabulary
    batch = work.train.batch_size
    rung = LADDER.index((work.config.n_layer, work.config.n_embd))

    def neighbour(
        name: str, *, rung: int = rung, batch: int = batch, vocabulary: int = vocabulary
    ) -> Candidate:
        text = TokenizedText.of(corpus, vocabulary, val_fraction=params.tokenize.val_fraction)
        chosen = workload(params, text, *LADDER[rung])
        changes = {"batch_size": batch, "schedule": work.train.schedule}
        chosen = Workload(chosen.config, chosen.train.model_copy(update=changes), chosen.tokens)
        epochs = proposal.seconds / epoch_seconds(chosen, text, step_seconds(chosen))
        return Candidate(name, chosen, vocabulary, epochs)

    return [
        *([neighbour("smaller model", rung=rung - 1)] if rung else []),
        neighbour("larger model", rung=rung + 1),
        neighbour("half the batch", batch=max(1, batch // 2)),
        neighbour("twice the batch", batch=2 * batch),
        neighbour("half the vocabulary", vocabulary=vocabulary // 2),
        neighbour("twice the vocabulary", vocabulary=2 * vocabulary),
    ]


def tokenized(raw: Path, vocabulary: int, folder: Path) -> Path:
    """The data of a text, as the stages make it; made once for each vocabulary."""
    project = folder / f"vocabulary-{vocabulary}"
    if not project.exists():
        make_project(project, raw, {"tokenizer": {"type": "bpe", "vocab_size": vocabulary}})
        for stage in STAGES:
            measure.run(stage, project)
    return project / "data"


def train(candidate: Candidate, raw: Path, folder: Path) -> dict[str, Any]:
    """Train in a project of its own, by the stage; what came out."""
    data = tokenized(raw, candidate.vocabulary, folder)
    epochs = max(1, round(candidate.epochs))
    mixture = None
    if abs(candidate.epochs - round(candidate.epochs)) > 0.01:
        # One epoch, which sees the text so many times
        epochs = 1
        sources = read_metadata(data / "tokens").sources("train")
        mixture = {str(run.source): candidate.epochs for run in sources}
    config, params = candidate.work.config, candidate.work.train
    changes = {
        "data": {"raw": str(raw), "mixture": mixture},
        "model": config.model_dump(exclude={"vocab_size"}),
        "train": params.model_dump() | {"epochs": epochs, "learning_rate": params.peak},
    }
    project = Path(tempfile.mkdtemp(dir=folder)) / "project"
    make_project(project, raw, changes)
    (project / "data").symlink_to(data)
    run = measure.run("train", project)
    last = read_rows(project / HISTORY, EpochRow)[-1]
    return {
        "candidate": candidate.name,
        "model": f"{config.n_layer} x {config.n_embd}",
        "vocabulary": candidate.vocabulary,
        "batch": params.batch_size,
        "context": config.context_length,
        "epochs": candidate.epochs,
        "steps": last.step,
        "seconds": run.seconds,
        "cpu_seconds": run.work_cpu,
        "bits_per_byte": last.val_bits_per_byte,
    }


if __name__ == "__main__":
    main()
