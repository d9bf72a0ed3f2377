"""Train the tokenizer on clean text: byte-level BPE from a sample, or a token per character.

BPE as in GPT-2 (Radford et al. 2019, section 2.2): all 256 bytes are in the vocabulary, so that any
text can be encoded. The same corpus and parameters give the same file, byte for byte.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from tokenizers import Tokenizer, decoders, models

from tokenmill.core import files
from tokenmill.formats import shards
from tokenmill.formats.chat_columns import plain_column, text_bytes
from tokenmill.formats.metrics import TokenizerMetrics
from tokenmill.formats.tokenizer import (
    SPECIAL_TOKENS,
    TextTokenizer,
    add_special_tokens,
    read_tokenizer,
    record_tokenizer,
)
from tokenmill.progress import Progress
from tokenmill.tokens import corpus
from tokenmill.tokens.bpe import train_bpe
from tokenmill.tokens.encoder import CODE_POINTS, code_points
from tokenmill.tokens.params import TokenizerParams

MEASURED_BYTES = 1 << 20
"""Bytes of text, drawn evenly over the corpus, on which bytes per token are measured."""


def train_tokenizer(clean: Path, file: Path, params: TokenizerParams) -> TokenizerMetrics:
    """Train a tokenizer on the corpus in `clean`, write it to `file`, and measure it."""
    is_bpe = params.type == "bpe"
    total = shards.totals(clean).bytes
    size = min(total, params.sample_bytes) if is_bpe else total
    with Progress("tokenizer", size) as progress:
        if is_bpe:
            backend = learn_bpe(clean, size, params.vocab_size, progress)
        else:
            backend = collect_characters(clean, progress)
    files.write_text(file, backend.to_str(pretty=True) + "\n")
    return _report(clean, file, size, params.vocab_size if is_bpe else None)


def take_tokenizer(clean: Path, file: Path, source: Path) -> TokenizerMetrics:
    """Copy the tokenizer of the model to start from to `file`, byte for byte, and measure it on the
    corpus in `clean`."""
    read_tokenizer(source, "bring the model again with `tokenmill import`")
    with files.write_atomic(file) as copy:
        copy.write(source.read_bytes())
    return _report(clean, file, 0, None)


def _report(clean: Path, file: Path, bytes_read: int, requested: int | None) -> TokenizerMetrics:
    record_tokenizer(file)
    tokenizer = read_tokenizer(file)
    requested = requested or tokenizer.vocab_size
    return TokenizerMetrics(
        type=tokenizer.type,
        vocab_size=tokenizer.vocab_size,
        requested_vocab_size=requested,
        sample_bytes=bytes_read,
        bytes_per_token=round(bytes_per_token(tokenizer, clean), 4),
        corpus_too_small=tokenizer.vocab_size < requested,
    )


def tokenizer_in_words(report: TokenizerMetrics) -> str:
    """The report as one or two lines of text."""
    line = (
        f"{report.type}: {report.vocab_size:,} tokens, {report.bytes_per_token:.2f} bytes per token"
    )
    if report.corpus_too_small:
        line += (
            f"\ntokenizer.vocab_size ({report.requested_vocab_size:,}) is more than "
            f"{report.sample_bytes:,} bytes of text can fill; the vocabulary has "
            f"{report.vocab_size:,} (add text, or raise tokenizer.sample_bytes)"
        )
    return line


def learn_bpe(clean: Path, size: int, vocab_size: int, progress: Progress) -> Tokenizer:
    """Train byte-level BPE on so many bytes of the corpus. Memory grows only with the distinct
    words of the sample."""

    def texts() -> Iterator[pl.Series]:
        for batch in corpus.sample(clean, size):
            yield batch
            progress.advance(text_bytes(batch))
        progress.end()
        progress.note(f"tokenizer: the words are counted; merging them into {vocab_size:,} entries")

    backend, note = train_bpe(texts, size, vocab_size)
    if note:
        progress.note(note)
    return backend


def collect_characters(clean: Path, progress: Progress) -> Tokenizer:
    """Make a vocabulary of the special tokens, then one token per character of the whole corpus, in
    the order of their code points.

    This is BPE without merges, so every reader of tokenizer.json can read it.
    """
    seen = np.zeros(CODE_POINTS, dtype=np.bool_)
    for frame in shards.batches(clean):
        seen[code_points(plain_column(frame["text"]).to_list())] = True
        progress.advance(text_bytes(frame["text"]))
    characters = map(chr, np.flatnonzero(seen))
    vocabulary = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *characters])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.decoder = decoders.Fuse()
    add_special_tokens(backend)
    return backend


def bytes_per_token(tokenizer: TextTokenizer, clean: Path) -> float:
    """UTF-8 bytes per token on a small, even sample of the corpus, special tokens not counted.

    Raises:
        UserError: as `TextTokenizer.encode_batch`.
    """
    texts = [text for batch in corpus.sample(clean, MEASURED_BYTES) for text in batch]
    ids, _ = tokenizer.encode_batch(texts)
    return sum(len(text.encode()) for text in texts) / max(1, len(ids))
