"""Writing text: one token after another, with a cache of keys and values, to the end-of-text or a limit.

Axes: B texts, T tokens, V vocabulary.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from tokenmill.model.cache import KVCache
from tokenmill.model.gpt import GPT
from tokenmill.model.sampler import Sampler, Sampling


def generate(model: GPT, prompt: Sequence[int], *, end: int, sampling: Sampling, number: int = 0) -> Iterator[int]:
    """Yield the ids that follow `prompt`, up to `end`, which is not yielded.

    When the context is full, the model reads its later half again and continues from there.

    Args:
        model: in evaluation mode, on any device.
        prompt: at least one id, and at most `model.config.context_length`.
        end: the id of end-of-text.
        sampling: how tokens are chosen, and how many.
        number: of this text among several; it is added to the seed.
    """
    return (token for _, token in _write(model, {number: prompt}, end=end, sampling=sampling))


def generate_batch(model: GPT, prompts: Sequence[Sequence[int]], *, end: int, sampling: Sampling) -> list[list[int]]:
    """For each prompt the ids that `generate` yields for it and its number.

    Prompts of the same length are continued side by side. No text is padded, so none depends on its neighbours.
    """
    by_length: dict[int, dict[int, Sequence[int]]] = {}
    for number, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), {})[number] = prompt
    texts: list[list[int]] = [[] for _ in prompts]
    for group in by_length.values():
        for number, token in _write(model, group, end=end, sampling=sampling):
            texts[number].append(token)
    return texts


@torch.inference_mode()
def _write(model: GPT, prompts: dict[int, Sequence[int]], *, end: int, sampling: Sampling) -> Iterator[tuple[int, int]]:
    """Yield the number of a text and its next token, for prompts of one length."""
    context = model.config.context_length
    numbers, texts = list(prompts), [list(prompt) for prompt in prompts.values()]
    length = len(texts[0])
    assert 0 < length <= context
    assert all(len(text) == length for text in texts)
    sampler = Sampler(sampling, texts, vocab_size=model.config.vocab_size, numbers=numbers)
    max_length = min(context, length + sampling.max_new_tokens)
    cache, ended = KVCache(model.config, texts=len(texts), max_length=max_length, device=model.device), set[int]()
    unread = length
    for left in range(sampling.max_new_tokens, 0, -1):
        ids_BT = torch.tensor([text[-unread:] for text in texts], device=model.device)
        tokens = sampler.sample(model(ids_BT, cache=cache)[:, -1])
        for number, text, token in zip(numbers, texts, tokens, strict=True):
            text.append(token)
            if token == end:
                ended.add(number)
            elif number not in ended:
                yield number, token
        rows = [row for row, number in enumerate(numbers) if number not in ended]
        if not rows or left == 1:
            return
        if len(rows) <= len(numbers) // 2:
            numbers, texts = [numbers[row] for row in rows], [texts[row] for row in rows]
            cache.select(rows)
            sampler.select(rows)
        unread = 1
        if cache.length == context:
            cache.clear()
            unread = context // 2


def transpose_in_memory(model: GPT) -> None:
    """Store matrices with more outputs than inputs column by column, in place; shapes and values stay.

    A CPU multiplies such a matrix with a single token 1.3 to 1.5 times as fast.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.out_features > module.in_features:
            module.weight.data = module.weight.data.T.contiguous().T
