"""Answers to the fixed prompts: greedy and sampled, and what can be measured of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tokenmill.documents.conversation import prompt as as_conversation
from tokenmill.errors import UserError
from tokenmill.evaluation.params import EvaluateParams, PromptParams
from tokenmill.evaluation.results import Answer, Question
from tokenmill.model.decoder import Decoder
from tokenmill.model.generate import generate
from tokenmill.model.sampling import Sampling
from tokenmill.tokenization.tokenizer import TextTokenizer

NGRAM = 4
"""Length of the sequences whose recurrence counts as repetition (seq-rep-4 of Welleck et al. 2020, section 6.1)."""


@dataclass(frozen=True)
class Prompt:
    """A prompt ready for the model."""

    question: Question
    ids: list[int]


def prepare(prompts: Sequence[PromptParams], tokenizer: TextTokenizer, *, context_length: int) -> list[Prompt]:
    """Render and encode the prompts.

    Raises:
        UserError: a prompt does not fit the model's context.
    """
    prepared = []
    for number, entry in enumerate(prompts):
        text = as_conversation(entry.user) if entry.user is not None else entry.text or ""
        unknown = tokenizer.unknown(text)
        ids = tokenizer.encode("".join(c for c in text if c not in unknown))
        if not 0 < len(ids) <= context_length:
            raise UserError(
                f"evaluate.prompts[{number}] has {len(ids)} tokens that this tokenizer knows; between 1 and "
                f"model.context_length ({context_length}) fit."
            )
        shown = entry.user if entry.user is not None else text
        prepared.append(Prompt(Question(prompt=shown, expect=entry.expect, left_out=unknown), ids))
    return prepared


def answer(decoder: Decoder, tokenizer: TextTokenizer, prompt: Prompt, params: EvaluateParams) -> Answer:
    """Continue one prompt twice: with the likeliest tokens, and drawn with a fixed seed."""
    likeliest = Sampling(max_new_tokens=params.max_new_tokens)
    drawn = replace(likeliest, temperature=params.temperature, top_k=params.top_k, seed=params.seed)
    greedy, sampled = (
        list(generate(decoder, prompt.ids, end=tokenizer.eot_id, sampling=how)) for how in (likeliest, drawn)
    )
    text = tokenizer.decode(greedy)
    return Answer(
        greedy=text.strip(),
        sampled=tokenizer.decode(sampled).strip(),
        found=None if prompt.question.expect is None else prompt.question.expect in text,
        repetition=repetition(greedy),
    )


def repetition(ids: Sequence[int]) -> float:
    """The share of 4-grams that repeat an earlier one: 0 for all different, towards 1 for a loop.

    Example:
        >>> repetition([1, 2, 3, 4, 5])
        0.0
        >>> repetition([7] * 13)
        0.9
    """
    grams = [tuple(ids[i : i + NGRAM]) for i in range(len(ids) - NGRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
