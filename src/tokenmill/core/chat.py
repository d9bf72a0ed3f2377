"""The template in which conversations are written.

    System: You are terse.
    User: What is the capital of France?
    Assistant: The capital of France is Paris.

Each turn begins with the name of its role, and a line break joins the turns. A model that was trained on such text
answers when it reads `prompt(question)`.
"""

from collections.abc import Iterable

NEXT_TURN = "\nUser:"
"""Ends an answer: the model begins to write the next question itself."""

NAMES = {
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
        name, stripped = NAMES.get(role.lower(), role.capitalize()), content.strip()
        if stripped:
            turns.append(f"{name}: {stripped}")
        elif name == "Assistant":
            return ""
    return "\n".join(turns)


def prompt(user: str) -> str:
    r"""The text that a model continues with its answer to `user`.

    Example:
        >>> prompt("What is the capital of France?")
        'User: What is the capital of France?\nAssistant:'
    """
    return f"User: {user}\nAssistant:"
