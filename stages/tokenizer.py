"""Stage `tokenizer`: learn the vocabulary from the clean corpus."""

import dataclasses

from tokenmill.core import files, params, paths
from tokenmill.tokens.params import TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer


class Params(params.Section):
    """The sections of params.yaml that this stage obeys."""

    tokenizer: TokenizerParams


def main() -> None:
    """Write data/tokenizer/tokenizer.json and metrics/tokenizer.json."""
    report = train_tokenizer(paths.CLEAN, paths.TOKENIZER, params.load(Params).tokenizer)
    files.write_json(paths.METRICS / "tokenizer.json", dataclasses.asdict(report))
    print(report.summary())
