"""Answers to the fixed prompts: greedy and sampled, and what can be measured of them.

Every epoch of a training, measured the same way: losses on fixed sequences, answers to fixed prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tokenmill.core.chat import prompt as as_conversation
from tokenmill.core.errors import UserError
from tokenmill.core.token_file import SPLITS, Split, TokenMetadata, open_tokens, read_metadata
from tokenmill.core.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.display.progress import Progress
from tokenmill.evaluation.params import EvaluateParams, PromptParams
from tokenmill.evaluation.results import Answer, EpochResult, Evaluation, Question
from tokenmill.model.device import Compute, DeviceName, choose_compute, configure_process
from tokenmill.model.generate import generate
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import Manifest, read_manifest
from tokenmill.model.sampler import Sampling
from tokenmill.model.sequences import Sequences, evenly_spread, place_tokens
from tokenmill.model.validation import bits_per_byte, mean_loss, perplexity

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


def answer(model: GPT, tokenizer: TextTokenizer, prompt: Prompt, params: EvaluateParams) -> Answer:
    """Continue one prompt twice: with the likeliest tokens, and drawn with a fixed seed."""
    likeliest = Sampling(max_new_tokens=params.max_new_tokens)
    drawn = replace(likeliest, temperature=params.temperature, top_k=params.top_k, seed=params.seed)
    greedy, sampled = (
        list(generate(model, prompt.ids, end=tokenizer.eot_id, sampling=how)) for how in (likeliest, drawn)
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


def evaluate(
    *, models: Path, tokens: Path, tokenizer_file: Path, params: EvaluateParams, device: DeviceName
) -> Evaluation:
    """Measure every epoch in the folder `models`.

    Raises:
        UserError: model, tokenizer and tokens do not belong together, or one of them is missing.
    """
    manifest, metadata = read_manifest(models), read_metadata(tokens)
    tokenizer = read_tokenizer(tokenizer_file)
    _refuse_mismatch(manifest, metadata, tokenizer, tokenizer_file)
    compute = choose_compute(device, manifest.train.precision)
    configure_process(compute)
    sequences = {name: _sequences(tokens, name, manifest, compute) for name in SPLITS}
    prompts = prepare(params.prompts, tokenizer, context_length=manifest.model.context_length)
    results = []
    with Progress("evaluate", manifest.epochs, "epochs") as progress:
        for epoch in range(1, manifest.epochs + 1):
            model = load_model(models / f"epoch-{epoch}", str(compute.device))
            loss = {
                name: mean_loss(
                    model,
                    these,
                    evenly_spread(these.count, min(manifest.train.validation_sequences, sequences["val"].count)),
                    micro_batch=manifest.train.batch_size,
                    compute=compute,
                )
                for name, these in sequences.items()
            }
            results.append(
                EpochResult(
                    epoch=epoch,
                    train_loss=loss["train"],
                    val_loss=loss["val"],
                    perplexity=perplexity(loss["val"]),
                    bits_per_byte=bits_per_byte(loss["val"], tokens=metadata.val.tokens, text_bytes=metadata.val.bytes),
                    answers=[answer(model, tokenizer, prompt, params) for prompt in prompts],
                )
            )
            progress.advance(1)
    return Evaluation(questions=[prompt.question for prompt in prompts], epochs=results)


def _sequences(tokens: Path, split: Split, manifest: Manifest, compute: Compute) -> Sequences:
    ids, _ = place_tokens(open_tokens(tokens, split), "mmap", compute.device)
    return Sequences(ids, context_length=manifest.model.context_length, device=compute.device)


def _refuse_mismatch(
    manifest: Manifest, metadata: TokenMetadata, tokenizer: TextTokenizer, tokenizer_file: Path
) -> None:
    """Model, tokens and tokenizer must be of one run."""
    for name, sha256 in (("tokens", metadata.tokenizer_sha256), (str(tokenizer_file), tokenizer.sha256)):
        if sha256 != manifest.tokenizer_sha256:
            raise UserError(
                f"the model was trained with another tokenizer (sha256 {manifest.tokenizer_sha256[:12]}) than that of "
                f"{name} ({sha256[:12]}); run `dvc repro` so that they belong together."
            )
