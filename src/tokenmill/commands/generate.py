"""`tokenmill generate`: one prompt answered, several times if asked for; lines of a pipe; or a chat.

Answers go to stdout; what is said about them goes to stderr.
"""

import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tokenmill.commands.asking import evaluate_params, sampling_values
from tokenmill.commands.chat import chat
from tokenmill.core.errors import UserError
from tokenmill.display.writing import rate, show, tell
from tokenmill.model.build import parameter_count
from tokenmill.model.sampler import Sampling
from tokenmill.models.find import find
from tokenmill.models.writer import Writer

SMALL = 4_000_000
"""Up to so many parameters one core is quicker than several that wait for each other at every product."""


def run(
    root: Path,
    *,
    question: str | None,
    text: str | None,
    where: Mapping[str, Any],
    how: Mapping[str, Any],
    samples: int,
) -> None:
    """Answer `question`, continue `text`, or with neither answer what comes from stdin.

    Args:
        root: of the project.
        question: put into the conversation template.
        text: continued as it stands.
        where: the arguments of `find`.
        how: values for `Sampling` other than those of params.yaml.
        samples: answers to each prompt.

    Raises:
        UserError: both prompts are given, a value is wrong, or there is no such model.
    """
    if question is not None and text is not None:
        raise UserError("give either a question or --text, not both.")
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sampling = Sampling(**sampling_values(evaluate_params(root)) | dict(how))
    checkpoint = find(root, **where)
    writer = Writer.load(checkpoint)
    if parameter_count(writer.model.config) <= SMALL and writer.model.device.type == "cpu":
        torch.set_num_threads(1)
    prompt = question if text is None else text
    if prompt is not None:
        _answer(writer, prompt, sampling, chat=text is None, samples=samples)
    elif sys.stdin.isatty():
        if samples > 1:
            raise UserError("--samples needs a question, --text, or lines from a pipe.")
        chat(writer, sampling, name=checkpoint.name)
    else:
        for line in filter(None, map(str.strip, sys.stdin)):
            _answer(writer, line, sampling, chat=True, samples=samples)


def _answer(writer: Writer, prompt: str, sampling: Sampling, *, chat: bool, samples: int) -> None:
    """Write the answer as it comes, or several of them."""
    if samples == 1:
        show(writer.stream(prompt, sampling, chat=chat))
        return
    streams = writer.several(prompt, sampling, samples, chat=chat)
    tell("\n".join(streams[0].notes))
    for stream in streams:
        print("".join(stream))
    tell(rate(sum(stream.tokens for stream in streams), max(stream.seconds for stream in streams)))
