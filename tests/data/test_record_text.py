from collections import Counter
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
        (
            {
                "mapping": {"a": node("", "user", {"type": "tool_result", "content": "4"}, "So?")},
                "current_node": "a",
            },
            render_chat([("tool", "4"), ("user", "So?")]),
        ),
        ({"messages": ["no roles"]}, None),
        ({"title": "x"}, None),
        ({"text": ["x"]}, None),
        (5, None),
        (None, None),
    ],
)
def test_the_usual_shapes(record, text):
    assert text_of(record, Counter()) == text


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (
            {"content": None, "tool_calls": [{"id": "1", "é": [Decimal("0.5")]}]},
            '[{"id":"1","é":[0.5]}]',
        ),
        ({"content": "\n", "function_call": {"n": 10**30}}, '{"n":1' + "0" * 30 + "}"),
        ({"tool_calls": [{"id": "1"}], "function_call": None}, '[{"id":"1"}]'),
        ({"content": " I ask.\n", "tool_calls": [{"id": "1"}]}, 'I ask.\n[{"id":"1"}]'),
        ({"content": {"no": "text"}, "tool_calls": [{"id": "1"}]}, None),
        ({"content": None, "tool_calls": []}, ""),
    ],
)
def test_calls_of_tools_are_content(answer, content):
    turns = [{"role": "assistant"} | answer, {"role": "tool", "content": "4"}]
    told = content and render_chat([("assistant", content), ("tool", "4")])
    assert text_of({"messages": turns}, Counter()) == told


BRIEF = render_chat([("system", "Be brief."), ("user", "Hi"), ("assistant", "Ho")])

MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"system": "Be brief.", "instruction": "Hi", "output": "Ho"}, BRIEF),
        ({"system_prompt": " Be brief.", "question": "Hi", "response": "Ho"}, BRIEF),
        ({"system": "Be brief.", "messages": MESSAGES}, BRIEF),
        ({"system": [{"type": "text", "text": "Be brief."}], "messages": MESSAGES}, BRIEF),
        ({"system": "Be brief.", "prompt": MESSAGES[:1], "completion": MESSAGES[1:]}, BRIEF),
        (
            {
                "system": "Be brief.",
                "messages": [{"role": "developer", "content": "Be brief. "}, *MESSAGES],
            },
            BRIEF,
        ),
        (
            {"system": "A", "messages": [{"role": "system", "content": "B"}, *MESSAGES]},
            render_chat([("system", "A"), ("system", "B"), ("user", "Hi"), ("assistant", "Ho")]),
        ),
        ({"system": None, "instruction": "Hi", "output": "Ho"}, HI),
        ({"system": " ", "messages": MESSAGES}, HI),
        ({"system": "Be brief.", "messages": []}, ""),
        ({"system": "Be brief.", "text": "a"}, "a"),
        ({"system": "Be brief.", "title": "a"}, None),
        ({"instruction": "Hi", "output": "Ho", "history": []}, HI),
    ],
)
def test_what_stands_beside_a_conversation(record, text):
    unread = Counter[str]()
    assert text_of(record, unread) == text
    assert not unread


def test_messages_stored_as_lists():
    """As `datasets` stores a `Sequence` of messages."""
    columns = {"role": ["user", "assistant"], "content": ["Hi", "Ho"], "name": None}
    assert text_of({"messages": columns}, Counter()) == HI
    sharegpt = {"from": ["human", "gpt"], "value": ["Hi", "Ho"]}
    assert text_of({"conversations": sharegpt}, Counter()) == HI
    assert join({"chat": columns}, ["chat"], Counter()) == HI
    assert text_of({"messages": columns | {"content": ["Hi"]}}, Counter()) is None
    assert text_of({"conversation": {"turns": ["Hi"]}, "text": "a"}, Counter()) == "a"


CALL = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}, "text": None}

CALLED = '{"type":"tool_use","id":"1","name":"add","input":{"a":1}}'


@pytest.mark.parametrize(
    ("role", "message", "turns"),
    [
        (
            "assistant",
            {"content": [{"type": "thinking", "thinking": "Hm. "}, {"text": "Ho"}, CALL]},
            [("assistant", f"<think>\nHm.\n</think>\nHo\n{CALLED}")],
        ),
        (
            "user",
            {
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": "4"},
                    {"type": "tool_result", "content": [{"type": "text", "text": "5"}]},
                    {"type": "text", "text": "And?"},
                ]
            },
            [("tool", "4\n5"), ("user", "And?")],
        ),
        (
            "assistant",
            {"content": "Ho", "thinking": "Hm.", "tool_calls": [{"id": "1"}]},
            [("assistant", '<think>\nHm.\n</think>\nHo\n[{"id":"1"}]')],
        ),
        (
            "assistant",
            {"content": "Ho", "reasoning_content": "Hm."},
            [("assistant", "<think>\nHm.\n</think>\nHo")],
        ),
        ("assistant", {"content": "Ho", "thinking": ""}, [("assistant", "Ho")]),
        ("assistant", {"content": [{"refusal": "No."}]}, [("assistant", "No.")]),
    ],
)
def test_thoughts_and_tools_are_text(role, message, turns):
    unread = Counter[str]()
    assert text_of({"messages": [{"role": role} | message]}, unread) == render_chat(turns)
    assert not unread


def test_what_is_no_text_is_counted():
    unread = Counter[str]()
    parts = [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {}}, None, 5]
    asked = {"role": "user", "content": [*parts, {"type": "mine"}, {"type": ["audio"]}]}
    odd = {"tools": [{"name": "add"}], "system": {"no": "text"}, "history": "none"}
    assert text_of({"messages": [asked, MESSAGES[1]]} | odd, unread) == HI
    assert unread == {"image_url": 1, "other": 3, "tools": 1, "system": 1, "history": 1}
    unread.clear()
    assert text_of({"mapping": EXPORTED, "current_node": "d"}, unread) == HI
    assert unread == {"other": 1}


def test_named_columns_are_joined():
    assert join({"title": "T", "body": "B", "n": None}, ["title", "n", "body"], Counter()) == "T\nB"
    assert join({"title": "T"}, ["body"], Counter()) is None
    assert (
        join(
            {"chat": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]},
            ["chat"],
            Counter(),
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
