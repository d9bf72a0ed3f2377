"""What a folder of models says of itself: `models/gpt/manifest.json`."""

from pathlib import Path

from pydantic import ValidationError

from tokenmill.errors import UserError
from tokenmill.files import read_json
from tokenmill.model.config import ModelConfig
from tokenmill.params import Section
from tokenmill.training.params import TrainParams

MANIFEST = "manifest.json"
FORMAT = 1


class Manifest(Section):
    """What a folder of models says of itself."""

    format_version: int
    fingerprint: str
    """Of the training; see `fingerprint.py`."""
    model: ModelConfig
    train: TrainParams
    parameters: int
    """Trained numbers."""
    epochs: int
    """Epochs there are: `epoch-1` to `epoch-N`."""
    tokenizer_sha256: str
    """Of the tokenizer.json that made the tokens."""


def read_manifest(folder: Path) -> Manifest:
    """What a folder of models says of itself.

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
