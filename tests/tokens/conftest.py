"""A corpus of prose, made once; and a maker of others."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tokens.clean_text import PROSE, write_clean
from tests.tokens.packing import encoders_chosen_once
from tokenmill.tokens.params import TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer


@pytest.fixture(scope="module", autouse=True)
def compared_once() -> Iterator[None]:
    with encoders_chosen_once():
        yield


@pytest.fixture
def corpus(tmp_path: Path) -> Callable[..., Path]:
    count = iter(range(1000))
    return lambda texts, **options: write_clean(tmp_path / f"clean-{next(count)}", texts, **options)


@pytest.fixture(scope="session")
def prose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clean(
        tmp_path_factory.mktemp("prose"), PROSE, shard_bytes=3000, row_group_bytes=1500
    )


@pytest.fixture(scope="session")
def bpe_file(prose: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bpe") / "tokenizer.json"
    train_tokenizer(prose, file, TokenizerParams(type="bpe", vocab_size=400, sample_bytes=10**6))
    return file


@pytest.fixture(scope="session")
def char_file(prose: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("char") / "tokenizer.json"
    train_tokenizer(prose, file, TokenizerParams(type="char", vocab_size=1, sample_bytes=1))
    return file
