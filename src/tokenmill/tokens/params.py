"""The sections `tokenizer`, `tokenize` and `trace` of params.yaml."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tokenmill.core.params import Section

MIN_BPE_VOCAB = 262
"""The smallest vocabulary of BPE: 256 bytes and six special tokens. A smaller one could not encode
every text."""


class TokenizerParams(Section):
    """How text is cut into tokens; everything later reads the result from tokenizer.json."""

    type: Literal["bpe", "char"]
    """`bpe`: byte-level byte-pair encoding, which can encode any text. `char`: one token per
    character of the corpus; small and slow, for short texts and experiments."""
    vocab_size: Annotated[int, Field(gt=0, le=1 << 20)]
    """Size of the vocabulary, its six special tokens (end-of-text, and the boundaries of turns)
    included; at least 262 for `bpe`, which has 256 bytes besides, ignored for `char`. A larger
    vocabulary means fewer tokens for the same text, but a larger model. GPT-2 has 50,257."""
    sample_bytes: Annotated[int, Field(gt=0)]
    """Bytes of text, drawn evenly over the corpus, from which BPE learns; they bound time and
    memory. A smaller corpus is taken whole; of a larger one some row groups are read, at even
    distances (256 of 16 MiB, or as many as hold twice these bytes). From 4 to 8 MB of English,
    held-out text got 0.5 % shorter with 32,000 entries and 0.1 % with 1,024, and each doubling
    gives less. `char` always reads the whole corpus."""

    @model_validator(mode="after")
    def _bpe_holds_every_byte(self) -> Self:
        if self.type == "bpe" and self.vocab_size < MIN_BPE_VOCAB:
            raise ValueError(
                f"tokenizer.vocab_size ({self.vocab_size}) must be at least {MIN_BPE_VOCAB} for "
                "tokenizer.type bpe: 256 bytes and six special tokens."
            )
        return self


class TokenizeParams(Section):
    """Which documents are held out for validation."""

    split: Literal["auto", "hash", "ends", "tail"]
    """`auto`: the files that are named `val`, `valid` or `validation` (`valid.txt`, a folder `val`,
    `validation-00000-of-00001.parquet`); where there are none, `hash`; where that would hold out
    fewer than 20 documents and less than half or more than twice of what is asked for, `ends`, or
    `tail` where documents are too short for that.
    `hash`: whole documents, chosen by a hash of their text, so that no duplicate is in both splits
    and a new document moves no other. `ends`: the end of every document; for a few long ones.
    `tail`: the last characters of the corpus, also within a document."""
    val_fraction: Annotated[float, Field(gt=0, le=0.5)]
    """Fraction of the corpus kept for validation: of documents with `hash`, of characters with
    `ends` and `tail`. Files that are named as validation text are taken whole."""


class OverlapParams(Section, extra="ignore"):
    """The parameter of the section `trace` on which benchmarks also depend."""

    overlap_words: Annotated[int, Field(ge=1, le=100)]
    """The number of words in a row by which a validation document, or an item of a benchmark,
    counts as overlapping with the training text, whatever white space is between them; 13 in Brown
    et al. 2020, appendix C."""


class TraceParams(OverlapParams, extra="forbid"):
    """Where in the training text the answers of the model stand."""

    max_tokens: Annotated[int, Field(ge=0, le=10**12)]
    """The most tokens of training text of which an index is made; of a longer text none is, and
    the report then says so. An index takes 4 bytes on disk for each word, number and run of
    punctuation."""

    min_words: Annotated[int, Field(ge=1, le=100)]
    """The fewest words that count as a copy of training text. Fewer stand there by chance."""
