"""A tokenizer, tokens and a model of a few words, made by the pipeline's own functions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tests.tokens.clean_text import write_clean
from tests.tokens.packing import pack_here
from tests.training.tiny import merged, run
from tokenmill.formats.chat import render_chat
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer
from tokenmill.tokens.unpack import unpack

ANSWER = "one two"
TEXTS = [render_chat([("user", "count?"), ("assistant", ANSWER)])] * 200


def make_tokenizer_file(
    folder: Path, kind: Literal["bpe", "char"], texts: Sequence[str] = TEXTS
) -> Path:
    train_tokenizer(
        write_clean(folder / "clean", texts),
        folder / "tokenizer.json",
        TokenizerParams(type=kind, vocab_size=280, sample_bytes=10**6),
    )
    return folder / "tokenizer.json"


def train_a_model(folder: Path) -> None:
    """data/ and models/ of a short training that learns its one answer."""
    file = make_tokenizer_file(folder, "char")
    pack_here(
        folder / "clean", file, folder / "packed", TokenizeParams(split="tail", val_fraction=0.2)
    )
    unpack(folder / "packed", folder / "tokens")
    shape = merged({}, {"context_length": 64, "n_embd": 32})
    run(
        folder / "tokens",
        folder / "model",
        model=shape,
        learning_rate=0.02,
        optimizer="muon",
        epochs=2,
    )
