"""How many bytes the stages that are to run would write, from the parameters and what is known of the text.

Text that is not cleaned yet is estimated from the size of its files, by what was measured (docs/scale.md).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tokenmill.documents.sources import Source
from tokenmill.model.build import parameter_count
from tokenmill.model.config import ModelConfig
from tokenmill.schema import AllParams
from tokenmill.tokenization.metadata import TokenMetadata
from tokenmill.training.estimate import memory

UNPACKED = {".gz": 3.5, ".zst": 3.5, ".bz2": 4.5, ".xz": 4.5, None: 1.0}
"""Bytes of text for one in such a file, about."""
PARQUET = 0.46
"""Bytes of clean text on the disk for one of text."""
PACKED = 0.35
"""Bytes of packed tokens for one of plain ones."""
BYTES_PER_TOKEN = {"bpe": 3.0, "char": 1.0}
"""Before the tokenizer is known: few, so that the estimate is rather too large."""
CHARACTERS = 256
"""Entries of a character tokenizer that is not there yet."""


@dataclass(frozen=True)
class Needs:
    """Bytes by what is written."""

    parts: dict[str, int]
    cached: int
    """Of them, what lies in DVC's cache as well where it cannot link."""
    estimated: bool
    """From the size of raw files."""

    @property
    def total(self) -> int:
        """Of all parts."""
        return sum(self.parts.values())


def text_bytes(sources: Sequence[Source]) -> int:
    """Of the text in these files, about."""
    return int(sum(source.size * UNPACKED[source.compression] for source in sources))


def vocabulary(params: AllParams, tokens: TokenMetadata | None) -> int:
    """Of the tokenizer that there is, or will be."""
    if tokens is not None:
        return tokens.vocab_size
    return params.tokenizer.vocab_size if params.tokenizer.type == "bpe" else CHARACTERS


def needs(params: AllParams, *, text: int, tokens: TokenMetadata | None, to_run: Collection[str]) -> Needs:
    """What the stages `to_run` write: by the `tokens` where training will see those, else by the bytes of `text`."""
    if tokens is not None:
        plain = 4 * (tokens.train.tokens + tokens.val.tokens)
        text = tokens.train.bytes + tokens.val.bytes
    else:
        plain = int(4 * text / BYTES_PER_TOKEN[params.tokenizer.type])
    weights, checkpoint = model_bytes(params, vocabulary(params, tokens))
    epochs, keep = params.train.epochs * weights, params.runtime.checkpoint.keep
    all_parts = {
        "clean text": ("clean", int(PARQUET * text)),
        "packed tokens": ("tokenize", int(PACKED * plain)),
        "tokens": ("unpack", plain),
        "weights of the epochs": ("train", epochs),
        # Beside those that are kept: the one where the decay began, and the one that is being written.
        "checkpoints": ("train", (keep + 2) * checkpoint),
    }
    parts = {name: count for name, (stage, count) in all_parts.items() if stage in to_run}
    cached = sum(parts.get(name, 0) for name in ("clean text", "packed tokens", "weights of the epochs"))
    cached += 2 * checkpoint if "train" in to_run else 0
    return Needs(parts, cached, estimated=tokens is None)


def model_bytes(params: AllParams, vocab_size: int) -> tuple[int, int]:
    """Bytes of the weights, and of a checkpoint: weights and the optimizer's state, in float32."""
    config = ModelConfig.of(params.model, vocab_size)
    state = memory(config, windows=1, precision="float32", optimizer=params.train.optimizer).optimizer
    weights = 4 * parameter_count(config)
    return weights, weights + state
