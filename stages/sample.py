"""Stage `sample`: write the built-in corpus, the data of a fresh clone, used while `data.raw`
points at it."""

from tokenmill.core import paths
from tokenmill.core.params import Section, load
from tokenmill.sample.generator import SampleParams, write_sample


class Params(Section):
    """The sections of params.yaml that this stage reads."""

    sample: SampleParams


def main() -> None:
    """Write data/raw/sample/{train.jsonl,validation.jsonl,prompts.yaml}."""
    write_sample(paths.SAMPLE, load(Params).sample)
