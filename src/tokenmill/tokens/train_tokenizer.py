"""Make tokenizer.json from the clean corpus: byte-level BPE learned from a sample, or its characters.

BPE as in GPT-2 (Radford et al. 2019, section 2.2): all 256 bytes are in the vocabulary, so that any text
can be encoded. The same corpus and parameters give the same file, byte for byte.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from tokenmill.core import files, shards
from tokenmill.core.errors import UserError
from tokenmill.core.tokenizer import END_OF_TEXT, TextTokenizer, read_tokenizer
from tokenmill.display.progress import Progress
from tokenmill.tokens import corpus
from tokenmill.tokens.corpus import sample
from tokenmill.tokens.encoder import CODE_POINTS, code_points
from tokenmill.tokens.params import TokenizerParams

MEASURED_BYTES = 1 << 20
"""Bytes of text, drawn evenly, on which bytes per token is measured."""


@dataclass(frozen=True)
class TokenizerReport:
    """What came out, for metrics/tokenizer.json."""

    type: str
    vocab_size: int
    requested_vocab_size: int
    """For characters what the corpus has: nothing else was asked for."""
    sample_bytes: int
    """UTF-8 bytes that were looked at."""
    bytes_per_token: float
    """On a sample of the corpus: how well the vocabulary fits."""
    corpus_too_small: bool
    """The sample has fewer pairs to merge than the vocabulary has room for."""

    def sentence(self) -> str:
        """The report in a line or two."""
        line = f"{self.type}: {self.vocab_size:,} tokens, {self.bytes_per_token:.2f} bytes per token"
        if self.corpus_too_small:
            line += (
                f"\ntokenizer.vocab_size ({self.requested_vocab_size:,}) is more than {self.sample_bytes:,} bytes of "
                f"text can fill; going on with {self.vocab_size:,} (add text, or raise tokenizer.sample_bytes)"
            )
        return line


def make_tokenizer(clean: Path, file: Path, params: TokenizerParams) -> TokenizerReport:
    """Write the tokenizer of the corpus in `clean` to `file`, and measure it."""
    total = shards.totals(clean).bytes
    if not total:
        raise UserError(f"{clean} holds no text to learn a tokenizer from; look at data.raw and the clean report.")
    learn = learn_bpe if params.type == "bpe" else collect_characters
    looked_at = min(total, params.sample_bytes) if params.type == "bpe" else total
    with Progress("tokenizer", total=looked_at, unit="B") as progress:
        backend = learn(clean, params, progress)
    files.write_text(file, backend.to_str(pretty=True) + "\n")
    made = read_tokenizer(file)
    requested = params.vocab_size if params.type == "bpe" else made.vocab_size
    return TokenizerReport(
        type=made.type,
        vocab_size=made.vocab_size,
        requested_vocab_size=requested,
        sample_bytes=looked_at,
        bytes_per_token=round(bytes_per_token(made, clean), 4),
        corpus_too_small=made.vocab_size < requested,
    )


def learn_bpe(clean: Path, params: TokenizerParams, progress: Progress) -> Tokenizer:
    """Byte-level BPE from at most `sample_bytes`; memory grows with the distinct words of the sample only."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=params.vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )

    def texts() -> Iterator[list[str]]:
        for part in sample(clean, params.sample_bytes):
            yield part
            progress.advance(sum(len(text.encode()) for text in part))
        progress.note(f"tokenizer: the words are counted; merging them into {params.vocab_size:,} entries")

    backend.train_from_iterator(texts(), trainer)
    return backend


def collect_characters(clean: Path, _: TokenizerParams, progress: Progress) -> Tokenizer:
    """One token per character of the whole corpus, in the order of their code points, after end-of-text.

    BPE without merges is exactly that, and any reader of tokenizer.json knows it.
    """
    seen = np.zeros(CODE_POINTS, dtype=np.bool_)
    for frame in corpus.batches(clean):
        seen[code_points(frame["text"].to_list())] = True
        progress.advance(int(frame["text"].str.len_bytes().sum()))
    vocabulary = {END_OF_TEXT: 0} | {chr(code): i for i, code in enumerate(np.flatnonzero(seen), start=1)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    return backend


def bytes_per_token(tokenizer: TextTokenizer, clean: Path) -> float:
    """UTF-8 bytes per token on a small, even sample of the corpus, end-of-text not counted."""
    texts = [text for part in sample(clean, MEASURED_BYTES) for text in part]
    tokens = sum(len(one.ids) for one in tokenizer.backend.encode_batch_fast(texts, add_special_tokens=False))
    return sum(len(text.encode()) for text in texts) / tokens
