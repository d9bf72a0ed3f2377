"""Stage `tokenize`: encode the clean corpus, split it, compress it."""

from tokenmill.core import paths
from tokenmill.core.files import write_json
from tokenmill.core.params import Section, load
from tokenmill.display import say
from tokenmill.executors.params import ExecutorParams, open_executor
from tokenmill.tokens.corpus import SPLIT_IN_WORDS
from tokenmill.tokens.pack import pack, packed_metrics
from tokenmill.tokens.params import TokenizeParams
from tokenmill.words.units import counted


class Params(Section):
    """The sections of params.yaml that this stage reads."""

    tokenize: TokenizeParams
    runtime: ExecutorParams


def main() -> None:
    """Write data/packed and metrics/tokens.json."""
    params = load(Params)
    with open_executor(params.runtime) as executor:
        metadata, method = pack(
            paths.CLEAN,
            paths.TOKENIZER,
            paths.PACKED,
            params.tokenize,
            executor=executor,
            results=paths.resume_root() / paths.PACKED_SHARDS,
            store=params.runtime.store,
        )
    numbers = packed_metrics(metadata)
    settings = params.tokenize.model_dump() | {"split_by": SPLIT_IN_WORDS[method]}
    write_json(paths.METRICS / "tokens.json", numbers | settings)
    say(
        f"train {metadata.train.tokens:,} tokens in "
        f"{counted(metadata.train.documents, 'document')}, val {metadata.val.tokens:,} in "
        f"{metadata.val.documents:,} ({SPLIT_IN_WORDS[method]})\n{numbers['bytes_per_token']:.2f} "
        f"bytes per token, packed {numbers['compression_ratio']:.2f} times smaller"
    )
