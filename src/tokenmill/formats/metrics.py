"""What stages report for other stages and commands to read: `metrics/*.json` and
`data/clean_report.json`.

These models are in `core`, so that no report depends on the code of the stage that wrote a file.
"""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tokenmill.core import paths
from tokenmill.core.params import Section
from tokenmill.formats.records import read_record
from tokenmill.formats.token_file import TokenizerType
from tokenmill.words.units import counted

TOO_MANY = 0.01
"""Fraction of the letters that a mode may take without a word."""


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


class Files(Section):
    """Files below data.raw."""

    read: int
    skipped: dict[str, int]
    """Files of unknown format, by extension."""
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

    def warning(self, mode: str) -> str:
        """A sentence if more than TOO_MANY are taken; else empty."""
        if self.taken <= TOO_MANY * self.read:
            return ""
        part = f"{self.taken:,} of {self.read:,} letters ({self.taken / self.read:.1%})"
        return f"clean.mode {mode} takes {part}; balanced keeps the letters of every script"


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
        }

    def summary(self) -> str:
        """The report in a few lines."""
        documents, characters = self.documents, self.characters
        skipped = ", ".join(f"{count:,} {ending}" for ending, count in self.files.skipped.items())
        kept = f"{documents.kept:,} of {documents.read:,} documents kept from {counted(self.files.read, 'file')}"
        lines = [
            f"clean: {kept}, {characters.into:,} -> {characters.out:,} characters",
            f"dropped: {self.dropped_in_words() or 'none'}"
            + (f"; files skipped: {skipped}" if skipped else ""),
            self._most_dropped(),
            self._encodings_in_words(),
            self.damage_warning(),
            self.letters_warning(),
        ]
        return "\n       ".join(filter(None, lines))

    def _most_dropped(self) -> str:
        """A line that says why, if fewer than half of the documents are kept."""
        if 2 * self.documents.kept >= self.documents.read:
            return ""
        reason = max(self.dropped, key=self.dropped.__getitem__)
        part = f"{self.dropped[reason] / self.documents.read:.0%}"
        return f"{part} were dropped as {reason} ({self.meanings[reason]}); the section clean decides it"

    def letters_warning(self) -> str:
        """A sentence if the mode takes many letters; else empty."""
        return self.letters.warning(self.params["clean"]["mode"]) if self.letters else ""

    def damage_warning(self) -> str:
        """A sentence if bytes could not be read as text; else empty."""
        return (
            f"{self.invalid_utf8:,} of {self.documents.read:,} documents have bytes that are no "
            "text in their file's encoding; if the text looks wrong, name the encoding in "
            "data.encoding"
            if self.invalid_utf8
            else ""
        )

    def _encodings_in_words(self) -> str:
        """A line that names the encodings that are not UTF-8, with an example of each."""
        example = {encoding: file for file, encoding in reversed(self.encoded.items())}
        counts = ", ".join(
            f"{count:,} {encoding}" + (f" ({example[encoding]})" if encoding in example else "")
            for encoding, count in self.encodings.items()
        )
        return (
            f"files not in UTF-8: {counts}; data.encoding overrides what was found"
            if counts
            else ""
        )

    def dropped_in_words(self) -> str:
        """The reasons that occurred, with their counts."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items() if count)


def read_clean_report(path: Path) -> CleanReport:
    """Read what `clean` wrote.

    Raises:
        UserError: the file is missing or damaged.
    """
    return read_record(path, CleanReport, way_out="`dvc repro -f clean` makes it")
