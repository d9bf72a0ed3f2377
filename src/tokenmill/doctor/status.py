"""The state that a project is in, in a sentence, with the commands to type next."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.params import PARAMS_FILE
from tokenmill.doctor import dvc, environment
from tokenmill.doctor.finding import Finding, Project
from tokenmill.doctor.next_steps import (
    COMMIT,
    Commands,
    after_training,
    finetuned_by,
    while_training,
)
from tokenmill.evaluation.results import Evaluation
from tokenmill.formats.records import read_record
from tokenmill.runs.under_way import unfinished
from tokenmill.schema import check_all, with_way_back
from tokenmill.words.units import counted

DOCTOR = ("tokenmill doctor", "what else is wrong, and how to fix it")


@dataclass(frozen=True)
class Status:
    """The state of a project in a sentence, and the next commands, the likeliest first."""

    sentence: str
    commands: Commands


def status(root: Path) -> Status:
    """The state of the folder `root`."""
    here = root.resolve()
    project = paths.enclosing_project(here)
    if project == here:
        return _inside(root)
    if project:
        return Status(
            f"{here} is inside the project {project}.",
            [(f"cd {quote(str(project))}", "the project's root")],
        )
    get = [
        ("git clone URL tokenmill && cd tokenmill", "the repository of TokenMill, or your fork"),
        ("make repro", "set up the environment, then run the pipeline on the built-in sample"),
    ]
    return Status(
        f"{here} is no TokenMill project: there is no dvc.yaml beside a params.yaml.", get
    )


def _inside(root: Path) -> Status:
    """The state of a project: a problem to fix, a run to wait for, or else what `dvc status`
    says."""
    file = root / PARAMS_FILE
    try:
        with with_way_back(file):
            project = Project(root, params=check_all(file))
    except UserError as error:
        return Status(
            str(error), [("tokenmill params", "every parameter with its values and its meaning")]
        )
    (found,) = dvc.check_repository(project)
    if project.repo is None:
        return _in_the_way(found)
    if run := unfinished(root):
        return Status(run.sentence, while_training(run))
    if not environment.is_writable(root):
        return Status(
            f"{root.resolve()} cannot be written: what is here can be read, but nothing can run.",
            [
                ("tokenmill summary", "losses and answers"),
                ("tokenmill generate", "ask the model"),
                DOCTOR,
            ],
        )
    running = environment.check_running(root)
    if running.fix:
        return _in_the_way(running)
    (found,) = dvc.check_pipeline(project)
    return _as_compared(project, found)


def _in_the_way(found: Finding) -> Status:
    return Status(f"{found.text}: {found.fix}", [DOCTOR])


def _as_compared(project: Project, found: Finding) -> Status:
    """The state that `dvc status` says, as the finding about the pipeline tells it."""
    root, pipeline = project.root, project.pipeline
    if pipeline is None:
        return _in_the_way(found)
    if false := next(iter(dvc.check_model(project)), None):
        status = Status(f"{false.text}.", [(str(false.fix), "train what params.yaml asks for")])
    elif pipeline.outdated:
        status = _outdated(root, pipeline.outdated, repro=dvc.way_on(pipeline, "dvc repro"))
    elif pipeline.uncached:
        status = Status(f"{found.text}.", [(str(found.fix), "put into the cache what is here")])
    else:
        status = _trained(root)
    for frozen in dvc.check_frozen(project):
        status = replace(status, sentence=f"{status.sentence}\n{frozen.text}: {frozen.fix}")
    return status


def _outdated(root: Path, stages: Sequence[str], *, repro: str) -> Status:
    """The state with stages to run, which the command `repro` does."""
    named = ", ".join(stages)
    if dvc.nothing_ran(root):
        fetch = [(dvc.FETCH, "fetch what the remote has, run the rest")]
        return Status(
            "nothing has run here yet.",
            [(repro, f"run {named}"), *fetch * dvc.may_be_fetched(root)],
        )
    run = "run these, except where inputs turn out the same; training continues where it stopped"
    look = "what changed; `dvc params diff` compares with the last commit"
    return Status(f"to run: {named}.", [(repro, run), ("dvc status", look)])


def _trained(root: Path) -> Status:
    evaluation = read_record(root / paths.EVALUATION, Evaluation)
    last = evaluation.epochs[-1]
    right = f", {sum(last.expected)} of {len(last.expected)} answers right" if last.expected else ""
    losses = f"{counted(last.epoch, 'epoch')}, validation loss {last.val_loss:.3f}"
    method = finetuned_by(root)
    tuned = f"; fine-tuned by {method}" if method else ""
    sentence = f"trained: {losses}{right}{tuned} (`tokenmill summary`)"
    commands = after_training(evaluation, root=root)
    if environment.uncommitted(root):
        return Status(f"{sentence}; not committed yet", [COMMIT, *commands])
    return Status(sentence, commands)
