"""The corpus as a sequence of conversations, and as a file of JSON lines.

A conversation that was already said is drawn again, so that nearly all differ as text. One in a hundred is a
deliberate repeat and fewer are spoiled: work for the cleaning stage. The first conversations do not depend on
how many are asked for.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from tokenmill import files
from tokenmill.sample import draw
from tokenmill.sample.blemishes import spoil
from tokenmill.sample.conversation import Conversation, draw_conversation
from tokenmill.sample.params import SampleParams

REPEAT_EVERY = 100
"""On average, one conversation in so many repeats an earlier one."""

SPOIL_EVERY = 150
"""On average, one conversation in so many is spoiled."""

TRIES = 50
"""How often a conversation that was already said is drawn again before it is accepted."""


def conversations(*, seed: int, count: int) -> Iterator[Conversation]:
    """Yield `count` conversations; the same seed always gives the same ones, in the same order."""
    rng = random.Random(seed)
    earlier: list[Conversation] = []
    seen: set[Conversation] = set()
    for _ in range(count):
        if earlier and draw.below(rng, REPEAT_EVERY) == 0:
            yield draw.uniform(rng, earlier)
            continue
        conversation = _unseen(rng, seen)
        seen.add(conversation)
        earlier.append(conversation)
        yield spoil(rng, conversation) if draw.below(rng, SPOIL_EVERY) == 0 else conversation


def write_sample(path: Path, params: SampleParams) -> None:
    """Write the corpus to `path`, one conversation per line: `{"messages": [{"role": …, "content": …}, …]}`."""
    with files.write_atomic(path) as file:
        for conversation in conversations(seed=params.seed, count=params.conversations):
            file.write(json_line(conversation))


def json_line(conversation: Conversation) -> bytes:
    """A conversation as one line of UTF-8 JSON, with its line end; roles alternate, the user first."""
    messages = [
        {"role": role, "content": content}
        for exchange in conversation
        for role, content in zip(("user", "assistant"), exchange, strict=True)
    ]
    return json.dumps({"messages": messages}, ensure_ascii=False).encode() + b"\n"


def _unseen(rng: random.Random, seen: set[Conversation]) -> Conversation:
    """A conversation that is not in `seen`, unless there seem to be no more."""
    conversation = draw_conversation(rng)
    for _ in range(TRIES):
        if conversation not in seen:
            break
        conversation = draw_conversation(rng)
    return conversation
