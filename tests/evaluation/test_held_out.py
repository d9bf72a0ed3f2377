"""Questions of held-out chats: base and fine-tuned model are asked the same, each with its newest epoch."""

import json
import shutil
from pathlib import Path

import pytest

from tests.evaluation.test_evaluate import PARAMS
from tests.evaluation.trained import ANSWER, make_tokenizer_file, train_a_model
from tokenmill.core.chat import render
from tokenmill.core.errors import UserError
from tokenmill.evaluation.evaluate import HeldOutAnswers, ask_held_out, evaluate
from tokenmill.evaluation.params import EvaluateParams
from tokenmill.model.manifest import MANIFEST

CHAT = render([("user", "count?"), ("assistant", "two one"), ("user", "count?"), ("assistant", "one")])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two epochs, `model`, and one with the first of them, `base`."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DVC_ROOT", str(folder))
        train_a_model(folder)
    shutil.copytree(folder / "model", folder / "base")
    file = folder / "base" / MANIFEST
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"epochs": 1, "weights": content["weights"][:1]}))
    return folder


def asked(folder: Path, chats: list[str], tokenizer_file: Path | None = None) -> list[HeldOutAnswers]:
    return ask_held_out(
        chats,
        base=folder / "base",
        tuned=folder / "model",
        tokenizer_file=tokenizer_file or folder / "tokenizer.json",
        params=EvaluateParams.model_validate(PARAMS),
        device="cpu",
    )


def test_base_and_tuned_answer_the_question_of_a_chat(made: Path):
    evaluation = evaluate(
        models=made / "model",
        tokens=made / "tokens",
        tokenizer_file=made / "tokenizer.json",
        raw=made / "raw",
        params=EvaluateParams.model_validate(PARAMS),
        device="cpu",
    )
    first, second = (result.answers[0].greedy for result in evaluation.epochs)
    [found] = asked(made, [CHAT])
    assert (found.question.prompt, found.question.truth) == ("count?", "two one")
    assert (found.before.greedy, found.after.greedy) == (first, second)
    assert first != second == ANSWER


def test_what_is_no_chat_is_not_asked(made: Path):
    assert asked(made, ["one two", "Assistant: one"]) == []


def test_chat_that_the_assistant_opens_is_asked(made: Path):
    [found] = asked(made, [render([("assistant", "one"), ("user", "count?"), ("assistant", "two")])])
    assert found.question.prompt == "Assistant: one\nUser: count?\nAssistant:"
    assert (found.question.kind, found.question.truth) == ("text", "two")


def test_other_tokenizer_is_refused(made: Path, tmp_path: Path):
    with pytest.raises(UserError, match="another tokenizer"):
        asked(made, [CHAT], make_tokenizer_file(tmp_path, "bpe"))
