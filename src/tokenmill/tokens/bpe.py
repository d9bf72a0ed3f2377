"""Learn byte-level BPE (Radford et al. 2019, section 2.2) from texts.

The reference is the trainer of Hugging Face `tokenizers`. gigabpe learns the same merges about ten
times as fast, but is young. It learns from a large sample, and only after it agreed with the
reference, in this run, on a part of the sample and on texts made to be difficult.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tokenmill.core.files import naming
from tokenmill.formats.chat_columns import text_bytes
from tokenmill.formats.tokenizer import BYTE_OF, SPECIAL_TOKENS, add_special_tokens
from tokenmill.temporary import temporary_folder
from tokenmill.tokens.corpus import spread
from tokenmill.tokens.encoder import adversarial_texts

FEW_BYTES = 8 << 20
"""The size of a sample from which the reference learns within seconds, so that no other trainer is
asked."""

COMPARED_BYTES = 1 << 20
"""The most bytes of a larger sample that both trainers learn from first."""

LONGEST_WORD = 1024
"""The number of characters after which a longer word is cut. No word of any language is longer."""

_LONG_RUN = re.compile(rf"(?<!\S)\S{{{LONGEST_WORD},}}|(?<!\s)\s{{{LONGEST_WORD},}}")

_LONG_SPACE = rf"\s{{{LONGEST_WORD}}}"

_VERTICAL_TAB = "\v"
"""Stands for a line break in gigabpe's file, whose lines are the texts. The pre-tokenizer treats
both alike, and cleaning removes this one from text."""

_ALPHABET = sorted(BYTE_OF)
"""The characters that stand for the 256 bytes, in the order of their ids."""

Texts = Sequence[str] | pl.Series
"""A batch of texts; a column is not copied."""


def train_bpe(
    texts: Callable[[], Iterable[Texts]], size: int, vocab_size: int
) -> tuple[Tokenizer, str]:
    """Learn from texts with the fastest trainer that learns the reference's merges.

    gigabpe learns from the whole sample while it is compared with the reference on a part of it.

    Args:
        texts: gives the texts, the same at every call.
        size: their UTF-8 bytes.

    Returns:
        The tokenizer, and why gigabpe did not learn it, in a sentence for the user; empty if it did
        or was not asked.
    """
    if size <= FEW_BYTES:
        return train_reference(texts(), vocab_size), ""
    try:
        with temporary_folder() as folder, ThreadPoolExecutor(1) as pool:
            sample = folder / "sample.txt"
            compared = _write(sample, texts(), share=COMPARED_BYTES / size)
            learning = pool.submit(_train_gigabpe, sample, vocab_size)
            if is_the_same(compared, vocab_size):
                return learning.result(), ""
            difference = "the two learn different merges"
    except (KeyboardInterrupt, SystemExit, OSError):
        raise
    except BaseException as error:  # a panic in Rust arrives as a BaseException
        difference = f"it failed: {type(error).__name__}: {error}"
    note = f"learning with `tokenizers`, slower than gigabpe, because {difference}"
    return train_reference(texts(), vocab_size), note


def is_the_same(texts: list[str], vocab_size: int) -> bool:
    """Whether both trainers learn the same from these texts and from difficult ones."""
    difficult = [text.replace(_VERTICAL_TAB, "") for text in adversarial_texts()]
    together = [*texts, *difficult]
    return (
        train_gigabpe([together], vocab_size).to_str()
        == train_reference([together], vocab_size).to_str()
    )


def train_reference(texts: Iterable[Texts], vocab_size: int) -> Tokenizer:
    """Learn from lists of texts with Hugging Face `tokenizers`."""
    backend = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=_ALPHABET,
        show_progress=False,
    )
    backend.train_from_iterator((prepared(batch).to_list() for batch in texts), trainer)
    return backend


def train_gigabpe(texts: Iterable[Texts], vocab_size: int) -> Tokenizer:
    """Learn from lists of texts with gigabpe.

    Raises:
        ValueError: a text holds a vertical tab.
    """
    with temporary_folder() as folder:
        sample = folder / "sample.txt"
        _write(sample, texts)
        return _train_gigabpe(sample, vocab_size)


def _write(sample: Path, texts: Iterable[Texts], share: float = 0) -> list[str]:
    """Write a line for each text, and return this share of their bytes, at even distances."""
    kept = []
    with naming(sample), sample.open("wb") as file:
        for batch in map(prepared, texts):
            if batch.str.contains(_VERTICAL_TAB, literal=True).any():
                raise ValueError("a text holds U+000B, which only the cleaning mode `none` keeps")
            lines = batch.str.replace_all("\n", _VERTICAL_TAB, literal=True)
            lines.to_frame("text").write_csv(file, include_header=False, quote_style="never")
            if budget := int(share * text_bytes(batch)):
                kept += spread(batch, budget).to_list()
    return kept


def _train_gigabpe(sample: Path, vocab_size: int) -> Tokenizer:
    """Learn from a file of lines. Its vocabulary has no special tokens, only the bytes that it saw,
    and a line break that joins nothing; the reference's has them all."""
    import gigabpe  # noqa: PLC0415  (where it cannot be imported, `train_bpe` falls back)

    enough = vocab_size - len(SPECIAL_TOKENS) + 1
    _, merges = gigabpe.train_bpe(  # pyright: ignore[reportAttributeAccessIssue]
        [str(sample)], vocab_size=enough, pretokenizer="bytelevel"
    )
    character = {byte: char for char, byte in BYTE_OF.items()}
    tab, line_break = character[ord(_VERTICAL_TAB)], character[ord("\n")]
    vocabulary = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *_ALPHABET])}
    kept = []
    for pair in merges:
        if len(vocabulary) >= vocab_size:
            break
        left, right = (part.replace(tab, line_break) for part in pair)
        vocabulary.setdefault(left + right, len(vocabulary))
        kept.append((left, right))
    backend = _byte_level(models.BPE(vocab=vocabulary, merges=kept))
    add_special_tokens(backend)
    return backend


def _byte_level(model: models.BPE) -> Tokenizer:
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def prepared(texts: Texts) -> pl.Series:
    """The texts as trainers see them: without white space at the end, which gigabpe would join with
    its own line break, and with long words cut."""
    return cut_long_words(pl.Series(texts, dtype=pl.String)).str.strip_chars_end()


def cut_long_words(texts: pl.Series) -> pl.Series:
    """Cut words and other runs of characters that are longer than LONGEST_WORD.

    Training takes time in the square of a word's length: 400 kB of one letter would take minutes.
    """
    if not _may_have_long_runs(texts):
        return texts
    parts = [
        text[start:end] for text in texts for start, end in pairwise([0, *_cuts(text), len(text)])
    ]
    return pl.Series(parts, dtype=pl.String)


def _may_have_long_runs(texts: pl.Series) -> bool:
    """Whether a text may have a long run of characters. White space of ASCII interrupts a long
    word in each half of LONGEST_WORD bytes, or there is none: much sooner seen than a run of
    letters of every script."""
    data = np.frombuffer(texts.str.join("\n").cast(pl.Binary).item(), dtype=np.uint8)
    half = LONGEST_WORD // 2
    least = data[: len(data) // half * half].reshape(-1, half).min(axis=1)
    return bool((least > ord(" ")).any()) or bool(texts.str.contains(_LONG_SPACE).any())


def _cuts(text: str) -> Iterator[int]:
    for run in _LONG_RUN.finditer(text):
        yield from range(run.start() + LONGEST_WORD, run.end() + 1, LONGEST_WORD)
