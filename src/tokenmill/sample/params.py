"""The `sample` section of params.yaml: which built-in corpus, and how much of it."""

from pydantic import Field

from tokenmill.core.params import Section


class SampleParams(Section):
    """What decides the bytes of the built-in corpus."""

    seed: int = Field(ge=0)
    """Start of the random numbers that combine facts and phrasings; another seed is another corpus (0 or more)."""

    conversations: int = Field(gt=0)
    """Number of conversations to write; 1,000 of them are about 0.21 MB."""
