"""A writer answers, continues and converses, with a model that learned one answer."""

import dataclasses
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from tests.evaluation.trained import ANSWER, make_tokenizer_file, train_a_model
from tokenmill.core.errors import UserError
from tokenmill.evaluation.evaluate import answer
from tokenmill.evaluation.prompts import EvaluateParams, PromptParams, encode_prompts
from tokenmill.evaluation.sampling import Sampling
from tokenmill.formats.chat import Document
from tokenmill.runs.find import FoundModel
from tokenmill.runs.writer import Writer

pytestmark = pytest.mark.slow
LIKELIEST = Sampling(max_new_tokens=12)
DRAWN = Sampling(max_new_tokens=30, temperature=2.0, seed=4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> FoundModel:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train_a_model(folder)
    return FoundModel("epoch 2", folder / "model/epoch-2", folder / "tokenizer.json")


@pytest.fixture(scope="module")
def writer(trained: FoundModel) -> Writer:
    return Writer.load(trained, device="cpu")


def test_writer_answers_as_the_evaluation_does(writer: Writer):
    prompts = [PromptParams(user="count?")]
    params = EvaluateParams(prompts=prompts, max_new_tokens=30, temperature=2.0, top_k=7, seed=4)
    (prompt,) = encode_prompts(prompts, writer.tokenizer, context_length=64, mode="none")
    expected = answer(writer.model, writer.tokenizer, prompt, params)
    drawn = dataclasses.replace(DRAWN, top_k=7)
    assert expected.greedy.startswith(ANSWER)
    assert expected.sampled != expected.greedy
    likeliest = dataclasses.replace(LIKELIEST, max_new_tokens=30)
    for sampling, text in ((likeliest, expected.greedy), (drawn, expected.sampled)):
        stream = writer.stream("count?", sampling, chat=True)
        assert "".join(stream) == text.strip()
        assert stream.tokens > 0 < stream.seconds


def test_several_answers_are_those_of_successive_seeds(writer: Writer):
    together = ["".join(stream) for stream in writer.several("one", DRAWN, 3, chat=False)]
    seeds = [dataclasses.replace(DRAWN, seed=DRAWN.seed + n) for n in range(3)]
    assert together == ["".join(writer.stream("one", how, chat=False)) for how in seeds]
    assert len(set(together)) == 3


def test_concurrent_users_get_the_answers_they_get_alone(writer: Writer):
    hows = [dataclasses.replace(DRAWN, seed=seed) for seed in range(12)]

    def write(how: Sampling) -> str:
        return "".join(writer.stream("one", how, chat=False))

    alone = list(map(write, hows))
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(write, hows)) == alone
    assert len(set(alone)) > 6


def test_unknown_characters_are_left_out_and_named(writer: Writer):
    stream = writer.stream("o→ne", LIKELIEST, chat=False)
    assert stream.notes == ["The tokenizer does not know '→'; left out."]
    assert "".join(stream) == "".join(writer.stream("one", LIKELIEST, chat=False))


def test_long_prompt_is_cut_to_its_end(writer: Writer):
    long = writer.stream("two" * 40 + "one" * 30, LIKELIEST, chat=False)
    assert long.notes == ["The prompt has 210 tokens; the model sees the last 64."]
    assert "".join(long) == "".join(writer.stream(("one" * 30)[-64:], LIKELIEST, chat=False))


@pytest.mark.parametrize("prompt", ["", "→", "\ud800"])
def test_empty_prompt_becomes_end_of_text(writer: Writer, prompt: str):
    writer_ids, _ = writer._encode(Document(prompt))
    assert writer_ids == [writer.tokenizer.eot_id]
    assert "".join(writer.stream(prompt, LIKELIEST, chat=False))


def test_oldest_turns_are_left_out_where_they_do_not_fit(writer: Writer):
    turns = [
        {"role": role, "content": "one two " * 3}
        for _ in range(5)
        for role in ("user", "assistant")
    ]
    question = {"role": "user", "content": "count?"}
    stream = writer.reply([*turns, question], LIKELIEST)
    assert re.findall(r"\d+", stream.notes[0]) == ["10", "11", "32"]
    assert "".join(stream) == "".join(writer.stream("count?", LIKELIEST, chat=True))
    assert writer.reply([question], LIKELIEST).notes == []


def test_each_turn_of_a_long_conversation_is_read_once(writer: Writer):
    """And of those that do not fit, only the newest."""
    turns = [{"role": "user", "content": "one two"}] * 1000
    encode = Writer._encode
    with mock.patch.object(Writer, "_encode", autospec=True, side_effect=encode) as called:
        ids, notes = writer._conversation(turns)
    assert len(ids) <= 32
    assert called.call_count <= 2 + len(turns) - int(re.findall(r"\d+", notes[0])[0])


def test_answer_ends_before_the_next_turn(writer: Writer):
    text = "".join(
        writer.stream("count?", dataclasses.replace(LIKELIEST, max_new_tokens=60), chat=True)
    )
    assert "User:" not in text
    assert text == text.strip()


def test_foreign_tokenizer_is_refused(trained: FoundModel, tmp_path: Path):
    other = dataclasses.replace(trained, tokenizer=make_tokenizer_file(tmp_path, "bpe"))
    with pytest.raises(UserError, match=r"tokenizer .*tokenizer\.json"):
        Writer.load(other, device="cpu")
    folder = tmp_path / "alone"
    folder.mkdir()
    for file in trained.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    with pytest.raises(UserError, match=r"15 tokens, .* 2\d\d"):
        Writer.load(dataclasses.replace(other, folder=folder), device="cpu")
