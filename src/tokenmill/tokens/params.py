"""Parameters of the stages `tokenizer` and `tokenize`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tokenmill.core.params import Section

SMALLEST_BPE = 257
"""256 bytes and end-of-text: with fewer entries some text could not be encoded."""


class TokenizerParams(Section):
    """How text is cut into tokens; everything later reads the result from tokenizer.json."""

    type: Literal["bpe", "char"]
    """`bpe`: byte-level byte-pair encoding, any text can be encoded. `char`: one token per character of the
    corpus; small and slow, for short texts and experiments."""
    vocab_size: Annotated[int, Field(gt=0)]
    """Entries asked for, end-of-text included; at least 257 for `bpe` (256 bytes and end-of-text), ignored for
    `char`. More entries: fewer tokens for the same text, but a larger model. GPT-2 has 50,257."""
    sample_bytes: Annotated[int, Field(gt=0)]
    """Bytes of text, drawn evenly over the corpus, that BPE learns from. It bounds time and memory. From 4 to 8 MB of
    English, held-out text got 0.5 % shorter with 32,000 entries and 0.1 % with 1,024, and each doubling gives less.
    `char` always looks at the whole corpus."""

    @model_validator(mode="after")
    def _bpe_holds_every_byte(self) -> Self:
        if self.type == "bpe" and self.vocab_size < SMALLEST_BPE:
            raise ValueError(
                f"tokenizer.vocab_size ({self.vocab_size}) must be at least {SMALLEST_BPE} for tokenizer.type bpe: "
                "256 bytes and end-of-text."
            )
        return self


class TokenizeParams(Section):
    """Which documents the model never trains on."""

    split: Literal["hash", "tail"]
    """`hash`: whole documents, chosen by a hash of their text, so that no duplicate lies on both sides and a new
    document moves no other. `tail`: the last characters of the corpus, also within a document; for one long text."""
    val_fraction: Annotated[float, Field(gt=0, le=0.5)]
    """Share of the corpus kept for validation: of documents with `hash`, of characters with `tail`."""
