"""tokenizer.json gives text back, knows its kind, and refuses damage."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gigatoken
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tokenmill.core.errors import UserError
from tokenmill.formats.tokenizer import (
    END_OF_TEXT,
    TextTokenizer,
    parse_tokenizer,
    read_tokenizer,
    token_bytes,
)
from tokenmill.tokens.encoder import adversarial_texts


@pytest.fixture(scope="module")
def bpe(bpe_file: Path) -> TextTokenizer:
    return read_tokenizer(bpe_file)


@pytest.fixture(scope="module")
def char(char_file: Path) -> TextTokenizer:
    return read_tokenizer(char_file)


def test_kind_size_and_hash_come_from_the_file(
    bpe: TextTokenizer, char: TextTokenizer, bpe_file: Path
) -> None:
    assert (bpe.type, char.type) == ("bpe", "char")
    assert bpe.vocab_size == 400
    assert bpe.sha256 == hashlib.sha256(bpe_file.read_bytes()).hexdigest()
    assert bpe.decode([bpe.eot_id]) == char.decode([char.eot_id]) == END_OF_TEXT


@given(text=st.text())
def test_bpe_gives_any_text_back(text: str, bpe: TextTokenizer) -> None:
    assert bpe.decode(bpe.encode(text)) == text


def test_difficult_text_comes_back_without_end_of_text(bpe: TextTokenizer) -> None:
    for text in adversarial_texts():
        ids = bpe.encode(text)
        assert bpe.decode(ids) == text
        assert bpe.eot_id not in ids


def test_spelled_end_of_text_is_text(bpe: TextTokenizer, char: TextTokenizer) -> None:
    text = f"before{END_OF_TEXT}after"
    assert bpe.eot_id not in bpe.encode(text)
    assert bpe.encode(text) != [*bpe.encode("before"), bpe.eot_id, *bpe.encode("after")]
    known = "".join(set("before<|endoftext|>after") - set(char.unknown(text)))
    assert char.eot_id not in char.encode(known)


def test_characters_are_one_token_each(char: TextTokenizer) -> None:
    text = "naïve café 你好世界 🙂\n"
    assert len(char.encode(text)) == len(text)
    assert char.decode(char.encode(text)) == text


def test_unknown_characters_are_named(bpe: TextTokenizer, char: TextTokenizer) -> None:
    assert char.unknown("Řiver ☃ Ř") == "Ř☃"
    assert bpe.unknown("Řiver ☃ Ř") == ""
    with pytest.raises(UserError, match=r"'Ř' \(U\+0158\), '☃' \(U\+2603\)"):
        char.encode("Řiver ☃ Ř")


def test_gigatoken_reads_the_same_file(bpe: TextTokenizer, bpe_file: Path) -> None:
    other = gigatoken.Tokenizer.from_json(bpe_file.read_bytes())
    assert other.encode("It's the river: 你好 🙂\n\n  12").tolist() == bpe.encode(
        "It's the river: 你好 🙂\n\n  12"
    )
    assert other.vocab_size == bpe.vocab_size


def test_transformers_reads_the_same_file(bpe: TextTokenizer, bpe_file: Path) -> None:
    transformers = pytest.importorskip("transformers")
    other = transformers.PreTrainedTokenizerFast(tokenizer_file=str(bpe_file))
    text = "It's the river: 你好 🙂\n\n  12"
    assert other(text)["input_ids"] == bpe.encode(text)
    assert other.decode(bpe.encode(text), clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: "", "is not a tokenizer"),
        (lambda text: text[: len(text) // 2], "is not a tokenizer"),
        (lambda _: "[]", "is not a tokenizer"),
        (lambda text: _edit(text, added_tokens=[]), r"no special token <\|endoftext\|>"),
        (lambda text: _edit(text, normalizer={"type": "Lowercase"}), "does not cut text as GPT-2"),
        (
            lambda text: _edit(text, pre_tokenizer={"type": "Whitespace"}),
            "does not cut text as GPT-2",
        ),
        (
            lambda text: _edit(text, pre_tokenizer=None, decoder={"type": "Fuse"}),
            "does not cut text as GPT-2",
        ),
        (lambda text: _byte_level(text, use_regex=False), "does not cut text as GPT-2"),
        (lambda text: _byte_level(text, add_prefix_space=True), "does not cut text as GPT-2"),
        (lambda text: _set(text, lambda backend: backend.enable_truncation(9)), "does not cut"),
        (lambda text: _set(text, lambda backend: backend.enable_padding()), "does not cut"),
        (lambda text: _without(text, "pre_tokenizer"), "does not cut text as GPT-2"),
        (lambda text: _without(text, "decoder"), "does not cut text as GPT-2"),
        (lambda text: _renamed(text, "ÿ", "€"), "stands for no bytes"),
        (lambda text: _renamed(text, "ÿ", ""), "stands for no bytes"),
        (lambda text: _edit(text, decoder=None), "does not cut text as GPT-2"),
        (lambda text: _model(text, dropout=0.5), "does not cut text as GPT-2"),
        (lambda text: _model(text, end_of_word_suffix="</w>"), "does not cut text as GPT-2"),
        (lambda text: _model(text, continuing_subword_prefix="##"), "is not a tokenizer"),
        (lambda text: _renamed(text, "ÿ", "ab"), "no token for 1 of the 256 bytes"),
        (lambda text: _added(text, special=False), r"no special token <\|endoftext\|>"),
        (lambda text: _added(text, content="<user>"), "adds '<user>', which is not special"),
    ],
)
def test_damaged_or_foreign_file_is_refused(
    damage, message: str, bpe_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(damage(bpe_file.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_tokenizer(file)


def test_characters_with_spaces_between_them_are_refused(char: TextTokenizer) -> None:
    """Without a decoder their ids would become such a text."""
    with pytest.raises(UserError, match="is no character tokenizer"):
        parse_tokenizer(_edit(char.backend.to_str(), decoder=None).encode(), Path("tokenizer.json"))


def test_keys_may_be_left_to_their_defaults(bpe: TextTokenizer, bpe_file: Path) -> None:
    layout = json.loads(bpe_file.read_text(encoding="utf-8"))
    for part in ("truncation", "padding", "normalizer"):
        del layout[part]
    del layout["pre_tokenizer"]["use_regex"], layout["model"]["type"]
    tokenizer = parse_tokenizer(json.dumps(layout).encode(), bpe_file)
    assert replace(tokenizer, sha256=bpe.sha256) == bpe
    assert tokenizer.encode("It's the river") == bpe.encode("It's the river")


def test_no_special_token_has_bytes(bpe: TextTokenizer, bpe_file: Path) -> None:
    """As of a model whose vocabulary lists one that GPT-2's bytes cannot spell."""
    layout = json.loads(_added(bpe_file.read_text(encoding="utf-8"), "<|end…|>", special=True))
    layout["model"]["vocab"]["<|end…|>"] = bpe.vocab_size
    more = parse_tokenizer(json.dumps(layout).encode(), bpe_file)
    assert token_bytes(more) == [*token_bytes(bpe), b""]


def _renamed(text: str, token: str, other: str) -> str:
    """With a token that no merge uses under another name."""
    content = json.loads(text)
    content["model"]["vocab"][other] = content["model"]["vocab"].pop(token)
    return json.dumps(content)


def _model(text: str, **parts: object) -> str:
    content = json.loads(text)
    return json.dumps(content | {"model": content["model"] | parts})


def _added(text: str, content: str = END_OF_TEXT, *, special: bool = False) -> str:
    """With a token added, or another kind of the same token."""
    layout = json.loads(text)
    token = layout["added_tokens"][0] | {"content": content, "special": special}
    if content == END_OF_TEXT:
        layout["added_tokens"][0] = token
    else:
        number = len(
            layout["model"]["vocab"].keys() | {t["content"] for t in layout["added_tokens"]}
        )
        layout["added_tokens"].append(token | {"id": number})
    return json.dumps(layout)


def _edit(text: str, **parts: object) -> str:
    return json.dumps(json.loads(text) | parts)


def _byte_level(text: str, **options: bool) -> str:
    return _edit(text, pre_tokenizer=json.loads(text)["pre_tokenizer"] | options)


def _set(text: str, change: Callable[[Tokenizer], None]) -> str:
    backend = Tokenizer.from_str(text)
    change(backend)
    return backend.to_str()


def _without(text: str, part: str) -> str:
    layout = json.loads(text)
    del layout[part]
    return json.dumps(layout)


def test_missing_file_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="dvc repro tokenizer"):
        read_tokenizer(tmp_path / "tokenizer.json")
