"""The whole of params.yaml as one model, checked before any stage begins its work.

A stage reads only the sections that it names, but a mistake in any section should end the first
stage, not the last one, hours later. Each stage reads a part of `runtime` and ignores the rest, so
unknown keys of `runtime` are refused only here. This module can refuse a run but never change its
result, so DVC does not track it.
"""

from pathlib import Path

from tokenmill.core.errors import UserError
from tokenmill.core.params import PARAMS_FILE, RANDOM, ParamsError, Section, read_yaml, validate
from tokenmill.core.paths import SAMPLE
from tokenmill.data.params import CleanParams, DataParams
from tokenmill.evaluation.prompts import EvaluateParams
from tokenmill.executor import ExecutorParams
from tokenmill.finetuning.params import FinetuneSection
from tokenmill.formats.metrics import TokensMetrics, read_metrics
from tokenmill.formats.records import read_record
from tokenmill.formats.token_file import too_short
from tokenmill.model.config import ModelParams
from tokenmill.model.manifest import CONFIG, RESTORE, Saved
from tokenmill.sample.generator import SampleParams
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.training.params import ModelSection, RuntimeParams, TrainSection

BEFORE_TRAINING = {
    "sample": ["sample"],
    "clean": ["data", "clean"],
    "tokenizer": ["tokenizer"],
    "tokenize": ["tokenize"],
}
"""The stages that make tokens, each with its sections of params.yaml."""


class RuntimeSection(RuntimeParams, ExecutorParams, extra="forbid"):
    """The section `runtime`: how fast a stage runs, never what it writes. So no stage depends on
    it."""


class AllParams(Section):
    """Every section of params.yaml."""

    data: DataParams
    sample: SampleParams
    clean: CleanParams
    tokenizer: TokenizerParams
    tokenize: TokenizeParams
    model: ModelSection
    train: TrainSection
    evaluate: EvaluateParams
    finetune: FinetuneSection
    runtime: RuntimeSection


def check_all(path: Path = PARAMS_FILE) -> AllParams:
    """Read and check every section."""
    params = validate(AllParams, read_yaml(path), path)
    _check_start(params.model, path)
    _check_length(params.model, path)
    return params


def refuse_missing_text(raw: str) -> None:
    """Refuse a `data.raw` without readable text, unless DVC makes or fetches it."""
    # Only the stage `check` needs these libraries
    from tokenmill.data.readers import FORMATS  # noqa: PLC0415
    from tokenmill.data.sources import find_sources  # noqa: PLC0415

    path = Path(raw)
    is_tracked = any(
        folder.with_name(f"{folder.name}.dvc").exists()
        for folder in (path, *path.parents)
        if folder.name
    )
    if path != SAMPLE and not is_tracked:
        find_sources(path, FORMATS)


def _check_start(model: ModelSection, path: Path) -> None:
    if model.start is None:
        return
    folder = path.parent / model.start
    if not (folder / CONFIG).exists():
        problem = (
            f"model.start_from ({model.start_from}) holds no {CONFIG}; `tokenmill import` writes "
            f"such a folder, `dvc pull {model.start_from}` fetches one, and {RANDOM} stands for "
            "random weights."
        )
        raise ParamsError(path, [("model.start_from", problem)])
    found = read_record(folder / CONFIG, Saved, way_out=RESTORE).tokenmill
    names = [name for name in ModelParams.model_fields if name != "dropout"]
    start = f"{model.start_from}, where training starts"
    problems = [
        (f"model.{name}", f"model.{name} ({mine}) must be {there}, as in {start}.")
        for name in names
        if (mine := getattr(model, name)) != (there := getattr(found, name))
    ]
    if problems:
        raise ParamsError(path, problems)


def _check_length(model: ModelSection, path: Path) -> None:
    """Refuse a context longer than the text was in the last run, if the text is still the same."""
    try:
        counted = read_metrics(TokensMetrics, path.parent)
        problem = too_short(
            {"train": counted.train_tokens, "val": counted.val_tokens}, model.context_length
        )
        if problem is None or not _is_same_text(path):
            return
    # There was no run, or what it left is damaged
    except (UserError, LookupError, TypeError, StopIteration):
        return
    raise ParamsError(path, [("model.context_length", problem)])


def _is_same_text(path: Path) -> bool:
    """Whether dvc.lock has today's parameters for everything that makes tokens, and today's size of
    the raw text."""
    today = read_yaml(path)
    stages = read_yaml(path.with_name("dvc.lock"))["stages"]
    for stage, sections in BEFORE_TRAINING.items():
        then = stages[stage]["params"][PARAMS_FILE.name]
        if any(then[section] != today[section] for section in sections):
            return False
    if (
        stages["train"]["params"][PARAMS_FILE.name]["model"]["start_from"]
        != today["model"]["start_from"]
    ):
        return False  # the start model's tokenizer may be another one
    raw = path.parent / today["data"]["raw"]
    size = next(
        dep["size"] for dep in stages["clean"]["deps"] if dep["path"] == today["data"]["raw"]
    )
    return size == sum(file.stat().st_size for file in [raw, *raw.rglob("*")] if file.is_file())
