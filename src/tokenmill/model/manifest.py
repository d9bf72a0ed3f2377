"""`models/gpt/manifest.json`: which models a folder holds and with which parameters they were trained."""

from pathlib import Path

from pydantic import AliasChoices, Field, ValidationError

from tokenmill.core.errors import UserError
from tokenmill.core.files import read_json
from tokenmill.core.params import Section
from tokenmill.model.config import ModelConfig

MANIFEST = "manifest.json"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
"""The files of one epoch's folder."""
FORMAT = 1


class TrainedWith(Section, extra="allow"):
    """The parameters of the section `train` that evaluation needs; the others are kept, but not checked."""

    precision: str
    batch_size: int
    validation_sequences: int = Field(validation_alias=AliasChoices("validation_sequences", "validation_windows"))
    """Older manifests call it `validation_windows`."""


class Manifest(Section):
    """The contents of manifest.json."""

    format_version: int
    fingerprint: str
    """Identifies the run: runs with the same fingerprint can continue each other's checkpoints."""
    model: ModelConfig
    train: TrainedWith
    """The section `train` of params.yaml."""
    parameters: int
    """The number of trained parameters."""
    epochs: int
    """The last epoch; the folders are `epoch-1` to `epoch-N`."""
    tokenizer_sha256: str
    """The hash of the tokenizer.json that made the tokens."""

    def check_tokenizer(self, sha256: str, source: str) -> None:
        """Refuse a tokenizer other than the one that the model was trained with; `source` is where it comes from.

        Raises:
            UserError: the hashes differ.
        """
        if sha256 != self.tokenizer_sha256:
            raise UserError(
                f"the model was trained with another tokenizer (sha256 {self.tokenizer_sha256[:12]}) than {source} "
                f"({sha256[:12]}); use the one that it was trained with, or run `dvc repro`."
            )


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder of models.

    Raises:
        UserError: there is none, or it was written by another version.
    """
    path = folder / MANIFEST
    content = read_json(path)
    if content.get("format_version") != FORMAT:
        raise UserError(
            f"{path} has format_version {content.get('format_version')!r}, this TokenMill reads {FORMAT}; "
            "run `dvc repro -f train`."
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise UserError(
            f"{path} is damaged ({error.error_count()} fields are wrong); `dvc checkout --force` restores it."
        ) from None
