import pytest

from tokenmill.data.record_text import join, text_of
from tokenmill.formats.tokenizer import chat_prompt, render_chat

HI = "User: Hi\nAssistant: Ho"


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
        ({"instruction": "Add", "input": "1 1", "output": "2"}, "User: Add\n1 1\nAssistant: 2"),
        ({"instruction": "Hi", "output": None}, ""),
        ({"prompt": "Hi", "completion": "Ho"}, HI),
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
        ({"question": "Hi", "context": "C", "answer": "Ho"}, "User: Hi\nC\nAssistant: Ho"),
        ({"instruction": "Hi", "context": {"no": "text"}, "response": "Ho"}, None),
        ({"title": "T", "mapping": EXPORTED, "current_node": "d"}, HI),
        ({"mapping": EXPORTED, "current_node": "c"}, "User: Hi"),
        (
            {
                "mapping": {"a": 5, "b": {"message": {"author": 5}, "parent": "b"}},
                "current_node": "b",
            },
            "",
        ),
        ({"mapping": {}, "current_node": ["a"]}, ""),
        ({"messages": ["no roles"]}, None),
        ({"title": "x"}, None),
        ({"text": ["x"]}, None),
        (5, None),
        (None, None),
    ],
)
def test_the_usual_shapes(record, text):
    assert text_of(record) == text


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


def test_the_template():
    assert (
        render_chat([("system", "Be brief."), ("human", " Hi "), ("assistant", "Ho")])
        == "System: Be brief.\n" + HI
    )
    assert render_chat([]) == ""
    assert render_chat([("user", "Hi"), ("assistant", "Ho")]).startswith(chat_prompt("Hi"))
