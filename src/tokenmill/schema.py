"""The whole of params.yaml as one model, checked before any stage begins its work.

A stage reads only the sections that it names, but a mistake in any section should end the first stage, not the last
one, hours later. Each stage reads a part of `runtime` and ignores the rest, so unknown keys of `runtime` are refused
only here. This module can refuse but never change a result, so DVC does not track it.
"""

from pathlib import Path

from tokenmill.core.executor import ExecutorParams
from tokenmill.core.params import PARAMS_FILE, Section, read_yaml, validate
from tokenmill.data.params import CleanParams, DataParams
from tokenmill.evaluation.params import EvaluateParams
from tokenmill.finetuning.params import FinetuneParams
from tokenmill.model.config import ModelParams
from tokenmill.sample.generator import SampleParams
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.training.params import RuntimeParams, TrainSection


class RuntimeSection(RuntimeParams, ExecutorParams, extra="forbid"):
    """How fast a stage runs, never what comes out; so no stage depends on it."""


class AllParams(Section):
    """Every section of params.yaml."""

    data: DataParams
    sample: SampleParams
    clean: CleanParams
    tokenizer: TokenizerParams
    tokenize: TokenizeParams
    model: ModelParams
    train: TrainSection
    evaluate: EvaluateParams
    finetune: FinetuneParams
    runtime: RuntimeSection


def check_all(path: Path = PARAMS_FILE) -> AllParams:
    """Read and check every section.

    Raises:
        UserError: the file cannot be read.
        ParamsError: lists every problem.
    """
    return validate(AllParams, read_yaml(path), path)
