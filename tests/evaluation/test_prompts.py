"""Prompts are rendered, encoded and checked; repetition is measured."""

from pathlib import Path

import pytest

from tests.evaluation.trained import make_tokenizer_file
from tokenmill.core.chat import prompt as as_conversation
from tokenmill.core.errors import UserError
from tokenmill.core.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.evaluation.evaluate import repetition
from tokenmill.evaluation.params import EvaluateParams, PromptParams
from tokenmill.evaluation.prompts import MOST_BYTES, MOST_PROMPTS, chosen_prompts, prepare
from tokenmill.evaluation.results import Question


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    return read_tokenizer(make_tokenizer_file(tmp_path_factory.mktemp("tokenizer"), "char"))


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], 0.0),
        ([1, 2, 3], 0.0),
        ([1, 2, 3, 4, 5], 0.0),
        ([7] * 13, 0.9),  # ten 4-grams, one kind
        ([1, 2, 3, 4] * 2, 0.2),  # five 4-grams, the last is the first
        ([1, 2, 3, 4, 1, 2, 3, 5], 0.0),
    ],
)
def test_repetition_is_the_fraction_of_4_grams_seen_before(ids: list[int], expected: float):
    assert repetition(ids) == pytest.approx(expected)


def test_only_questions_are_put_into_the_template(tokenizer: TextTokenizer):
    entries = [PromptParams(user="one?", expect="two"), PromptParams(text="one?")]
    question, text = prepare(entries, tokenizer, context_length=100)
    assert question.question == Question(prompt="one?", expect="two", left_out="")
    assert text.question == Question(prompt="one?", expect=None, left_out="", kind="text")
    assert question.ids == tokenizer.encode(as_conversation("one?"))
    assert text.ids == tokenizer.encode("one?")
    assert len(question.ids) > len(text.ids)


def test_unknown_characters_are_left_out_and_named(tokenizer: TextTokenizer):
    (prompt,) = prepare([PromptParams(text="o→n§e→?")], tokenizer, context_length=100)
    assert prompt.ids == tokenizer.encode("one?")
    assert prompt.question == Question(prompt="o→n§e→?", expect=None, left_out="§→", kind="text")


def test_prompt_must_fit_the_context(tokenizer: TextTokenizer):
    entries = [PromptParams(text="one"), PromptParams(text="one two")]
    assert len(prepare(entries, tokenizer, context_length=7)) == 2
    with pytest.raises(UserError, match=r"evaluate\.prompts\[1\] has 7 tokens .* model\.context_length \(6\) fit"):
        prepare(entries, tokenizer, context_length=6)
    with pytest.raises(UserError, match=r"evaluate\.prompts\[0\] has 0 tokens that this tokenizer knows"):
        prepare([PromptParams(text="→→")], tokenizer, context_length=6)


# --- which prompts ----------------------------------------------------------------------------------------------------


def chosen(raw: Path, tokenizer: TextTokenizer) -> list[PromptParams]:
    params = EvaluateParams(prompts="auto", max_new_tokens=3, temperature=1.0, top_k=1, seed=0)
    return list(chosen_prompts(params, raw, raw, tokenizer, context_length=9))


def write_prompts(folder: Path, text: str) -> Path:
    (folder / "prompts.yaml").write_text(text)
    return folder


def test_auto_takes_the_prompts_beside_the_raw_text(tmp_path: Path, tokenizer: TextTokenizer):
    raw = write_prompts(tmp_path, "prompts:\n- {user: one?, expect: two, mark: held_out}\n- text: one\n")
    assert chosen(raw, tokenizer) == [
        PromptParams(user="one?", expect="two", mark="held_out"),
        PromptParams(text="one"),
    ]


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        ("- user: one?\n", "must hold sections"),
        ("prompts: [{user: a, text: b}]", "either `user` or `text`"),
        ("prompts: [{usr: a}]", r"prompts\.0\.usr"),
        ("prompts: [", "not valid YAML"),
        ("prompts: &a [*a]", "more than"),
        ("prompts: [" + "{text: a}," * (MOST_PROMPTS + 1) + "]", f"at most {MOST_PROMPTS:,}"),
        ("#" * (MOST_BYTES + 1), f"may have {MOST_BYTES:,}"),
    ],
)
def test_unusable_prompts_beside_the_text_are_refused(
    tmp_path: Path, tokenizer: TextTokenizer, content: str, refusal: str
):
    with pytest.raises(UserError, match=refusal) as refused:
        chosen(write_prompts(tmp_path, content), tokenizer)
    assert "prompts.yaml" in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_prompts_from_outside_the_raw_text_are_refused(tmp_path: Path, tokenizer: TextTokenizer):
    outside = write_prompts(tmp_path, "prompts: [{text: one}]") / "prompts.yaml"
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "prompts.yaml").symlink_to(outside)
    with pytest.raises(UserError, match=r"is a link out of data\.raw"):
        chosen(raw, tokenizer)
