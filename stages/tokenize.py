"""Stage `tokenize`: encode the clean corpus, split it, compress it."""

from tokenmill.core import files, params, paths
from tokenmill.executor import ExecutorParams, open_executor
from tokenmill.tokens.corpus import SPLIT_IN_WORDS, choose_split
from tokenmill.tokens.pack import ENCODING_THREADS, pack, summary
from tokenmill.tokens.params import TokenizeParams
from tokenmill.words.units import counted


class Params(params.Section):
    """The sections of params.yaml that this stage obeys."""

    tokenize: TokenizeParams
    runtime: ExecutorParams


def main() -> None:
    """Write data/packed and metrics/tokens.json."""
    wanted = params.load(Params)
    method = choose_split(paths.CLEAN, wanted.tokenize)
    chosen = wanted.tokenize.model_copy(update={"split": method})
    with open_executor(wanted.runtime, threads=ENCODING_THREADS) as executor:
        metadata = pack(paths.CLEAN, paths.TOKENIZER, paths.PACKED, chosen, executor)
    numbers = summary(paths.PACKED, metadata)
    settings = wanted.tokenize.model_dump() | {"split_by": SPLIT_IN_WORDS[method]}
    files.write_json(paths.METRICS / "tokens.json", numbers | settings)
    print(
        f"train {metadata.train.tokens:,} tokens in "
        f"{counted(metadata.train.documents, 'document')}, val {metadata.val.tokens:,} in "
        f"{metadata.val.documents:,} ({SPLIT_IN_WORDS[method]})\n{numbers['bytes_per_token']:.2f} "
        f"bytes per token, packed {numbers['compression_ratio']:.2f} times smaller"
    )
