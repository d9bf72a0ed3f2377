"""A tiny model, trained for real, measured at every epoch, and beside its base."""

import itertools
import json
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evaluation.trained import ANSWER, make_tokenizer_file, train_a_model
from tests.tokens.clean_text import write_clean
from tests.tokens.packing import pack_here
from tokenmill.core.errors import UserError
from tokenmill.evaluation.evaluate import HeldOutAnswers, ask_held_out, evaluate
from tokenmill.evaluation.prompts import EvaluateSections
from tokenmill.evaluation.results import Evaluation
from tokenmill.formats.chat import TURN_END, Document, render_chat
from tokenmill.formats.records import rounded
from tokenmill.formats.token_file import read_metadata
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.manifest import MANIFEST
from tokenmill.model.sequences import token_losses
from tokenmill.reports import page
from tokenmill.tokens.params import TokenizeParams
from tokenmill.tokens.unpack import unpack

CHAT = render_chat(
    [("user", "count?"), ("assistant", "two one"), ("user", "count?"), ("assistant", "one")]
)
PARAMS = {
    "prompts": [{"user": "count?", "expect": ANSWER, "mark": "seen"}, {"text": "one"}],
    "max_new_tokens": 30,
    "temperature": 0.8,
    "top_k": 5,
    "seed": 0,
}


def sections(raw: Path, **changes: Any) -> EvaluateSections:
    """The parameters that evaluation reads, with the raw text in a folder."""
    return EvaluateSections.model_validate(
        {
            "clean": {"mode": "balanced"},
            "data": {"raw": str(raw)},
            "evaluate": PARAMS | changes,
            "runtime": {"device": "cpu"},
        }
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two epochs, `model`, and one with the first of them, `base`."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train_a_model(folder)
    shutil.copytree(folder / "model", folder / "base")
    file = folder / "base" / MANIFEST
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"epochs": 1, "weights": content["weights"][:1]}))
    return folder


def measured(folder: Path, **changes: Any) -> Evaluation:
    evaluation, _ = evaluate(
        models=folder / "model",
        tokens=folder / "tokens",
        tokenizer_file=changes.pop("tokenizer_file", folder / "tokenizer.json"),
        sections=sections(folder / "raw", **changes),
    )
    return evaluation


def test_every_epoch_is_measured(made: Path):
    evaluation = measured(made)
    assert [result.epoch for result in evaluation.epochs] == [1, 2]
    last = evaluation.epochs[-1]
    assert last.answers[0].greedy == ANSWER
    assert [a.found for a in last.answers] == [True, None]
    assert evaluation.metrics(last)["seen_right"] == 1.0
    assert last.val_loss < evaluation.epochs[0].val_loss
    assert "✓" in page.render("samples.md", evaluation=evaluation)


def test_an_answer_ends_with_its_turn(made: Path, monkeypatch: pytest.MonkeyPatch):
    """And a continued text, which may be a conversation, does not."""
    written = read_tokenizer(made / "tokenizer.json").encode_document(
        Document(f"one{TURN_END}{render_chat([('user', 'two')])}")
    )

    def write(*_: object, ends: Collection[int], **__: object) -> Iterator[int]:
        return itertools.takewhile(lambda token: token not in ends, written)

    monkeypatch.setattr("tokenmill.evaluation.evaluate.generate", write)
    prompts = [{"user": "count?", "expect": "two"}, {"text": "one", "expect": "two"}]
    answers = measured(made, prompts=prompts).epochs[0].answers
    assert [(answer.greedy, answer.found) for answer in answers] == [
        ("one", False),
        ("one\nUser: two", True),
    ]


def test_losses_are_those_that_training_measured(made: Path):
    state = json.loads(next((made / "model" / "resume").glob("*/state.json")).read_text())["state"]
    evaluation = measured(made)
    for row, result in zip(state["epochs"], evaluation.epochs, strict=True):
        metrics = evaluation.metrics(result)
        assert result.val_loss == pytest.approx(row["val_loss"], rel=1e-6)
        assert metrics["bits_per_byte"] == pytest.approx(row["val_bits_per_byte"], rel=1e-5)
        assert metrics["perplexity"] == pytest.approx(row["val_perplexity"], rel=1e-5)
        assert metrics["overfit"] == rounded(result.val_loss - result.train_loss)


def test_of_a_book_only_the_beginning_is_measured(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The training text is one document, a hundred times as long as the validation text."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "tokens")
    clean = write_clean(tmp_path / "book", ["one two " * 1000, "one two " * 10])
    split = TokenizeParams(split="tail", val_fraction=0.01)
    pack_here(clean, tmp_path / "tokenizer.json", tmp_path / "packed", split)
    unpack(tmp_path / "packed", tmp_path / "tokens")
    counts = list[int]()

    def counted(*given: Any, **how: Any) -> np.ndarray:
        losses = token_losses(*given, **how)
        counts.append(len(losses))
        return losses

    monkeypatch.setattr("tokenmill.evaluation.evaluate.token_losses", counted)
    measured(tmp_path)
    val = read_metadata(tmp_path / "tokens").val.tokens
    assert counts == [2 * val + 1, val] * 2


def test_same_model_gives_the_same_results(made: Path):
    first, second = (measured(made).model_dump_json() for _ in range(2))
    assert first == second
    content = json.loads(first)
    assert content["questions"][0] == {
        "prompt": "count?",
        "expect": ANSWER,
        "left_out": "",
        "kind": "user",
        "mark": "seen",
        "truth": None,
    }
    assert [epoch["epoch"] for epoch in content["epochs"]] == [1, 2]


def test_auto_asks_what_the_held_out_text_asks(made: Path):
    evaluation = measured(made, prompts="auto")
    assert {
        (question.prompt, question.kind, question.truth) for question in evaluation.questions
    } == {("count?", "user", ANSWER)}
    assert evaluation.metrics(evaluation.epochs[-1]).keys() == {
        "perplexity",
        "bits_per_byte",
        "overfit",
        "repetition",
    }


def test_foreign_tokenizer_is_refused(made: Path, tmp_path: Path):
    other = make_tokenizer_file(tmp_path, "bpe")
    with pytest.raises(UserError, match=r"\w{12}\) .*tokenizer\.json \(\w{12}\)"):
        measured(made, tokenizer_file=other)


def test_tokens_of_a_foreign_tokenizer_are_refused(made: Path, tmp_path: Path):
    folder = tmp_path / "made"
    shutil.copytree(made, folder)
    path = folder / "tokens" / "metadata.json"
    content = json.loads(path.read_text()) | {"tokenizer_sha256": "f" * 64}
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"tokenizer .*/tokens \(f{12}\)"):
        measured(folder)


def test_missing_and_damaged_models_are_named(made: Path, tmp_path: Path):
    folder = tmp_path / "made"
    shutil.copytree(made, folder)
    (folder / "model" / "epoch-2" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"epoch-2/model\.safetensors"):
        measured(folder)
    path = folder / "model" / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"epochs": "two"}))
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        measured(folder)
    path.write_text(json.dumps(content | {"format_version": 9}))
    with pytest.raises(UserError, match=r"manifest\.json .*format_version"):
        measured(folder)
    path.unlink()
    with pytest.raises(UserError, match=r"manifest\.json is missing"):
        measured(folder)


def asked(
    folder: Path, chats: list[Document], tokenizer_file: Path | None = None
) -> list[HeldOutAnswers]:
    return ask_held_out(
        chats,
        base=folder / "base",
        tuned=folder / "model",
        tokenizer_file=tokenizer_file or folder / "tokenizer.json",
        sections=sections(folder / "raw"),
    )


def test_base_and_tuned_answer_the_question_of_a_chat(made: Path):
    first, second = (result.answers[0].greedy for result in measured(made).epochs)
    [found] = asked(made, [CHAT])
    assert (found.question.prompt, found.question.truth) == ("count?", "two one")
    assert (found.before.greedy, found.after.greedy) == (first, second)
    assert first != second == ANSWER


def test_what_is_no_chat_is_not_asked(made: Path):
    assert asked(made, [Document("one two"), render_chat([("assistant", "one")])]) == []


def test_chat_that_the_assistant_opens_is_asked(made: Path):
    [found] = asked(
        made, [render_chat([("assistant", "one"), ("user", "count?"), ("assistant", "two")])]
    )
    assert found.question.prompt == "Assistant: one\nUser: count?\nAssistant:"
    assert (found.question.kind, found.question.truth) == ("text", "two")


def test_other_tokenizer_is_refused(made: Path, tmp_path: Path):
    with pytest.raises(UserError, match="another tokenizer"):
        asked(made, [CHAT], make_tokenizer_file(tmp_path, "bpe"))
