"""What to type next in a project: while it trains, and after training."""

from pathlib import Path
from shlex import quote

from tokenmill import git
from tokenmill.core import paths
from tokenmill.core.params import PARAMS_FILE, load, read_yaml
from tokenmill.dvc_lock import Lock
from tokenmill.evaluation.results import Evaluation
from tokenmill.formats import metrics
from tokenmill.planning.presets import is_own_text_at_defaults
from tokenmill.runs.find import is_of_workspace
from tokenmill.runs.under_way import UnderWay
from tokenmill.schema import AllParams

Commands = list[tuple[str, str]]
"""Commands to type, each with what it does."""

COMMIT = ("git add -A && git commit", "keep dvc.lock with its metrics: a clone then reruns nothing")


def while_training(run: UnderWay) -> Commands:
    """The commands for a training that is under way, or that stopped or diverged."""
    commands = [("tokenmill watch", "losses, time left, cost, answers now")]
    commands += [("tokenmill generate", "ask its newest epoch")] if run.epochs else []
    if run.is_on:
        return commands
    meaning = "or the same `dvc exp run`: training continues where it stopped"
    if run.run.diverged:
        meaning = "a new training; the same one would diverge again"
    return [(run.way_on, meaning), *commands]


def after_training(evaluation: Evaluation, *, root: Path) -> Commands:
    """The commands for the evaluated model of the project at `root`."""
    params = load(AllParams, root / PARAMS_FILE)
    commands: Commands = []
    if is_own_text_at_defaults(read_yaml(root / PARAMS_FILE)):
        meaning = "a model for your text; this one is made for the built-in text"
        commands.append(("tokenmill fit --minutes 10", meaning))
    commands += [
        *_asking_finetuned(root),
        _asking(evaluation),
        ("tokenmill demo", "the same in the browser"),
        *_training_on(root, params, epochs=evaluation.epochs[-1].epoch),
        ("tokenmill compare", "experiments and epochs side by side"),
    ]
    if Path(params.data.raw) == paths.SAMPLE:
        commands.append(("tokenmill try /path/to/texts", "a model of your own text"))
    return commands


def _training_on(root: Path, params: AllParams, *, epochs: int) -> Commands:
    """How to train another model and to train this one further, and how its epochs compare."""
    onwards = "continue training from here, not from scratch"
    if not _has_git(root):
        return [("dvc repro", f"{onwards}: first set train.epochs to {epochs + 2} in params.yaml")]
    other = f"model.n_layer={params.model.n_layer + 2}"
    if params.model.start:  # it has the layers of the model from which training starts
        other = f"train.batch_size={2 * params.train.batch_size}"
    commands = [
        (f"dvc exp run -S {other}", "an experiment; `tokenmill runs` lists them all"),
        (f"dvc exp run -S train.epochs={epochs + 2}", onwards),
    ]
    if epochs > 1 and is_of_workspace(root, 1) and is_of_workspace(root, epochs):
        gained = "what the epochs in between gained"
        commands.append((f"dvc metrics diff epoch-1 epoch-{epochs}", gained))
    elif epochs > 1:
        compared = "write the refs epoch-1 to epoch-N of this run, to compare its epochs"
        commands.append(("dvc repro -sf report", compared))
    return commands


def _asking(evaluation: Evaluation) -> tuple[str, str]:
    """How to let the model write: it chats if it is asked questions, else it continues texts."""
    if evaluation.asks or not evaluation.questions:
        return "tokenmill generate", "chat with the model in the terminal"
    beginning = " ".join(evaluation.questions[0].prompt.split()[:3])
    return f"tokenmill generate --text {quote(beginning)}", "let the model continue a text"


def _asking_finetuned(root: Path) -> Commands:
    if finetuned_by(root) is None:
        return []
    epoch = metrics.read_metrics(metrics.FinetunedTrainMetrics, root).epoch
    folder = (paths.FINETUNED / f"epoch-{epoch}").as_posix()
    return [(f"tokenmill generate --model {folder}", "chat with the fine-tuned model")]


def _has_git(root: Path) -> bool:
    """Whether the project is in a repository of git. Where DVC does without (`core.no_scm`), there
    are neither experiments nor refs."""
    return git.ask(root, "rev-parse", "--git-dir") is not None


def finetuned_by(root: Path) -> str | None:
    """The method of the finished fine-tuning of the model that params.yaml asks for, if there is
    one."""
    methods = load(AllParams, root / PARAMS_FILE).finetune.methods
    return methods[0] if methods and Lock.read(root).is_finetuned(methods[0], root) else None
