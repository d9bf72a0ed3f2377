"""Measure every epoch alike: losses on fixed documents, answers to fixed prompts.

A fine-tuned model and its base also answer questions of chats that fine-tuning never saw.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from tokenmill.core.params import Section
from tokenmill.evaluation.generate import generate
from tokenmill.evaluation.measured_documents import MeasuredDocuments
from tokenmill.evaluation.prompts import (
    MOST_OPENINGS,
    EvaluateParams,
    EvaluateSections,
    Prompt,
    chosen_prompts,
    first_questions,
)
from tokenmill.evaluation.results import Answer, EpochResult, Evaluation, Question
from tokenmill.evaluation.sampling import Sampling
from tokenmill.formats.chat import Document, readable
from tokenmill.formats.measured import measured_text
from tokenmill.formats.token_file import read_metadata
from tokenmill.formats.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.model.device import prepare_to_measure
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import read_manifest
from tokenmill.model.sequences import WholeText, bits_per_byte, perplexity, token_losses
from tokenmill.progress import Progress

NGRAM = 4
"""The length of the token n-grams whose recurrence counts as repetition (seq-rep-4, Welleck et al.
2020, section 6.1)."""


class HeldOut(Section):
    """The contents of the file of held-out chats that the stage `finetune` writes for
    `evaluate_finetuned`."""

    chats: list[Document] = Field(max_length=MOST_OPENINGS)
    bytes_per_token: float = Field(allow_inf_nan=False)
    """UTF-8 bytes of the answers that were learned from, for each token of their text."""
    texts: int
    """The number of texts in `finetune.data` after cleaning."""
    left_out: int
    """The number of those without an answer within the context."""
    context_length: int


@dataclass(frozen=True)
class HeldOutAnswers:
    """The first question of a held-out chat, the chat's own answer as its truth, and the answers of
    two models."""

    question: Question
    before: Answer
    after: Answer


def evaluate(
    *,
    models: Path,
    tokens: Path,
    tokenizer_file: Path,
    sections: EvaluateSections,
) -> tuple[Evaluation, MeasuredDocuments]:
    """Measure every epoch in the folder `models`. Model, tokenizer and tokens must belong together,
    and `clean.mode` be the one by which their text was cleaned. The losses are those on the
    measured validation text, and on about as many bytes, but at most twice as many tokens, of the
    training text.

    Returns:
        The results, and the validation documents with the loss of each at each epoch.
    """
    manifest = read_manifest(models)
    metadata = read_metadata(tokens)
    tokenizer = read_tokenizer(tokenizer_file)
    manifest.check_tokenizer(metadata.tokenizer_sha256, f"that of {tokens}")
    manifest.check_tokenizer(tokenizer.sha256, str(tokenizer_file))
    compute = prepare_to_measure(sections.runtime.device, manifest.train.precision)
    val = measured_text(tokens, "val", tokenizer_file, at_most=manifest.train.validation_bytes)
    train = measured_text(tokens, "train", tokenizer_file, at_most=val.bytes)
    context_length = manifest.model.context_length
    # A document may be a book of any length
    texts = [
        WholeText(ids, context_length=context_length, device=compute.device)
        for ids in (train.ids[: 2 * len(val.ids)], val.ids)
    ]
    prompts = chosen_prompts(sections, tokens, tokenizer, context_length=context_length)
    documents = MeasuredDocuments(val, tokenizer, metadata.sources("val"))
    results = []
    with Progress("evaluate", manifest.epochs, "epoch") as progress:
        for epoch in range(1, manifest.epochs + 1):
            model = load_model(models / f"epoch-{epoch}", str(compute.device))
            train_losses, val_losses = (
                token_losses(model, text, micro_batch=manifest.train.batch_size, compute=compute)
                for text in texts
            )
            answers = [answer(model, tokenizer, prompt, sections.evaluate) for prompt in prompts]
            results.append(_result(epoch, train_losses, val_losses, val.bytes, answers))
            documents.add(val_losses)
            progress.advance(1)
    questions = [prompt.question for prompt in prompts]
    return Evaluation(questions=questions, epochs=results), documents


def _result(
    epoch: int, train: np.ndarray, val: np.ndarray, val_bytes: int, answers: list[Answer]
) -> EpochResult:
    """What was measured at an epoch.

    Args:
        epoch: its number.
        train: the loss of each target of the measured training text, in nats.
        val: the same of the validation text.
        val_bytes: UTF-8 bytes of that text.
        answers: the answers to the prompts.
    """
    val_loss = float(val.mean(dtype=np.float64))
    return EpochResult(
        epoch=epoch,
        train_loss=float(train.mean(dtype=np.float64)),
        val_loss=val_loss,
        perplexity=perplexity(val_loss),
        bits_per_byte=bits_per_byte(val_loss, tokens=len(val), text_bytes=val_bytes),
        answers=answers,
    )


def answer(model: GPT, tokenizer: TextTokenizer, prompt: Prompt, params: EvaluateParams) -> Answer:
    """Continue a prompt twice: greedily, and sampled with a fixed seed."""
    greedy, greedy_ids = continuation(
        model, tokenizer, prompt, Sampling(max_new_tokens=params.max_new_tokens)
    )
    sampled, _ = continuation(model, tokenizer, prompt, Sampling.of(params))
    return Answer(
        greedy=greedy.strip(),
        sampled=sampled.strip(),
        found=prompt.question.is_right(greedy),
        repetition=repetition(greedy_ids),
    )


def continuation(
    model: GPT, tokenizer: TextTokenizer, prompt: Prompt, sampling: Sampling
) -> tuple[str, Sequence[int]]:
    """The text that the model writes after a prompt, and its ids. An answer ends with its turn."""
    ends = tokenizer.special_ids if prompt.ends_with_turn else {tokenizer.eot_id}
    ids = list(generate(model, prompt.ids, ends=ends, sampling=sampling))
    return readable(tokenizer.decode_document(ids)), ids


def repetition(ids: Sequence[int]) -> float:
    """The fraction of 4-grams that repeat an earlier one: 0 if all differ, near 1 for a loop.

    Example:
        >>> repetition([1, 2, 3, 4, 5])
        0.0
        >>> repetition([7] * 13)
        0.9
    """
    ngrams = [tuple(ids[i : i + NGRAM]) for i in range(len(ids) - NGRAM + 1)]
    return 1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def ask_held_out(
    chats: Sequence[Document],
    *,
    base: Path,
    tuned: Path,
    tokenizer_file: Path,
    sections: EvaluateSections,
) -> list[HeldOutAnswers]:
    """Let the newest epochs of two folders of models answer the first question of each chat."""
    params = sections.evaluate
    tokenizer = read_tokenizer(tokenizer_file)
    manifests = {models: read_manifest(models) for models in (base, tuned)}
    for manifest in manifests.values():
        manifest.check_tokenizer(tokenizer.sha256, str(tokenizer_file))
    context_length = manifests[tuned].model.context_length
    prompts = first_questions(
        chats, tokenizer, context_length=context_length, max_new_tokens=params.max_new_tokens
    )

    def answers(models: Path) -> list[Answer]:
        compute = prepare_to_measure(sections.runtime.device, manifests[models].train.precision)
        model = load_model(models / f"epoch-{manifests[models].epochs}", str(compute.device))
        return [answer(model, tokenizer, prompt, params) for prompt in prompts]

    both = zip(prompts, answers(base), answers(tuned), strict=True)
    return [HeldOutAnswers(prompt.question, before, after) for prompt, before, after in both]
