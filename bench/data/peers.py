"""The same work done by others: `tokenizers`, tiktoken, datatrove (`pip install -e '.[bench]'`
brings the last two).

Each peer is set up to be fast: two workers, forked after everything is imported, files of the same
size, no shuffling. datatrove writes what it cleaned twice: compressed, as it does by itself and as
`clean` does, and plain.
"""

# pyright: reportMissingImports=false

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.data.corpus import CLEAN, ENCODE, FILTER, FOLDER, read_texts, size_of
from bench.data.jobs import Facts, Work
from bench.data.parts import VOCAB_SIZE
from tokenmill.core.paths import TOKENIZER
from tokenmill.formats.tokenizer import (
    END_OF_TEXT,
    SPECIAL_TOKENS,
    TextTokenizer,
    read_tokenizer,
    token_bytes,
)
from tokenmill.tokens.bpe import train_reference

CHUNK_BYTES = 8_000_000
"""Text that `encode` gets in one piece."""


def tokenizers_learn() -> Work:
    """The BPE trainer of Hugging Face `tokenizers`."""
    texts = read_texts(ENCODE)
    size = size_of(ENCODE)
    return lambda: {
        "entries": train_reference([texts], VOCAB_SIZE).get_vocab_size(),
        "bytes": size,
    }


def tokenizers_batch(how: str) -> Work:
    """`encode_batch` or `encode_batch_fast` of Hugging Face `tokenizers`."""
    texts = read_texts(ENCODE)
    tokenizer = read_tokenizer(TOKENIZER).backend
    encode = getattr(tokenizer, how)
    size = size_of(ENCODE)
    return lambda: {
        "tokens": sum(len(one.ids) for one in encode(texts, add_special_tokens=False)),
        "bytes": size,
    }


def tokenizers_chunk() -> Work:
    """`encode` of Hugging Face `tokenizers` on one large piece of text."""
    tokenizer = read_tokenizer(TOKENIZER).backend
    chunk = "\n".join(read_texts(ENCODE))[:CHUNK_BYTES]
    return lambda: {
        "tokens": len(tokenizer.encode(chunk, add_special_tokens=False).ids),
        "bytes": len(chunk.encode()),
    }


def tiktoken_batch() -> Work:
    """tiktoken on the same vocabulary; says for how many documents its ids are those of
    `tokenizers`."""
    import tiktoken  # noqa: F401, PLC0415  (it may be missing)

    texts = read_texts(ENCODE)
    tokenizer = read_tokenizer(TOKENIZER)
    some = texts[:500]
    same = sum(
        map(
            list.__eq__,
            as_tiktoken(tokenizer).encode_ordinary_batch(some),
            map(tokenizer.encode, some),
        )
    )
    encoding = as_tiktoken(tokenizer)

    def work() -> Facts:
        rows = encoding.encode_ordinary_batch(texts, num_threads=os.cpu_count() or 1)
        agreement = f"{same} of {len(some)} documents"
        return {"tokens": sum(map(len, rows)), "bytes": size_of(ENCODE), "same ids": agreement}

    return work


def as_tiktoken(tokenizer: TextTokenizer) -> Any:
    """A tiktoken encoding with the vocabulary of tokenizer.json, whose ids are in the order of the
    merges."""
    import tiktoken  # noqa: PLC0415
    from tiktoken_ext.openai_public import r50k_pat_str  # noqa: PLC0415

    ids = tokenizer.backend.get_vocab(with_added_tokens=True)
    special = {token: ids[token] for token in SPECIAL_TOKENS}
    ranks = {token: rank for rank, token in enumerate(token_bytes(tokenizer)) if token}
    return tiktoken.Encoding(
        "bench", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens=special
    )


def datatrove_clean(compression: str | None, workers: int = 2) -> Work:
    """Read JSON lines, mend with ftfy, write JSON lines."""
    import ftfy  # noqa: F401, PLC0415  (the workers inherit it)
    from datatrove.pipeline.formatters import FTFYFormatter  # noqa: PLC0415
    from datatrove.pipeline.writers.jsonl import JsonlWriter  # noqa: PLC0415

    return _pipeline(
        CLEAN, [FTFYFormatter(), JsonlWriter("peers/clean", compression=compression)], workers
    )


def datatrove_tokenize() -> Work:
    """Read JSON lines, encode with `tokenizers`, write tokens and index."""
    from datatrove.pipeline.tokens import DocumentTokenizer  # noqa: PLC0415

    path = str(TOKENIZER.resolve())
    step = DocumentTokenizer("peers/tokens", path, eos_token=END_OF_TEXT, shuffle_documents=False)
    return _pipeline(ENCODE, [step])


def datatrove_gopher() -> Work:
    """Read JSON lines, apply the quality rules of Gopher and, to what passes, the repetition rules,
    as ours do."""
    from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter  # noqa: PLC0415
    from datatrove.utils.text import split_into_words  # noqa: PLC0415

    split_into_words("Load the words' tokenizer once, before the workers are forked.")
    return _pipeline(FILTER, [GopherQualityFilter(), GopherRepetitionFilter()])


def _pipeline(excerpt: str, steps: list[Any], workers: int = 2) -> Work:
    """A datatrove pipeline over an excerpt of two files, each in a worker of its own, or both in
    one."""
    from datatrove.executor import LocalPipelineExecutor  # noqa: PLC0415
    from datatrove.pipeline.readers import JsonlReader  # noqa: PLC0415

    executor = LocalPipelineExecutor(
        pipeline=[JsonlReader(str(FOLDER / excerpt)), *steps],
        tasks=workers,
        workers=workers,
        logging_dir="peers/logs",
        skip_completed=False,
        start_method="fork",
    )

    def work() -> Facts:
        ran = executor.run()
        assert ran is not None
        last_step = ran.stats[-1].stats
        return {"bytes": size_of(excerpt), "last step": last_step.to_dict()}

    return work


JOBS: dict[str, Callable[[], Work]] = {
    "learn by tokenizers": tokenizers_learn,
    "encode_batch_fast": partial(tokenizers_batch, "encode_batch_fast"),
    "encode_batch": partial(tokenizers_batch, "encode_batch"),
    "encode one chunk": tokenizers_chunk,
    "tiktoken": tiktoken_batch,
    "datatrove tokenize": datatrove_tokenize,
    "datatrove clean": partial(datatrove_clean, "gzip"),
    "datatrove clean, one worker": partial(datatrove_clean, "gzip", 1),
    "datatrove clean, plain": partial(datatrove_clean, None),
    "datatrove gopher": datatrove_gopher,
}
