"""The code of an architecture that Hugging Face `transformers` does not have, for the folders that
leave the project.

Unlike runs/export.py it imports no `tokenizers`, which a GPU machine with little installed lacks.
"""

from pathlib import Path

from tokenmill.core.files import write_text
from tokenmill.model.config import Architecture, ModelConfig

PACKAGE = Path(__file__).resolve().parent.parent
CODE: dict[Architecture, tuple[Path, ...]] = {
    "speedrun": (PACKAGE / "runs" / "modeling_speedrun.py", PACKAGE / "model" / "ngrams.py"),
}
"""The modules that `transformers` needs of an architecture that it does not have."""


def write_code(config: ModelConfig, folder: Path) -> None:
    """Write the code of an architecture that `transformers` does not have; nothing for the others.

    Only exported folders hold it. Training, its mirror and `tokenmill --rev` know the files in the
    folder of an epoch by their names.
    """
    for path in CODE.get(config.architecture, ()):
        code = path.read_text(encoding="utf-8")
        write_text(folder / path.name, code.replace("from tokenmill.model.", "from ."))


def names_of_code() -> tuple[str, ...]:
    """The names of the files that `write_code` writes, of all architectures."""
    return tuple(name for architecture in CODE for name in code_names(architecture))


def code_names(architecture: Architecture) -> tuple[str, ...]:
    """The names of the files that `write_code` writes of an architecture."""
    return tuple(path.name for path in CODE.get(architecture, ()))
