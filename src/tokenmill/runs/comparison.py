"""Compare epochs of finished runs: from the names that a user types to tables, a caution and all
answers.

Examples of names are `workspace`, `epoch-2`, `HEAD` and `blest-jube:2`.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.params import PARAMS_FILE, read_yaml
from tokenmill.display import note
from tokenmill.dvc_lock import LOCK, Lock
from tokenmill.evaluation.results import Answer, EpochResult, Evaluation, Question
from tokenmill.formats.metrics import TrainMetrics, read_metrics
from tokenmill.formats.records import read_rows
from tokenmill.reports.answers import PromptAnswers, compare_answers
from tokenmill.reports.page import settings
from tokenmill.runs.consistency import TRAIN_AGAIN, falsely_recorded, read_own_evaluation
from tokenmill.runs.epoch_refs import EPOCH
from tokenmill.runs.find import Revision, chosen_epoch
from tokenmill.runs.under_way import unfinished
from tokenmill.temporary import temporary_folder
from tokenmill.training.history import EpochRow, StepRow
from tokenmill.words.units import fixed, perplexity

FILES = (paths.EVALUATION, paths.TRAIN_METRICS, paths.HISTORY, paths.STEPS, PARAMS_FILE, LOCK)
"""The files of a run that a comparison reads."""

WORKSPACE = "workspace"

RIGHT = "right answers"
"""The measure that only runs with an expected answer have."""

REV_AND_EPOCH = re.compile(r"(?P<rev>.+):(?P<epoch>\d+)")


@dataclass(frozen=True)
class ComparedRun:
    """A finished run, read from FILES."""

    name: str
    """The run's revision, as the user typed it."""
    evaluation: Evaluation
    history: list[EpochRow]
    steps: list[StepRow]
    parameters: int
    """The number of the model's parameters."""
    settings: Mapping[str, str]
    """The values of params.yaml by their dotted names, without `runtime` and without the
    prompts."""
    hashes: Mapping[str, str | None]
    """The hash of every output in dvc.lock, by its path."""

    @classmethod
    def read(cls, name: str, root: Path) -> "ComparedRun":
        """Read the FILES below `root`."""
        evaluation = read_own_evaluation(root)
        history = read_rows(root / paths.HISTORY, EpochRow)
        if len(evaluation.epochs) != len(history):
            raise UserError(
                f"{name}: {paths.EVALUATION} has {len(evaluation.epochs)} epochs and "
                f"{paths.HISTORY} {len(history)}; {paths.way_out(root / paths.HISTORY)}."
            )
        params = settings(read_yaml(root / PARAMS_FILE))
        shown = {key: params[key] for key in params if not key.startswith("evaluate.prompts")}
        steps = read_rows(root / paths.STEPS, StepRow)
        if not steps:
            way_out = paths.way_out(root / paths.STEPS)
            raise UserError(f"{name}: {paths.STEPS} has no rows; {way_out}.")
        parameters = read_metrics(TrainMetrics, root).parameters
        hashes = Lock.read(root).outputs
        return cls(name, evaluation, history, steps, parameters, shown, hashes)


@dataclass(frozen=True)
class ComparedEpoch:
    """One epoch of a run: a column of the comparison."""

    name: str
    """The epoch's name as the user typed it."""
    run: ComparedRun
    result: EpochResult
    row: EpochRow
    same: Sequence[str] = ()
    """The names of further runs with the same results and parameters, which are not compared."""

    @classmethod
    def of(cls, name: str, run: ComparedRun, epoch: int | None) -> "ComparedEpoch":
        """Make the column of epoch `epoch`; None means the last one."""
        number = chosen_epoch(epoch, len(run.evaluation.epochs), run.name)
        return cls(name, run, run.evaluation.epochs[number - 1], run.history[number - 1])

    def answer(self, asked: Question) -> Answer | None:
        """The answer to a prompt, right or wrong by what is expected of it here, which the run may
        not have expected; None if the run did not have this prompt."""
        answers = zip(self.run.evaluation.questions, self.result.answers, strict=True)
        for question, answer in answers:
            if _identity(question) == _identity(asked):
                is_same = question.expect == asked.expect
                found = answer.found if is_same else asked.is_right(answer.greedy)
                return answer.model_copy(update={"found": found})
        return None


def _identity(question: Question) -> tuple[str, str]:
    """What makes two prompts the same one: the same words as a question, or to be continued."""
    return question.kind, question.prompt


def _expecting(run: ComparedRun) -> tuple[tuple[str, str, str], ...]:
    """The prompts with an expected text, and these texts."""
    return tuple(
        (*_identity(one), one.expect) for one in run.evaluation.questions if one.expect is not None
    )


def _right(found: Sequence[bool]) -> str:
    """The number of right answers, or that no prompt has an expected text."""
    return f"{sum(found)} of {len(found)}" if found else "none expected"


def _repeated(repetition: float | None) -> str:
    return "nothing asked" if repetition is None else f"{repetition:.2f}"


MEASURES: dict[str, Callable[[ComparedEpoch], str]] = {
    "training loss at end": lambda epoch: fixed(epoch.result.train_loss),
    "validation loss": lambda epoch: fixed(epoch.result.val_loss),
    "perplexity": lambda epoch: perplexity(epoch.result.perplexity),
    "bits per byte": lambda epoch: fixed(epoch.result.bits_per_byte),
    RIGHT: lambda epoch: _right(epoch.result.expected),
    "repetition": lambda epoch: _repeated(epoch.result.repetition),
    "epoch": lambda epoch: f"{epoch.result.epoch} of {len(epoch.run.evaluation.epochs)}",
    "steps": lambda epoch: f"{epoch.row.step:,}",
    "tokens seen": lambda epoch: f"{epoch.row.tokens:,}",
    "parameters": lambda epoch: f"{epoch.run.parameters:,}",
}
"""The rows of the table of measures, each with how it writes its cells."""


@dataclass(frozen=True)
class Comparison:
    """The tables, the caution and the prompts for these epochs, in their order."""

    epochs: Sequence[ComparedEpoch]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [epoch.name for epoch in self.epochs]

    @property
    def equal(self) -> list[list[str]]:
        """The names of runs with the same results and parameters, which are one column."""
        return [[epoch.name, *epoch.same] for epoch in self.epochs if epoch.same]

    @property
    def runs(self) -> list[ComparedRun]:
        """The runs of the epochs, each once."""
        return list({id(epoch.run): epoch.run for epoch in self.epochs}.values())

    @property
    def measures(self) -> dict[str, list[str]]:
        """Losses and sizes as text, with a row for each of MEASURES and a cell for each epoch.
        Right answers have no row where none are expected."""
        expects = any(epoch.result.expected for epoch in self.epochs)
        return {
            name: [write(epoch) for epoch in self.epochs]
            for name, write in MEASURES.items()
            if expects or name != RIGHT
        }

    @property
    def best(self) -> dict[str, list[bool]]:
        """For each measure that can be compared here and differs, which columns have the best
        value."""
        cells = self.measures
        found = {}
        for name, value_of in self._comparable.items():
            values = [value_of(epoch.result) for epoch in self.epochs]
            known = [value for value in values if value is not None]
            if len(set(known)) > 1:
                top = cells[name][values.index(min(known))]
                found[name] = [cell == top for cell in cells[name]]
        return found

    @property
    def _comparable(self) -> dict[str, Callable[[EpochResult], float | None]]:
        """The measures that can be compared here, each with its value, of which the lowest is best,
        or None."""
        found: dict[str, Callable[[EpochResult], float | None]] = {}
        if len(set(filter(None, map(_expecting, self.runs)))) == 1:
            found[RIGHT] = lambda result: -sum(result.expected) if result.expected else None
        if not self._has_other_texts:
            found["bits per byte"] = lambda result: result.bits_per_byte
            if not self._has_other_tokens:
                found["validation loss"] = lambda result: result.val_loss
                found["perplexity"] = lambda result: result.perplexity
        return found

    @functools.cached_property
    def settings(self) -> dict[str, list[str]]:
        """The parameters that differ, as text, with a row for each and a cell for each epoch."""
        settings = [epoch.run.settings for epoch in self.epochs]
        names = dict.fromkeys(name for one in settings for name in one)
        rows = {name: [one.get(name, "–") for one in settings] for name in names}
        return {name: cells for name, cells in rows.items() if len(set(cells)) > 1}

    @property
    def caution(self) -> str:
        """A sentence about what must not be compared; empty if everything may be."""
        if self._has_other_texts:
            return (
                "The texts for validation differ: no measure here is strictly comparable, "
                "bits per byte come nearest."
            )
        if self._has_other_tokens:
            return (
                "The tokenizers differ: compare bits per byte, measured on the same bytes, not "
                "losses or perplexities, which are per token."
            )
        return ""

    @property
    def _has_other_texts(self) -> bool:
        if any(name.startswith(("tokenize.", "train.validation_bytes")) for name in self.settings):
            return True
        # The same text has another hash where it lies in a store, but the same tokens
        tokens = self._hashes(paths.TOKENS)
        has_same_tokens = len(tokens) == 1 and None not in tokens
        return len(self._hashes(paths.CLEAN)) > 1 and not has_same_tokens

    @property
    def _has_other_tokens(self) -> bool:
        return len(self._hashes(paths.TOKENIZER.parent)) > 1

    def _hashes(self, output: Path) -> set[str | None]:
        """The hashes that the runs have for an output; None where a run has no such output."""
        return {run.hashes.get(output.as_posix()) for run in self.runs}

    @functools.cached_property
    def prompts(self) -> list[PromptAnswers]:
        """Every prompt of any of the runs, with all answers."""
        questions: dict[tuple[str, str], Question] = {}
        for run in self.runs:
            questions |= {_identity(question): question for question in run.evaluation.questions}
        return [
            compare_answers(one, [(epoch.name, epoch.answer(one)) for epoch in self.epochs])
            for one in questions.values()
        ]


def find_epochs(root: Path, names: Sequence[str]) -> list[ComparedEpoch]:
    """The epochs with these names. A single name is compared with the workspace. Without names, the
    first and last epoch of the workspace are compared.

    Args:
        root: the folder of the project.
        names: `workspace`, git revisions or DVC experiments, each optionally with `:N` for its
            epoch N; or `epoch-N`.

    Raises:
        UserError: there is no such revision or epoch, or its evaluation cannot be fetched.
    """
    run_of = functools.cache(functools.partial(_read_run, root))
    if not names or list(names) == [WORKSPACE]:
        names = _first_and_last(root, run_of)
    elif len(names) == 1:
        names = [*names, WORKSPACE]
    places = [(name, *_parse(name)) for name in names]
    return [ComparedEpoch.of(name, run_of(rev), epoch) for name, rev, epoch in places]


def find_all(root: Path, names: Sequence[str]) -> list[ComparedEpoch]:
    """The last epoch of each of these runs. Runs with the same results and parameters are one, and
    a sentence names those whose results are not here.

    Args:
        root: the folder of the project.
        names: as for `find_epochs`. Of equal runs the first is compared.

    Raises:
        UserError: fewer than two runs can be read.
    """
    found: dict[tuple[object, ...], list[ComparedEpoch]] = {}
    for name in names:
        try:
            run = _read_run(root, name)
        except UserError as error:
            note(f"left out: {error}")
            continue
        results = [run.hashes.get(path.as_posix()) for path in (paths.MODEL, paths.EVALUATION)]
        equal = found.setdefault((*results, *sorted(run.settings.items())), [])
        equal.append(ComparedEpoch.of(name, run, None))
    if len(found) < 2:
        raise UserError(
            "there are no two runs to compare; `dvc exp run -S model.n_layer=…` makes another."
        )
    return [replace(first, same=[one.name for one in others]) for first, *others in found.values()]


def _first_and_last(root: Path, run_of: Callable[[str], ComparedRun]) -> list[str]:
    if run := unfinished(root):
        note(f"{run.sentence}; until it ends, these are the first and the last epoch of HEAD")
        return ["HEAD:1", "HEAD"]
    last = len(run_of(WORKSPACE).evaluation.epochs)
    return ["epoch-1", f"epoch-{last}"] if last > 1 else ["epoch-1"]


def _parse(name: str) -> tuple[str, int | None]:
    if match := EPOCH.fullmatch(name):
        return WORKSPACE, int(match[1])
    if match := REV_AND_EPOCH.fullmatch(name):
        if EPOCH.fullmatch(match["rev"]):
            raise UserError(f"{name} names two epochs; leave out :{match['epoch']}.")
        return match["rev"], int(match["epoch"])
    return name, None


def _read_run(root: Path, rev: str) -> ComparedRun:
    """The run in the workspace, or the run that a revision holds or records."""
    if rev == WORKSPACE:
        if run := unfinished(root):
            raise UserError(
                f"{run.sentence}; answers are compared when it is finished, name other revisions."
            )
        if not (root / paths.EVALUATION).exists():
            raise UserError(
                f"{root / paths.EVALUATION} is missing; `dvc repro` makes it, "
                "`dvc pull evaluate` fetches it where it was pushed."
            )
        return ComparedRun.read(rev, root)
    with contextlib.closing(Revision(root, rev)) as revision, temporary_folder() as folder:
        lacks = [file for file in FILES if not revision.has(file)]
        lock = revision.lock
        if lacks or not (lock.is_evaluated and lock.is_of_text):
            what = lacks[0] if lacks else f"{paths.EVALUATION} of its text and model"
            raise UserError(
                f"{revision.label} has no {what}: the pipeline had not run to its "
                f"end there; {revision.again} would."
            )
        if phrase := falsely_recorded(revision.manifest, lock):
            raise UserError(
                f"{revision.label}: {phrase}; `{revision.take} && {TRAIN_AGAIN}` trains it."
            )
        for file in FILES:
            revision.copy(file, folder / file)
        return ComparedRun.read(rev, folder)
