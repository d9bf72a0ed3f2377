"""The whole of params.yaml: every section in one model, checked before any stage begins its work.

A stage depends only on the sections it names, but a mistake in any of them should end the first stage, not the last
one, hours later. Of `runtime` each reads a part and ignores the rest, so only here are its unknown keys refused. This
module can refuse but never change a result, so DVC does not track it.
"""

from pathlib import Path

from tokenmill.core.executor import EngineParams
from tokenmill.core.params import PARAMS_FILE, Section, read_yaml, validate
from tokenmill.data.params import CleanParams, DataParams
from tokenmill.evaluation.params import EvaluateParams
from tokenmill.model.config import ModelParams
from tokenmill.sample.params import SampleParams
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.training.params import RuntimeParams, TrainSection


class RuntimeSection(RuntimeParams, EngineParams, extra="forbid"):
    """The section `runtime`: changes how fast a stage goes, never what comes out; no stage depends on it."""


class AllParams(Section):
    """params.yaml."""

    data: DataParams
    sample: SampleParams
    clean: CleanParams
    tokenizer: TokenizerParams
    tokenize: TokenizeParams
    model: ModelParams
    train: TrainSection
    evaluate: EvaluateParams
    runtime: RuntimeSection


def check_all(path: Path = PARAMS_FILE) -> AllParams:
    """Read every section.

    Raises:
        UserError: lists every problem of the file.
    """
    return validate(AllParams, read_yaml(path), path)
