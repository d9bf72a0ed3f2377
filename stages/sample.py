"""Write the built-in corpus: the data of a fresh clone, used while `data.raw` points at it."""

from tokenmill.core import paths
from tokenmill.core.params import Section, load
from tokenmill.sample.generator import SampleParams, write_sample


class Params(Section):
    """What this stage reads of params.yaml."""

    sample: SampleParams


def main() -> None:
    """Nothing -> data/raw/sample/{train.jsonl,validation.jsonl,prompts.yaml}."""
    write_sample(paths.SAMPLE, load(Params).sample)
