"""The whole of params.yaml as one model, checked before any stage begins its work.

A stage reads only the sections that it names, but a mistake in any section should end the first stage, not the last
one, hours later. Each stage reads a part of `runtime` and ignores the rest, so unknown keys of `runtime` are refused
only here. This module can refuse but never change a result, so DVC does not track it.
"""

from pathlib import Path

from tokenmill.core.executor import ExecutorParams
from tokenmill.core.params import PARAMS_FILE, RANDOM, ParamsError, Section, read_yaml, validate
from tokenmill.core.records import read_record
from tokenmill.data.params import CleanParams, DataParams
from tokenmill.evaluation.params import EvaluateParams
from tokenmill.finetuning.params import FinetuneSection
from tokenmill.model.config import ModelParams
from tokenmill.model.manifest import CONFIG, RESTORE, Saved
from tokenmill.sample.generator import SampleParams
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.training.params import ModelSection, RuntimeParams, TrainSection


class RuntimeSection(RuntimeParams, ExecutorParams, extra="forbid"):
    """How fast a stage runs, never what comes out; so no stage depends on it."""


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
    """Read and check every section.

    Raises:
        UserError: the file cannot be read.
        ParamsError: lists every problem.
    """
    params = validate(AllParams, read_yaml(path), path)
    _check_start(params.model, path)
    return params


def _check_start(model: ModelSection, path: Path) -> None:
    if model.start is None:
        return
    folder = path.parent / model.start
    if not (folder / CONFIG).exists():
        problem = (
            f"model.start_from ({model.start_from}) holds no {CONFIG}; `tokenmill import` writes such a folder, "
            f"`dvc pull {model.start_from}` fetches one, and {RANDOM} stands for random weights."
        )
        raise ParamsError(path, [("model.start_from", problem)])
    found = read_record(folder / CONFIG, Saved, way_out=RESTORE).tokenmill
    names = [name for name in ModelParams.model_fields if name != "dropout"]
    problems = [
        (f"model.{name}", f"model.{name} ({mine}) must be {there}, as in {model.start_from}, where training starts.")
        for name in names
        if (mine := getattr(model, name)) != (there := getattr(found, name))
    ]
    if problems:
        raise ParamsError(path, problems)
