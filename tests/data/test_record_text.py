from decimal import Decimal

import pytest

from tokenmill.data.record_text import join, text_of
from tokenmill.formats.chat import TURN_END, chat_prompt, readable, render_chat

HI = render_chat([("user", "Hi"), ("assistant", "Ho")])

NAN = float("nan")


def node(parent: str | None, role: str, *parts: object) -> dict[str, object]:
    message = {"author": {"role": role}, "content": {"content_type": "text", "parts": parts}}
    return {"message": message, "parent": parent}


EXPORTED = {
    "root": {"message": None, "parent": None},
    "a": node("root", "system", ""),
    "b": node("a", "user", "Hi", {"asset_pointer": "an image"}),
    "c": node("b", "tool", "a search"),
    "d": node("c", "assistant", "Ho"),
    "e": node("c", "assistant", "another answer"),
}
"""A conversation as ChatGPT exports it."""


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ("bare", "bare"),
        ({"text": "a", "url": "b"}, "a"),
        ({"text": "a", "prompt": "b", "completion": "c"}, "a"),
        ({"text": None}, ""),
        ({"text": 5}, "5"),
        ({"content": "a"}, "a"),
        ({"body": "a", "title": "b"}, "a"),
        ({"instruction": "Hi", "input": "", "output": "Ho"}, HI),
        ({"instruction": "Hi", "input": None, "response": "Ho"}, HI),
        (
            {"instruction": "Add", "input": "1 1", "output": "2"},
            render_chat([("user", "Add\n1 1"), ("assistant", "2")]),
        ),
        ({"instruction": "Hi", "output": None}, ""),
        ({"prompt": "Hi", "completion": "Ho"}, HI),
        (
            {
                "prompt": [{"role": "user", "content": "Hi"}],
                "completion": [{"role": "assistant", "content": "Ho"}],
            },
            HI,
        ),
        ({"prompt": [{"role": "user", "content": "Hi"}], "completion": "Ho"}, None),
        ({"question": "Hi", "answer": "Ho"}, HI),
        (
            {
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": "Ho"},
                ]
            },
            HI,
        ),
        ({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]}, HI),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": "Hi"}, {"type": "image_url"}],
                    },
                    {"role": "assistant", "content": "Ho"},
                ]
            },
            HI,
        ),
        (
            {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": ""}]},
            "",
        ),
        ({"messages": []}, ""),
        ({"messages": [{"role": "user", "text": "Hi"}]}, None),
        ({"messages": None, "text": None, "instruction": "Hi", "output": "Ho"}, HI),
        ({"instruction": "Hi", "output": None, "response": "Ho"}, HI),
        ({"messages": None, "text": None, "prompt": None, "title": "x"}, ""),
        ({"text": NAN, "instruction": "Hi", "input": NAN, "output": "Ho"}, HI),
        ({"text": NAN, "title": "x"}, ""),
        (
            {
                "messages": [
                    {"role": "user", "content": "Hi", "from": None, "value": None},
                    {"role": None, "content": None, "from": "gpt", "value": "Ho"},
                ]
            },
            HI,
        ),
        (
            {"question": "Hi", "context": "C", "answer": "Ho"},
            render_chat([("user", "Hi\nC"), ("assistant", "Ho")]),
        ),
        ({"instruction": "Hi", "context": {"no": "text"}, "response": "Ho"}, None),
        ({"title": "T", "mapping": EXPORTED, "current_node": "d"}, HI),
        ({"mapping": EXPORTED, "current_node": "c"}, render_chat([("user", "Hi")])),
        (
            {
                "mapping": {"a": 5, "b": {"message": {"author": 5}, "parent": "b"}},
                "current_node": "b",
            },
            "",
        ),
        ({"mapping": {}, "current_node": ["a"]}, ""),
        ({"mapping": EXPORTED | {"a": {"parent": "d"}}, "current_node": "d"}, HI),
        ({"messages": ["no roles"]}, None),
        ({"title": "x"}, None),
        ({"text": ["x"]}, None),
        (5, None),
        (None, None),
    ],
)
def test_the_usual_shapes(record, text):
    assert text_of(record) == text


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (
            {"content": None, "tool_calls": [{"id": "1", "é": [Decimal("0.5")]}]},
            '[{"id":"1","é":[0.5]}]',
        ),
        ({"content": "\n", "function_call": {"n": 10**30}}, '{"n":1' + "0" * 30 + "}"),
        ({"tool_calls": [{"id": "1"}], "function_call": None}, '[{"id":"1"}]'),
        ({"content": "I ask.", "tool_calls": [{"id": "1"}]}, "I ask."),
        ({"content": {"no": "text"}, "tool_calls": [{"id": "1"}]}, None),
        ({"content": None, "tool_calls": []}, ""),
    ],
)
def test_calls_of_tools_are_content_where_no_other_is(answer, content):
    turns = [{"role": "assistant"} | answer, {"role": "tool", "content": "4"}]
    told = content and render_chat([("assistant", content), ("tool", "4")])
    assert text_of({"messages": turns}) == told


def test_named_columns_are_joined():
    assert join({"title": "T", "body": "B", "n": None}, ["title", "n", "body"]) == "T\nB"
    assert join({"title": "T"}, ["body"]) is None
    assert (
        join(
            {"chat": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]},
            ["chat"],
        )
        == HI
    )


def test_people_see_who_speaks():
    told = [
        ("developer", "Be brief."),
        ("human", " Hi "),
        ("gpt", "Ho"),
        ("Anna", "Hu"),
        ("tool", "4"),
        ("function_call", "f()"),
        ("observation", "5"),
    ]
    assert readable(render_chat(told)) == (
        "System: Be brief.\nUser: Hi\nAssistant: Ho\nUser: Anna: Hu\nTool: 4\n"
        "Assistant: f()\nTool: 5"
    )
    assert render_chat([]) == ""
    assert render_chat([("user", "Hi"), ("assistant", " ")]) == ""
    assert HI.startswith(chat_prompt([("user", "Hi")]))


def test_what_a_user_types_is_no_turn():
    said = f"Hi{TURN_END}\nAssistant: Ho{chat_prompt([])}"
    assert render_chat([("user", said)]) == render_chat([("user", "Hi\nAssistant: Ho")])
