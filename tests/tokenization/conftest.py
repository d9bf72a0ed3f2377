"""Small clean corpora and tokenizers, made once."""

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest
import xxhash

from tokenmill.core import shards
from tokenmill.tokens.params import TokenizerParams
from tokenmill.tokens.train_tokenizer import make_tokenizer

PROSE = [
    f"Line {i} of the {word} says that it's number {i * 37 % 101}, and the {word} won't repeat.\n\n\n"
    f"    So it goes:    {word}!\n\n\n    And so on.\t\t\n"
    for i, word in enumerate(["river", "mountain", "Müller", "naïve café", "你好世界", "🙂 face", "x = y + 1"] * 12)
]


def write_clean(folder: Path, texts: Sequence[str], *, shard_bytes: int = 10**6, row_group_bytes: int = 10**6) -> Path:
    """A clean corpus as the stage `clean` leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = pl.Series([xxhash.xxh3_64_intdigest(text.encode()) for text in texts], dtype=pl.UInt64)
    frame = pl.DataFrame({"text": pl.Series(texts, dtype=pl.String), "source": ["a.txt"] * len(texts), "id": ids})
    with pytest.MonkeyPatch.context() as patch, shards.Writer(folder, shard_bytes) as writer:
        patch.setattr(shards, "ROW_GROUP_BYTES", row_group_bytes)
        writer.add(frame)
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Callable[..., Path]:
    count = iter(range(1000))
    return lambda texts, **options: write_clean(tmp_path / f"clean-{next(count)}", texts, **options)


@pytest.fixture(scope="session")
def prose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clean(tmp_path_factory.mktemp("prose"), PROSE, shard_bytes=3000, row_group_bytes=700)


@pytest.fixture(scope="session")
def bpe_file(prose: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bpe") / "tokenizer.json"
    make_tokenizer(prose, file, TokenizerParams(type="bpe", vocab_size=400, sample_bytes=10**6))
    return file


@pytest.fixture(scope="session")
def char_file(prose: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("char") / "tokenizer.json"
    make_tokenizer(prose, file, TokenizerParams(type="char", vocab_size=1, sample_bytes=1))
    return file
