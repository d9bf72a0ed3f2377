"""Stage `tokenizer`: learn the vocabulary from the clean corpus, or take the start model's."""

from tokenmill.core import paths
from tokenmill.core.files import write_json
from tokenmill.core.params import Section, StartParams, load
from tokenmill.display import say
from tokenmill.tokens.params import TokenizerParams
from tokenmill.tokens.train_tokenizer import take_tokenizer, tokenizer_in_words, train_tokenizer


class Params(Section):
    """The sections of params.yaml that this stage reads."""

    tokenizer: TokenizerParams
    model: StartParams


def main() -> None:
    """Write data/tokenizer/tokenizer.json and metrics/tokenizer.json."""
    params = load(Params)
    if params.model.start:
        report = take_tokenizer(
            paths.CLEAN, paths.TOKENIZER, params.model.start / paths.TOKENIZER.name
        )
    else:
        report = train_tokenizer(paths.CLEAN, paths.TOKENIZER, params.tokenizer)
    write_json(paths.METRICS / "tokenizer.json", report.model_dump())
    say(tokenizer_in_words(report))
