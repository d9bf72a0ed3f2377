"""What is known of a model without loading it: `config.json` in its folder, and `manifest.json`
beside all epochs.

The manifest says which models a folder holds and with which parameters they were trained.
"""

from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, BaseModel, Field, model_validator

from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of
from tokenmill.core.params import Epochs, Section
from tokenmill.formats.records import read_record
from tokenmill.formats.token_file import Sha256
from tokenmill.model.config import ModelConfig

MANIFEST = "manifest.json"
# The files of one epoch's folder
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
# Those beside them that the library PEFT loads, if the epoch learned by LoRA
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER = "adapter_model.safetensors"
FORMAT = 1
RESTORE = "`dvc checkout --force` or `dvc pull` restores it, `dvc repro -f train` makes it"
"""What to do about a damaged model."""


class TrainedWith(Section, extra="allow"):
    """The parameters of the section `train` that evaluation needs; the others are kept, but not
    checked."""

    precision: str
    batch_size: int
    validation_sequences: int = Field(
        validation_alias=AliasChoices("validation_sequences", "validation_windows")
    )
    """Older manifests call it `validation_windows`."""


class Manifest(Section):
    """The contents of manifest.json."""

    format_version: Literal[1]
    fingerprint: str
    """Identifies the run: runs with the same fingerprint can continue each other's checkpoints."""
    model: ModelConfig
    train: TrainedWith
    """The section `train` of params.yaml."""
    parameters: int
    """The number of trained parameters."""
    epochs: Epochs
    """The last epoch; the folders are `epoch-1` to `epoch-N`."""
    weights: list[Sha256] | None = None
    """The hash of the weights of each epoch; None in a manifest of an older version."""
    tokenizer_sha256: str
    """The hash of the tokenizer.json that made the tokens."""
    start_sha256: Sha256 | None = Field(default=None, exclude_if=lambda value: value is None)
    """The hash of the weights that training started from; None for random ones."""

    @model_validator(mode="after")
    def _weights_of_every_epoch(self) -> "Manifest":
        if self.weights is not None and len(self.weights) != self.epochs:
            raise ValueError(
                f"it has {self.epochs} epochs and {len(self.weights)} hashes of weights"
            )
        return self

    def check_weights(self, folder: Path) -> str:
        """The SHA-256 of the weights in the folder of an epoch, which must be those that training
        wrote.

        Raises:
            UserError: the manifest records another hash, or no such epoch.
        """
        recorded = {
            f"epoch-{number}": sha256 for number, sha256 in enumerate(self.weights or [], start=1)
        }
        found = sha256_of(folder / WEIGHTS)
        if self.weights is not None and found != recorded.get(folder.name):
            raise UserError(
                f"{folder / WEIGHTS} is not what training wrote: another hash is recorded; "
                f"{RESTORE}."
            )
        return found

    def check_tokenizer(self, sha256: str, source: str) -> None:
        """Refuse a tokenizer other than the one that the model was trained with; `source` is where
        it comes from.

        Raises:
            UserError: the hashes differ.
        """
        if sha256 != self.tokenizer_sha256:
            raise UserError(
                "the model was trained with another tokenizer (sha256 "
                f"{self.tokenizer_sha256[:12]}) than {source} ({sha256[:12]}); use the one that "
                "it was trained with, or run `dvc repro`."
            )


class Saved(BaseModel):
    """config.json: what transformers reads, and our own configuration."""

    tokenmill: ModelConfig


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder of models.

    Raises:
        UserError: there is none, it is damaged, or it was written by another version.
    """
    return read_record(folder / MANIFEST, Manifest, way_out=RESTORE)
