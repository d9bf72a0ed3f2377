"""Which prompts every epoch answers: those in params.yaml, those beside the raw text, or openings of held-out text."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenmill.core.chat import prompt as chat_prompt
from tokenmill.core.errors import UserError
from tokenmill.core.files import refuse_special
from tokenmill.core.params import Section, load
from tokenmill.core.paths import PROMPTS_FILE
from tokenmill.core.tokenizer import TextTokenizer
from tokenmill.evaluation.openings import Opening, openings
from tokenmill.evaluation.params import EvaluateParams, PromptParams
from tokenmill.evaluation.results import Question

MOST_BYTES = 1 << 16
"""A larger file of prompts is refused."""

MOST_PROMPTS = 100
"""More prompts in a file are refused."""


class PromptsFile(Section):
    """The content of `prompts.yaml`."""

    prompts: list[PromptParams]


@dataclass(frozen=True)
class Prompt:
    """A prompt as the model reads it."""

    question: Question
    ids: list[int]


def chosen_prompts(
    params: EvaluateParams, raw: Path, tokens: Path, tokenizer: TextTokenizer, *, context_length: int
) -> Sequence[PromptParams]:
    """The prompts that `evaluate.prompts` means; `tokens` is the folder data/tokens.

    Raises:
        UserError: the file of prompts cannot be used.
    """
    if params.prompts != "auto":
        return params.prompts
    path = raw / PROMPTS_FILE
    if os.path.lexists(path):
        refuse_special(path, raw)
        return read_prompts(path)
    return openings(tokens, tokenizer, context_length=context_length, max_new_tokens=params.max_new_tokens)


def read_prompts(path: Path) -> list[PromptParams]:
    """The prompts in a file.

    Raises:
        UserError: it is too large, is not YAML, or a prompt in it is wrong.
    """
    if path.stat().st_size > MOST_BYTES:
        raise UserError(f"{path} has {path.stat().st_size:,} bytes; prompts may have {MOST_BYTES:,}.")
    prompts = load(PromptsFile, path).prompts
    if len(prompts) > MOST_PROMPTS:
        raise UserError(f"{path} has {len(prompts):,} prompts; at most {MOST_PROMPTS:,} are asked.")
    return prompts


def prepare(prompts: Sequence[PromptParams], tokenizer: TextTokenizer, *, context_length: int) -> list[Prompt]:
    """Render and encode the prompts; characters that the tokenizer does not know are left out.

    Raises:
        UserError: a prompt is empty or does not fit the model's context.
    """
    prepared = []
    for number, entry in enumerate(prompts):
        text = chat_prompt(entry.user) if entry.user is not None else entry.text or ""
        unknown = tokenizer.unknown(text)
        ids = tokenizer.encode("".join(char for char in text if char not in unknown))
        if not 0 < len(ids) <= context_length:
            raise UserError(
                f"evaluate.prompts[{number}] has {len(ids)} tokens that this tokenizer knows; between 1 and "
                f"model.context_length ({context_length}) fit."
            )
        question = Question(
            prompt=text if entry.user is None else entry.user,
            expect=entry.expect,
            left_out=unknown,
            kind="text" if entry.user is None else "user",
            mark=entry.mark,
            truth=entry.truth if isinstance(entry, Opening) else None,
        )
        prepared.append(Prompt(question, ids))
    return prepared
