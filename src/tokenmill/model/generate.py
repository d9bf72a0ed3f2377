"""Writing text: one token after another, with a cache of keys and values, to the end-of-text or a limit."""

from collections.abc import Iterator, Sequence

import torch

from tokenmill.model.batch import Batch
from tokenmill.model.decoder import Decoder
from tokenmill.model.sampling import Chooser, Sampling


def generate(
    decoder: Decoder, prompt: Sequence[int], *, end: int, sampling: Sampling, number: int = 0
) -> Iterator[int]:
    """Yield the ids that follow `prompt`, without `end`, which stops it.

    When the context is full, its later half is read anew and the text goes on.

    Args:
        decoder: of a model; its device is where it runs.
        prompt: at least one id, and at most `decoder.config.context_length`.
        end: the id of end-of-text.
        sampling: how tokens are chosen, and how many.
        number: of this text among several; added to the seed.
    """
    return (token for _, token in _written(decoder, [prompt], end=end, sampling=sampling, first=number))


def generate_batch(
    decoder: Decoder, prompts: Sequence[Sequence[int]], *, end: int, sampling: Sampling
) -> list[list[int]]:
    """The ids that follow each prompt, written side by side: what `generate` gives for it and its number."""
    texts: list[list[int]] = [[] for _ in prompts]
    for number, token in _written(decoder, prompts, end=end, sampling=sampling, first=0):
        texts[number].append(token)
    return texts


@torch.inference_mode()
def _written(
    decoder: Decoder, prompts: Sequence[Sequence[int]], *, end: int, sampling: Sampling, first: int
) -> Iterator[tuple[int, int]]:
    """Tokens as they are written, each with the place of its prompt."""
    batch = Batch(decoder, prompts, room=sampling.max_new_tokens)
    numbers = range(first, first + len(prompts))
    chooser = Chooser(sampling, prompts, vocab_size=decoder.config.vocab_size, numbers=numbers)
    places, ended = list(range(len(prompts))), set[int]()
    logits_BV = batch.read()
    for left in range(sampling.max_new_tokens, 0, -1):
        tokens = chooser.choose(logits_BV)
        for place, token in zip(places, tokens, strict=True):
            if token == end:
                ended.add(place)
            elif place not in ended:
                yield place, token
        rows = [row for row, place in enumerate(places) if place not in ended]
        if not rows or left == 1:
            return
        if len(rows) <= len(places) // 2:
            places, tokens = [places[row] for row in rows], [tokens[row] for row in rows]
            batch.keep(rows)
            chooser.keep(rows)
        logits_BV = batch.step(tokens)
