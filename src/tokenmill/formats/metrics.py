"""The forms of what stages report: `metrics/*.json` and `data/clean_report.json`.

They are separate from the stages, so that no report imports the code of the stage that wrote a
file. `words/cleaning.py` puts them into sentences.
"""

import operator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tokenmill.core import paths
from tokenmill.core.params import Section
from tokenmill.formats.records import read_record
from tokenmill.formats.token_file import TokenizerType


class Metrics(BaseModel):
    """Base class: it names only the fields that are read somewhere, and keeps all others."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class CleanMetrics(Metrics):
    """The contents of metrics/clean.json."""

    documents_read: int
    documents_kept: int


class TokenizerMetrics(Metrics):
    """The contents of metrics/tokenizer.json."""

    type: TokenizerType
    vocab_size: int
    requested_vocab_size: int
    """The vocabulary size that was asked for. For `char` it equals `vocab_size`."""
    sample_bytes: int
    """UTF-8 bytes of the text from which the tokenizer was made."""
    corpus_too_small: bool
    """Whether the sample has fewer pairs to merge than the vocabulary has room for."""
    bytes_per_token: float = Field(allow_inf_nan=False)
    """UTF-8 bytes per token, measured on a sample of the corpus."""


class TokensMetrics(Metrics):
    """The contents of metrics/tokens.json."""

    train_tokens: int
    val_tokens: int
    compression_ratio: float = Field(allow_inf_nan=False)
    split: str
    val_fraction: float
    split_by: str
    """How validation text was chosen, in words."""


class DataMetrics(Metrics):
    """The contents of metrics/data.json."""

    unigram_bits_per_byte: float = Field(allow_inf_nan=False)
    """Bits per byte of a model that knows only the frequencies of tokens."""


class TrainMetrics(Metrics):
    """The contents of metrics/train.json."""

    epoch: int
    steps: int
    tokens: int
    parameters: int
    val_loss: float


class FinetunedTrainMetrics(TrainMetrics):
    """metrics/finetuned/train.json; `val_loss` is that on held-out chats."""

    train_answer_bytes_per_token: float = Field(allow_inf_nan=False)
    """UTF-8 bytes of the answers, for each token of their text."""


class FinetunedEvalMetrics(Metrics):
    """metrics/finetuned/eval.json."""

    base_text_loss: float
    """On the held-out text of the base's training."""
    base_text_loss_before: float
    """The base's own."""


FILES: dict[type[Metrics], Path] = {
    CleanMetrics: paths.METRICS / "clean.json",
    TokenizerMetrics: paths.METRICS / "tokenizer.json",
    TokensMetrics: paths.METRICS / "tokens.json",
    DataMetrics: paths.METRICS / "data.json",
    TrainMetrics: paths.TRAIN_METRICS,
}
"""For each form that every run has, its file."""

FINETUNED_FILES: dict[type[Metrics], Path] = {
    FinetunedTrainMetrics: paths.FINETUNED_METRICS / "train.json",
    FinetunedEvalMetrics: paths.FINETUNED_METRICS / "eval.json",
}
"""The same for the forms of a run with fine-tuning."""

Form = TypeVar("Form", bound=Metrics)


def read_metrics(form: type[Form], root: Path = Path()) -> Form:
    """Read the metrics that a stage wrote in the project at `root`."""
    return read_record(root / (FILES | FINETUNED_FILES)[form], form)


class Files(Section):
    """Counts of the files below data.raw."""

    read: int
    skipped: dict[str, int]
    """The number of files of each unknown extension; the empty extension stands for files without
    one."""
    held_out: int
    """The number of test files, which were not read."""
    bytes: int
    """Size on disk of the files that were read."""


class Documents(Section):
    """Counts of documents, in all files or in one of them."""

    read: int
    kept: int


class Others(Documents):
    """Counts of documents in the files that the report does not list."""

    files: int


class Example(Section):
    """The beginning of a dropped document."""

    text: str
    source: str
    """Its file; empty for a record that is no document."""


class Characters(Section):
    """Counts of Unicode code points."""

    into: int = Field(alias="in")
    """Code points of all documents, before cleaning."""
    out: int
    """Code points of the documents kept, after cleaning."""


class Letters(Section):
    """Counts of the letters in all documents, and of those that the mode's alphabet removes."""

    read: int
    taken: int


class Lengths(Section):
    """A histogram of the documents' lengths in characters."""

    edges: list[int]
    """Where each bin begins, in characters. A bin ends where the next one begins; the last one has
    no end."""
    read: list[int]
    kept: list[int]

    @model_validator(mode="after")
    def _check_lengths(self) -> "Lengths":
        if not len(self.edges) == len(self.read) == len(self.kept) > 0:
            raise ValueError("edges, read and kept must be of one length")
        return self


class CleanReport(Section):
    """The contents of data/clean_report.json: what `clean` read, kept and dropped."""

    files: Files
    documents: Documents
    characters: Characters
    letters: Letters | None
    """Counts of letters; null if the mode keeps every letter."""
    invalid_utf8: int
    """The number of documents in which invalid Unicode was replaced."""
    encodings: dict[str, int]
    """The number of files in each encoding but UTF-8."""
    encoded: dict[str, str]
    """The encodings of some of these files, by the name of the file."""
    dropped: dict[str, int]
    """The number of documents dropped for each reason that `clean` checked."""
    meanings: dict[str, str]
    """The meaning of each reason, in words."""
    examples: dict[str, list[Example]]
    """The beginnings of a few dropped documents, by reason."""
    unread: dict[str, int] = Field(default_factory=dict, exclude_if=operator.not_)
    """How often something was left out of a conversation, as images are, by its name; only if
    anything was."""
    lengths: Lengths
    languages: dict[str, int]
    """The number of documents in each language, in a sample of the documents kept."""
    sources: dict[str, Documents]
    """Counts of documents in each of the largest files."""
    other_sources: Others
    held_out: list[str]
    """The names of the first test files."""
    params: dict[str, dict[str, Any]]
    """The sections `data` and `clean` of params.yaml."""

    @field_validator("params")
    @classmethod
    def _check_params(cls, params: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for section, name in (("data", "raw"), ("clean", "mode")):
            if not isinstance(params.get(section, {}).get(name), str):
                raise ValueError(f"{section}.{name} must be a text")
        return params

    @property
    def raw(self) -> str:
        """The parameter `data.raw`."""
        return self.params["data"]["raw"]

    @property
    def mode(self) -> str:
        """The parameter `clean.mode`."""
        return self.params["clean"]["mode"]

    def metrics(self) -> dict[str, int]:
        """The numbers for metrics/clean.json, in one flat mapping."""
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
