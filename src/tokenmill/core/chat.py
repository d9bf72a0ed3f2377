"""The one template that conversations are written in.

    System: You are terse.
    User: What is the capital of France?
    Assistant: The capital of France is Paris.

One turn after the other, joined by a line break, each under the name of its role. A model that was trained
on it answers when it is given `prompt(question)`.
"""

from collections.abc import Iterable

_NAMES = {
    "system": "System",
    "developer": "System",
    "user": "User",
    "human": "User",
    "prompter": "User",
    "assistant": "Assistant",
    "gpt": "Assistant",
    "chatgpt": "Assistant",
    "bot": "Assistant",
    "model": "Assistant",
}


def render(messages: Iterable[tuple[str, str]]) -> str:
    r"""A conversation of (role, content) as text; empty if there is no turn or an assistant's turn is empty.

    Example:
        >>> render([("human", "Hi!"), ("gpt", "Hello.")])
        'User: Hi!\nAssistant: Hello.'
    """
    turns = []
    for role, content in messages:
        name = _NAMES.get(role.lower(), role.capitalize())
        content = content.strip()  # noqa: PLW2901
        if content:
            turns.append(f"{name}: {content}")
        elif name == "Assistant":
            return ""
    return "\n".join(turns)


def prompt(user: str) -> str:
    r"""What a model is given so that it answers `user`.

    Example:
        >>> prompt("What is the capital of France?")
        'User: What is the capital of France?\nAssistant:'
    """
    return f"User: {user}\nAssistant:"
