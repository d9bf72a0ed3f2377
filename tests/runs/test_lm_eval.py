"""The tasks in docs/lm-eval read the records of the built-in corpus; the harness itself is not
installed here."""

import jinja2
import pytest
import yaml

from tests.imports import ROOT
from tokenmill.formats.chat import TURN_END, chat_prompt, render_chat, spelled
from tokenmill.sample.generator import conversations

TASKS = {path.stem: yaml.safe_load(path.read_text()) for path in ROOT.glob("docs/lm-eval/*.yaml")}
TURNS = [
    turn
    for question, answer in max(conversations(seed=0, count=50), key=len)
    for turn in (("user", question), ("assistant", answer))
]
RECORD = {"messages": [{"role": role, "content": content} for role, content in TURNS]}


def filled(task: str, field: str) -> str:
    return jinja2.Template(TASKS[task][field]).render(RECORD)


def test_text_is_that_of_training():
    assert len(TURNS) > 2
    assert filled("sample_text", "doc_to_target") == spelled(render_chat(TURNS))


def test_answers_are_asked_as_a_chat():
    question = TURNS[0][1]
    answer = TURNS[1][1]
    asked = chat_prompt([("user", filled("sample_answers", "doc_to_text"))])
    answered = asked + filled("sample_answers", "doc_to_target") + TURN_END
    assert answered == render_chat([("user", question), ("assistant", answer)])


@pytest.mark.parametrize("name", TASKS)
def test_tasks_are_named_by_their_files(name: str):
    assert TASKS[name]["task"] == name
