"""The measured part of a split: the same documents and bytes whatever made the tokens."""

import json
from pathlib import Path
from typing import Literal

import pytest

from tests.evaluation.trained import make_tokenizer_file
from tests.tokens.packing import pack_here
from tokenmill.core.errors import UserError
from tokenmill.formats.measured import measured_text
from tokenmill.formats.token_file import METADATA_FILE, read_metadata
from tokenmill.formats.tokenizer import END_OF_TEXT, read_tokenizer
from tokenmill.tokens.params import TokenizeParams
from tokenmill.tokens.unpack import unpack

TEXTS = [f"ä text {'of some length ' * (number % 7)}{number}" for number in range(60)]


def made(folder: Path, kind: Literal["bpe", "char"]) -> tuple[Path, Path]:
    """Tokens of TEXTS, half of them to validate with, and their tokenizer."""
    file = make_tokenizer_file(folder, kind, TEXTS)
    pack_here(
        folder / "clean", file, folder / "packed", TokenizeParams(split="hash", val_fraction=0.5)
    )
    unpack(folder / "packed", folder / "tokens")
    return folder / "tokens", file


@pytest.mark.parametrize("at_most", [None, 10**6, 600, 1])
def test_other_tokenizers_are_measured_on_the_same_bytes(tmp_path: Path, at_most: int | None):
    found = dict[str, str]()
    for kind in ("bpe", "char"):
        tokens, file = made(tmp_path / kind, kind)
        part = measured_text(tokens, "val", file, at_most=at_most)
        text = read_tokenizer(file).decode(part.ids.tolist())
        assert text.startswith(END_OF_TEXT)
        assert text.endswith(END_OF_TEXT)
        assert part.bytes == len(text.replace(END_OF_TEXT, "").encode())
        found[kind] = text
    assert found["bpe"] == found["char"]
    whole = read_metadata(tmp_path / "bpe" / "tokens").val.bytes
    longest = max(len(text.encode()) for text in TEXTS)
    measured = len(found["bpe"].replace(END_OF_TEXT, "").encode())
    if at_most in (None, 10**6):
        assert measured == whole
    else:
        assert max(1, at_most - longest) <= measured <= at_most + longest


def test_the_tokenizer_must_be_the_one_that_made_the_tokens(tmp_path: Path):
    tokens, file = made(tmp_path, "char")
    metadata = json.loads((tokens / METADATA_FILE).read_text())
    (tokens / METADATA_FILE).write_text(json.dumps(metadata | {"tokenizer_sha256": "0" * 64}))
    with pytest.raises(UserError, match="tokenizer"):
        measured_text(tokens, "val", file, at_most=1)
