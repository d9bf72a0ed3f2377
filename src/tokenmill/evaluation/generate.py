"""Generate text token by token with a key/value cache, by the likeliest or a sampled token.

Axes: B texts, T tokens, V vocabulary.
"""

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor, nn

from tokenmill.evaluation.sampling import Sampling
from tokenmill.model.gpt import GPT, KVCache

LEAST_TEMPERATURE = 1e-30
"""Less counts as this much, for a logit over it must be a number; both give the likeliest token."""


def generate(
    model: GPT, prompt: Sequence[int], *, ends: Collection[int], sampling: Sampling
) -> Iterator[int]:
    """Yield the ids that follow `prompt`, up to one of `ends`, which is not yielded.

    When the context is full, the model reads the later half of it again and continues from there.

    Args:
        model: in evaluation mode, on any device.
        prompt: at least one id, and at most `model.config.context_length`.
        ends: the id of end-of-text; for an answer, all special tokens.
        sampling: how tokens are chosen, and how many.
    """
    return (token for _, token in _write(model, [prompt], ends=ends, sampling=sampling))


def generate_batch(
    model: GPT, prompts: Sequence[Sequence[int]], *, ends: Collection[int], sampling: Sampling
) -> list[list[int]]:
    """The ids that `generate` yields for each of several prompts of one length, whose number is
    added to the seed. They are continued side by side, and none depends on its neighbours."""
    texts: list[list[int]] = [[] for _ in prompts]
    for number, token in _write(model, prompts, ends=ends, sampling=sampling):
        texts[number].append(token)
    return texts


@torch.inference_mode()
def _write(
    model: GPT, prompts: Sequence[Sequence[int]], *, ends: Collection[int], sampling: Sampling
) -> Iterator[tuple[int, int]]:
    """Yield the number of a text and its next token, for prompts of one length."""
    context = model.config.context_length
    numbers = list(range(len(prompts)))
    texts = [list(prompt) for prompt in prompts]
    length = len(texts[0])
    assert 0 < length <= context
    assert all(len(text) == length for text in texts)
    sampler = Sampler(sampling, texts, vocab_size=model.config.vocab_size)
    max_length = min(context, length + sampling.max_new_tokens)
    cache = KVCache(model.config, texts=len(texts), max_length=max_length, device=model.device)
    ended = set[int]()
    unread = length
    for left in range(sampling.max_new_tokens, 0, -1):
        ids_BT = torch.tensor([text[-unread:] for text in texts], device=model.device)
        tokens = sampler.sample(model(ids_BT, cache=cache)[:, -1])
        for number, text, token in zip(numbers, texts, tokens, strict=True):
            text.append(token)
            if token in ends:
                ended.add(number)
            elif number not in ended:
                yield number, token
        rows = [row for row, number in enumerate(numbers) if number not in ended]
        if not rows or left == 1:
            return
        if len(rows) <= len(numbers) // 2:
            numbers = [numbers[row] for row in rows]
            texts = [texts[row] for row in rows]
            cache.select(rows)
            sampler.select(rows)
        unread = 1
        if cache.length == context:
            cache.clear()
            unread = context // 2


def transpose_in_memory(model: GPT) -> None:
    """Store matrices with more outputs than inputs by column, in place. Their values stay the same.

    A CPU multiplies such a matrix with a single token 1.3 to 1.5 times as fast.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.out_features > module.in_features:
            module.weight.data = module.weight.data.T.contiguous().T


class Sampler:
    """Chooses the next token of several texts, each with a random generator of its own.

    Tokens are drawn on the CPU, so that a seed gives the same text on every device.
    """

    def __init__(self, sampling: Sampling, prompts: Sequence[Sequence[int]], *, vocab_size: int):
        """Start texts with `prompts`. The number of each is added to the seed."""
        self._sampling = sampling
        self._generators = [
            torch.Generator().manual_seed(sampling.seed + number) for number in range(len(prompts))
        ]
        self._seen_BV: Tensor | None = None
        if sampling.repetition_penalty != 1:
            self._seen_BV = torch.zeros(len(prompts), vocab_size, dtype=torch.bool)
            for row, prompt in enumerate(prompts):
                self._seen_BV[row, list(prompt)] = True

    def sample(self, logits_BV: Tensor) -> list[int]:
        """The next token of each text, chosen from the model's logits."""
        logits_BV = logits_BV.float().cpu()
        if self._seen_BV is not None:
            logits_BV = penalize(logits_BV, self._seen_BV, self._sampling.repetition_penalty)
        chosen_B = (
            logits_BV.argmax(-1) if self._sampling.temperature == 0 else self._draw(logits_BV)
        )
        if self._seen_BV is not None:
            self._seen_BV.scatter_(1, chosen_B[:, None], value=True)
        return chosen_B.tolist()

    def select(self, rows: Sequence[int]) -> None:
        """Keep only these texts, in this order."""
        self._generators = [self._generators[row] for row in rows]
        if self._seen_BV is not None:
            self._seen_BV = self._seen_BV[list(rows)]

    def _draw(self, logits_BV: Tensor) -> Tensor:
        """Draw as `torch.multinomial` does: the id with the largest p / noise, where the noise is
        exponential, is a draw from the probabilities p."""
        ids, p = candidate_probabilities(logits_BV, self._sampling)
        noise = torch.empty_like(p)
        for row, generator in zip(noise, self._generators, strict=True):
            row.exponential_(generator=generator)
        chosen_B1 = (p / noise).argmax(-1, keepdim=True)
        return (chosen_B1 if ids is None else ids.gather(-1, chosen_B1))[:, 0]


def candidate_probabilities(logits_BV: Tensor, sampling: Sampling) -> tuple[Tensor | None, Tensor]:
    """The ids to draw from, likeliest first, and their probabilities. None in place of ids stands
    for all ids in their order."""
    temperature = max(sampling.temperature, LEAST_TEMPERATURE)
    if sampling.top_k is None and sampling.top_p is None:
        return None, (logits_BV / temperature).softmax(-1)
    values, ids = logits_BV.topk(min(sampling.top_k or logits_BV.shape[-1], logits_BV.shape[-1]))
    p = (values / temperature).softmax(-1)
    if sampling.top_p is not None:
        p = p.masked_fill(p.cumsum(-1) - p >= sampling.top_p, 0.0)
    return ids, p


def penalize(logits_BV: Tensor, seen_BV: Tensor, penalty: float) -> Tensor:
    """Make the logits of the tokens in `seen_BV` smaller."""
    smaller_BV = torch.where(logits_BV > 0, logits_BV / penalty, logits_BV * penalty)
    return torch.where(seen_BV, smaller_BV, logits_BV)
