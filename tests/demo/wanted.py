"""What a model should have answered: the same words by the library, without the demo."""

from pathlib import Path
from typing import Any

from tests.demo.served import SAMPLING
from tokenmill.evaluation.generate import Sampling
from tokenmill.runs.find import find
from tokenmill.runs.writer import Writer


def wanted(
    root: Path,
    prompt: str,
    *,
    chat: bool = True,
    changes: dict[str, Any] | None = None,
    **which: Any,
) -> str:
    """The answer of the checkpoint that `which` finds, with the sampling that the page begins
    with."""
    asked: dict[str, Any] = SAMPLING | {"top_p": None} | (changes or {})
    return "".join(Writer.load(find(root, **which)).stream(prompt, Sampling(**asked), chat=chat))
