"""Metrics that a stage wrote to `metrics/*.json`, as other stages and commands read them."""

from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from tokenmill.core import paths
from tokenmill.core.records import read_record


class Metrics(BaseModel):
    """Base class: only what somebody reads is named, and the rest is kept."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class CleanMetrics(Metrics):
    """metrics/clean.json."""

    documents_read: int
    documents_kept: int


class TokenizerMetrics(Metrics):
    """metrics/tokenizer.json."""

    type: Literal["bpe", "char"]
    vocab_size: int
    requested_vocab_size: int
    sample_bytes: int
    corpus_too_small: bool
    bytes_per_token: float = Field(allow_inf_nan=False)


class TokensMetrics(Metrics):
    """metrics/tokens.json."""

    train_tokens: int
    val_tokens: int
    compression_ratio: float = Field(allow_inf_nan=False)
    split: str | None = None
    """Older files have neither this nor the next ones."""
    val_fraction: float | None = None
    split_by: str | None = None
    """What is validation text, in words."""


class DataMetrics(Metrics):
    """metrics/data.json."""

    unigram_bits_per_byte: float = Field(allow_inf_nan=False)


class TrainMetrics(Metrics):
    """metrics/train.json."""

    epoch: int
    tokens: int
    parameters: int
    val_loss: float | None = None


FILES: dict[type[Metrics], tuple[Path, str]] = {
    CleanMetrics: (paths.METRICS / "clean.json", "clean"),
    TokenizerMetrics: (paths.METRICS / "tokenizer.json", "tokenizer"),
    TokensMetrics: (paths.METRICS / "tokens.json", "tokenize"),
    DataMetrics: (paths.METRICS / "data.json", "data_report"),
    TrainMetrics: (paths.TRAIN_METRICS, "train"),
}
"""Each file, and the stage that writes it."""

Form = TypeVar("Form", bound=Metrics)


def read_metrics(form: type[Form], root: Path = Path()) -> Form:
    """What a stage wrote in the project at `root`.

    Raises:
        UserError: the file is missing or damaged.
    """
    file, stage = FILES[form]
    return read_record(root / file, form, way_out=f"`dvc repro -f {stage}` makes it")
