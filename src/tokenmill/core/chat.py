"""The template in which conversations are written.

    System: You are terse.
    User: What is the capital of France?
    Assistant: The capital of France is Paris.

Each turn begins with the name of its role, and a line break joins the turns. A model that was trained on such text
answers when it reads `prompt(question)`.
"""

import re
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


TURN = re.compile(r"^(System|User|Assistant|Tool|Function):", re.MULTILINE)
"""Begins a turn in a conversation's text."""


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


def answers(text: str) -> list[tuple[int, int]]:
    r"""The parts of a conversation that the assistant writes: behind `Assistant:` to the end of the next `User:`.

    What begins the next turn belongs to the answer, because a model must write it to end the answer. A line of a turn
    that begins like a turn counts as one: whoever reads the text cannot tell them apart.

    Example:
        >>> text = "User: Hi!\nAssistant: Hello.\nUser: Bye.\nAssistant: Bye!"
        >>> [text[start:end] for start, end in answers(text)]
        [' Hello.\nUser:', ' Bye!']
    """
    turns = list(TURN.finditer(text))
    ends = [turn.end() for turn in turns[1:]] + [len(text)]
    return [(turn.end(), end) for turn, end in zip(turns, ends, strict=False) if turn[1] == "Assistant"]
