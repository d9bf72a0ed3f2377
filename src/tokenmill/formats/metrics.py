"""What stages report for others to read: `metrics/*.json` and `data/clean_report.json`.

These models are apart, so that no report depends on the code of the stage that wrote a file; what
is said of them is in `words/cleaning.py`.
"""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tokenmill.core import paths
from tokenmill.core.params import Section
from tokenmill.formats.records import read_record
from tokenmill.formats.token_file import TokenizerType


class Metrics(BaseModel):
    """Base class: only what somebody reads is named, and the rest is kept."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class CleanMetrics(Metrics):
    """metrics/clean.json."""

    documents_read: int
    documents_kept: int


class TokenizerMetrics(Metrics):
    """metrics/tokenizer.json."""

    type: TokenizerType
    vocab_size: int
    requested_vocab_size: int
    """For `char` the same as `vocab_size`."""
    sample_bytes: int
    """UTF-8 bytes of text that were read."""
    corpus_too_small: bool
    """The sample has fewer pairs to merge than the vocabulary has room for."""
    bytes_per_token: float = Field(allow_inf_nan=False)
    """On a sample of the corpus."""


class TokensMetrics(Metrics):
    """metrics/tokens.json."""

    train_tokens: int
    val_tokens: int
    compression_ratio: float = Field(allow_inf_nan=False)
    split: str
    val_fraction: float
    split_by: str
    """What is validation text, in words."""


class DataMetrics(Metrics):
    """metrics/data.json."""

    unigram_bits_per_byte: float = Field(allow_inf_nan=False)


class TrainMetrics(Metrics):
    """metrics/train.json."""

    epoch: int
    tokens: int
    parameters: int
    val_loss: float


class FinetunedTrainMetrics(TrainMetrics):
    """metrics/finetuned/train.json; `val_loss` is that on held-out chats."""


class FinetunedEvalMetrics(Metrics):
    """metrics/finetuned/eval.json."""

    base_text_loss: float
    """On the held-out text of the base's training."""
    base_text_loss_before: float
    """The base's own."""


FILES: dict[type[Metrics], tuple[Path, str]] = {
    CleanMetrics: (paths.METRICS / "clean.json", "clean"),
    TokenizerMetrics: (paths.METRICS / "tokenizer.json", "tokenizer"),
    TokensMetrics: (paths.METRICS / "tokens.json", "tokenize"),
    DataMetrics: (paths.METRICS / "data.json", "data_report"),
    TrainMetrics: (paths.TRAIN_METRICS, "train"),
}
"""Each file of every run, and the stage that writes it."""

FINETUNED_FILES: dict[type[Metrics], tuple[Path, str]] = {
    FinetunedTrainMetrics: (paths.FINETUNED_METRICS / "train.json", "finetune"),
    FinetunedEvalMetrics: (paths.FINETUNED_METRICS / "eval.json", "evaluate_finetuned"),
}
"""The same where fine-tuning is on."""

Form = TypeVar("Form", bound=Metrics)


def read_metrics(form: type[Form], root: Path = Path()) -> Form:
    """What a stage wrote in the project at `root`.

    Raises:
        UserError: the file is missing or damaged.
    """
    file, stage = (FILES | FINETUNED_FILES)[form]
    return read_record(root / file, form, way_out=f"`dvc repro -f {stage}` makes it")


class Files(Section):
    """Files below data.raw."""

    read: int
    skipped: dict[str, int]
    """Files of unknown format, by extension; an empty one for those without."""
    held_out: int
    """Test files, which were not read."""
    bytes: int
    """Size on disk of the files that were read."""


class Documents(Section):
    """Documents, of everything or of one source."""

    read: int
    kept: int


class Characters(Section):
    """Unicode code points."""

    into: int = Field(alias="in")
    """Of all documents, before cleaning."""
    out: int
    """Of the documents kept, after cleaning."""


class Letters(Section):
    """Letters of all documents, where the mode's alphabet may take some."""

    read: int
    taken: int


class Lengths(Section):
    """A histogram of the documents' lengths in characters."""

    edges: list[int]
    """Where each bin begins; it ends where the next one begins, and the last one has no end."""
    read: list[int]
    kept: list[int]

    @model_validator(mode="after")
    def _check_lengths(self) -> "Lengths":
        if not len(self.edges) == len(self.read) == len(self.kept) > 0:
            raise ValueError("edges, read and kept must be of one length")
        return self


class CleanReport(Section):
    """data/clean_report.json: what `clean` read, kept and dropped."""

    files: Files
    documents: Documents
    characters: Characters
    letters: Letters | None
    """Null if the mode keeps every letter."""
    invalid_utf8: int
    """Documents in which invalid Unicode was replaced."""
    encodings: dict[str, int]
    """Files by encoding, without those in UTF-8."""
    encoded: dict[str, str]
    """Some of these files with their encodings."""
    dropped: dict[str, int]
    """Documents by reason; every reason that `clean` looked for."""
    meanings: dict[str, str]
    """The reasons in words."""
    examples: dict[str, list[str]]
    """Beginnings of a few dropped documents, by reason."""
    lengths: Lengths
    languages: dict[str, int]
    """Documents by language, in a sample of the documents kept."""
    sources: dict[str, Documents]
    """The largest files."""
    held_out: list[str]
    """The first test files, by name."""
    params: dict[str, Any]
    """The sections `data` and `clean` of params.yaml."""

    def metrics(self) -> dict[str, int]:
        """Flat numbers for metrics/clean.json."""
        return {
            "documents_read": self.documents.read,
            "documents_kept": self.documents.kept,
            **{f"dropped_{reason}": count for reason, count in self.dropped.items()},
            "characters_in": self.characters.into,
            "characters_out": self.characters.out,
            "invalid_utf8": self.invalid_utf8,
            "files_read": self.files.read,
            "files_skipped": sum(self.files.skipped.values()),
            "files_held_out": self.files.held_out,
        }


def read_clean_report(path: Path) -> CleanReport:
    """Read what `clean` wrote.

    Raises:
        UserError: the file is missing or damaged.
    """
    return read_record(path, CleanReport, way_out="`dvc repro -f clean` makes it")
