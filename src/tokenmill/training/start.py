"""The weights that training starts from, where they are not random: those of a model's folder."""

from pathlib import Path

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of
from tokenmill.core.token_file import TokenMetadata
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import load_weights, read_config
from tokenmill.model.manifest import CONFIG, WEIGHTS


def check_start(folder: Path, config: ModelConfig, tokens: TokenMetadata) -> str:
    """Refuse a model that is not the one to train, or has another tokenizer than the tokens; return its hash.

    Raises:
        UserError: they differ, or a file is missing or damaged.
    """
    found = read_config(folder).model_copy(update={"dropout": config.dropout})
    if found != config:
        raise UserError(f"{folder / CONFIG} has other sizes than the model to train; `tokenmill params` names them.")
    file = folder / paths.TOKENIZER.name
    for path in (folder / WEIGHTS, file):
        if not path.exists():
            raise UserError(f"{path} is missing; `dvc pull {folder}` fetches it.")
    if sha256_of(file) != tokens.tokenizer_sha256:
        raise UserError(f"the tokens were made with another tokenizer than {file}; `dvc repro` encodes them again.")
    return sha256_of(folder / WEIGHTS)


def load_start(model: GPT, folder: Path) -> None:
    """Replace the random weights of a model by those in a folder.

    Raises:
        UserError: they are damaged, or of other sizes.
    """
    load_weights(model, folder)
