"""`tokenmill` alone: where the project stands and what to type next. Loads no PyTorch, and DVC in a project only."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_json
from tokenmill.core.params import PARAMS_FILE
from tokenmill.core.token_file import read_metadata
from tokenmill.doctor.checks import few, uncommitted
from tokenmill.evaluation.results import Evaluation, read_evaluation
from tokenmill.model.config import ModelConfig
from tokenmill.schema import AllParams, check_all
from tokenmill.training.checkpoint import checkpoint_steps, fingerprint, resume_root
from tokenmill.training.schedule import Workload

Commands = list[tuple[str, str]]
"""What to type, and what it does."""


PIPELINE = Path("dvc.yaml")


COMMIT = ("git add -A && git commit", "keep dvc.lock with its metrics: a clone then reruns nothing")


TOKEN_STAGES = ("clean", "tokenizer", "tokenize", "unpack")
"""Where one of these is to run, training will see other tokens than there are."""


ALWAYS = "`tokenmill --help` lists the commands, `tokenmill doctor` says what is wrong"


@dataclass(frozen=True)
class Step:
    """Where the project stands, in sentences, and what may be typed now, the likeliest first."""

    where: list[str]
    commands: Commands


def render(root: Path) -> str:
    """What to do next in the folder `root`."""
    step = _outside(root) or _inside(root)
    return "\n".join([*step.where, "", *listed(step.commands), "", ALWAYS])


def listed(commands: Commands) -> list[str]:
    """Commands with their meaning, in columns."""
    return [f"  {command:<39}  {meaning}" for command, meaning in commands]


def after_training(epochs: int) -> Commands:
    """What a trained model is good for."""
    return [
        ("tokenmill generate", "a chat with the model, here in the terminal"),
        ("tokenmill demo", "the same in the browser"),
        ("dvc exp run -S model.n_layer=6", "an experiment; `dvc exp show --only-changed` compares"),
        (f"dvc exp run -S train.epochs={epochs + 2}", "goes on from here, not from scratch"),
        (f"dvc metrics diff epoch-1 epoch-{epochs}", "what did the epochs in between buy?"),
        ("tokenmill compare", "experiments and epochs side by side"),
        ("dvc exp run -S data.raw=/path/to/texts", "train on your own text"),
    ]


def _outside(root: Path) -> Step | None:
    """No project here: one above, or none at all."""
    if (root / PIPELINE).exists() and (root / PARAMS_FILE).exists():
        return None
    here = root.resolve()
    above = next((path for path in here.parents if (path / PIPELINE).exists() and (path / PARAMS_FILE).exists()), None)
    if above:
        return Step([f"{here} is inside the project {above}."], [(f"cd {above}", "commands are typed in its root")])
    get = [
        ("git clone URL tokenmill && cd tokenmill", "a project of its own: the repository of TokenMill, or your fork"),
        ("make repro", "the environment, then the whole pipeline on the built-in sample"),
    ]
    return Step([f"{here} is no TokenMill project: there is no {PIPELINE} beside a {PARAMS_FILE}."], get)


def _inside(root: Path) -> Step:
    """In a project's root."""
    try:
        params = check_all(root / PARAMS_FILE)
    except UserError as error:
        return Step([str(error)], [("tokenmill params", "every parameter with its values and its meaning")])
    from tokenmill.doctor import dvc  # noqa: PLC0415 (DVC takes a moment to load)  # noqa: PLC0415 (DVC takes a moment to load)

    finding, repo = dvc.open_repository(root)
    if repo is None:
        return Step([finding.text], [("tokenmill doctor", "what else is wrong, and how to fix it")])
    runs = dvc.check_running(root)
    if runs.fix:
        return Step([f"{runs.text}: {runs.fix}"], [("tokenmill doctor", "whether anything else is in the way")])
    status, stages = dvc.check_status(repo)
    if stages is None:
        return Step([status.text], [("dvc status", "what is outdated"), ("dvc repro", "runs just that")])
    return _outdated(root, params, stages) if stages else _trained(root)


def _outdated(root: Path, params: AllParams, stages: Sequence[str]) -> Step:
    """Some stages are to run."""
    named = ", ".join(stages)
    why = ("dvc status", "what changed; `dvc params diff` compares with the last commit")
    if stopped := _stopped_training(root, params, stages):
        return Step([stopped], [("dvc repro", "goes on from there"), why])
    if not any((root / folder).exists() for folder in (paths.CLEAN, paths.TOKENS, paths.MODEL)):
        known = (root / "dvc.lock").exists()
        pull = [("dvc pull && dvc repro", "what the remote has of it, and the rest")] if known else []
        return Step(["nothing has run here yet."], [("dvc repro", f"all of it: {named}"), *pull])
    return Step([f"to run: {named}."], [("dvc repro", "runs these, but those whose inputs come out the same"), why])


def _stopped_training(root: Path, params: AllParams, stages: Sequence[str]) -> str | None:
    """Where the training stands that `dvc repro` would go on with, if it had begun."""
    if "train" not in stages or set(TOKEN_STAGES) & set(stages):
        return None
    try:
        tokens = read_metadata(root / paths.TOKENS)
    except UserError:
        return None
    work = Workload(ModelConfig.of(params.model, tokens.vocab_size), params.train, tokens.train.tokens)
    steps = checkpoint_steps(root / resume_root() / fingerprint(work.config, work.train, tokens))
    if not steps or steps[-1] >= work.steps:
        return None
    return f"training stopped: its last checkpoint is of step {steps[-1]:,} of {work.steps:,}."


def _trained(root: Path) -> Step:
    """All is up to date."""
    evaluation, train = read_evaluation(root / paths.EVALUATION), read_json(root / paths.TRAIN_METRICS)
    files = uncommitted(root)
    where = [_result(evaluation, train["parameters"])]
    if files:
        where.append(f"not committed: {few(files)}")
    return Step(where, [*([COMMIT] if files else []), *after_training(evaluation.epochs[-1].epoch)])


def _result(evaluation: Evaluation, parameters: int) -> str:
    last = evaluation.epochs[-1]
    right = f", {sum(last.expected)} of {len(last.expected)} answers right" if last.expected else ""
    return (
        f"trained: {parameters:,} parameters, {last.epoch} epochs, validation loss {last.val_loss:.3f}{right} "
        "(`tokenmill summary`)"
    )
