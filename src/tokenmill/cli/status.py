"""`tokenmill` without a command: where this project stands, and what to type next."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenmill.display.terminal import console, print_columns

Commands = list[tuple[str, str]]
"""What to type, and what it does."""

COMMIT = ("git add -A && git commit", "keep dvc.lock with its metrics: a clone then reruns nothing")


@dataclass(frozen=True)
class Status:
    """Where a project stands, in a sentence, and the commands that may be typed now, the likeliest first."""

    sentence: str
    commands: Commands


def run(_: argparse.Namespace) -> None:
    """Print the status of the project in the current folder."""
    found = status(Path())
    console().print(found.sentence)
    print()
    print_columns([(f"  {command}", meaning) for command, meaning in found.commands])
    print()
    console().print("`tokenmill --help` lists the commands, `tokenmill doctor` says what is wrong")


def status(root: Path) -> Status:
    """Where the folder `root` stands."""
    return _outside(root) or _inside(root)


def _outside(root: Path) -> Status | None:
    """The folder is no project's root."""
    project = next((path for path in (root.resolve(), *root.resolve().parents) if _is_project(path)), None)
    if project == root.resolve():
        return None
    if project:
        return Status(f"{root.resolve()} is inside the project {project}.", [(f"cd {project}", "the project's root")])
    get = [
        ("git clone URL tokenmill && cd tokenmill", "the repository of TokenMill, or your fork"),
        ("make repro", "set up the environment, then run the pipeline on the built-in sample"),
    ]
    return Status(f"{root.resolve()} is no TokenMill project: there is no dvc.yaml beside a params.yaml.", get)


def _is_project(path: Path) -> bool:
    return (path / "dvc.yaml").exists() and (path / "params.yaml").exists()


def _inside(root: Path) -> Status:
    """In a project: what must be put right or waited for, else what `dvc status` says."""
    from tokenmill.core.errors import UserError  # noqa: PLC0415
    from tokenmill.doctor import dvc  # noqa: PLC0415 (DVC)
    from tokenmill.models.find import is_finished  # noqa: PLC0415 (pydantic)
    from tokenmill.models.under_way import under_way  # noqa: PLC0415 (pydantic)
    from tokenmill.schema import check_all  # noqa: PLC0415 (pydantic)

    try:
        check_all(root / "params.yaml")
    except UserError as error:
        return Status(str(error), [("tokenmill params", "every parameter with its values and its meaning")])
    found, repo = dvc.open_repository(root)
    if repo is None:
        return Status(found.text, [("tokenmill doctor", "what else is wrong, and how to fix it")])
    run = None if is_finished(root) else under_way(root)
    if run:
        next_ = (
            [] if run.run.is_on else [("dvc repro", "or the same `dvc exp run`: training continues where it stopped")]
        )
        generate = [("tokenmill generate", "ask its newest epoch")] if run.epoch_ends else []
        return Status(run.sentence, [*next_, ("tokenmill watch", "losses, time left, cost, answers now"), *generate])
    running = dvc.check_running(root)
    if running.fix:
        return Status(f"{running.text}: {running.fix}", [("tokenmill doctor", "whether anything else is in the way")])
    found, stages = dvc.check_status(repo)
    if stages is None:
        return Status(found.text, [("dvc status", "what is outdated"), ("dvc repro", "run just that")])
    return _outdated(root, stages) if stages else _trained(root)


def _outdated(root: Path, stages: Sequence[str]) -> Status:
    """Some stages are to run."""
    named = ", ".join(stages)
    if not any((root / folder).exists() for folder in ("data/clean", "data/tokens", "models/gpt")):
        pull = [("dvc pull && dvc repro", "fetch what the remote has, run the rest")]
        return Status(
            "nothing has run here yet.", [("dvc repro", f"run {named}"), *pull * (root / "dvc.lock").exists()]
        )
    return Status(
        f"to run: {named}.",
        [
            ("dvc repro", "run these, except where inputs turn out the same; training continues where it stopped"),
            ("dvc status", "what changed; `dvc params diff` compares with the last commit"),
        ],
    )


def _trained(root: Path) -> Status:
    """Everything is up to date: how good the model is."""
    from tokenmill.core import git, paths  # noqa: PLC0415
    from tokenmill.doctor.finding import ONE_COMMIT  # noqa: PLC0415
    from tokenmill.evaluation.results import read_evaluation  # noqa: PLC0415 (pydantic)

    last = read_evaluation(root / paths.EVALUATION).epochs[-1]
    right = f", {sum(last.expected)} of {len(last.expected)} answers right" if last.expected else ""
    sentence = f"trained: {last.epoch} epochs, validation loss {last.val_loss:.3f}{right} (`tokenmill summary`)"
    if git.ask(root, "status", "--porcelain", "--", *ONE_COMMIT):
        return Status(f"{sentence}; not committed yet", [COMMIT, *after_training(last.epoch, root=root)])
    return Status(sentence, after_training(last.epoch, root=root))


def after_training(epochs: int, *, root: Path) -> Commands:
    """What to do with a model of the project at `root`, trained for so many epochs."""
    from tokenmill.core.params import PARAMS_FILE, read_yaml  # noqa: PLC0415 (pydantic)
    from tokenmill.planning.presets import is_own_text_at_defaults  # noqa: PLC0415

    commands: Commands = [
        ("tokenmill generate", "chat with the model in the terminal"),
        ("tokenmill demo", "the same in the browser"),
        ("dvc exp run -S model.n_layer=6", "an experiment; `tokenmill runs` lists them all"),
        (f"dvc exp run -S train.epochs={epochs + 2}", "continue training from here, not from scratch"),
        (f"dvc metrics diff epoch-1 epoch-{epochs}", "what the epochs in between gained"),
        ("tokenmill compare", "experiments and epochs side by side"),
        ("dvc exp run -S data.raw=/path/to/texts", "train on your own text"),
    ]
    if is_own_text_at_defaults(read_yaml(root / PARAMS_FILE)):
        commands.insert(
            0, ("tokenmill fit --minutes 10", "a model for your text; this one is made for the built-in text")
        )
    return commands
