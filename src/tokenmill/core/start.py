"""What a run starts from: random weights and a tokenizer of its own, or both from a model that there is."""

from pathlib import Path

from pydantic import Field

from tokenmill.core import paths
from tokenmill.core.params import Section


class StartParams(Section, extra="ignore"):
    """The part of the section `model` that the tokenizer obeys, too."""

    start_from: str = Field(min_length=1, exclude=True)  # the rest of the section is what the model is
    """`models/random`: random weights. Or a folder that `tokenmill import` wrote: training goes on from its weights,
    with its tokenizer (the section `tokenizer` does not count then), and the sizes must be those of its model."""

    @property
    def start(self) -> Path | None:
        """The folder of the model to start from; None for random weights."""
        return None if Path(self.start_from) == paths.RANDOM else Path(self.start_from)
