"""Writing text: one token after another, with a cache of keys and values, to the end-of-text or a limit."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tokenmill.model.build import GPT, new_cache


@torch.no_grad()
def generate(
    model: GPT,
    prompt: Sequence[int],
    *,
    end: int,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
) -> Iterator[int]:
    """Yield the ids that follow `prompt`, without `end`, which stops it.

    Temperature 0 takes the likeliest token each time; else tokens are drawn among the `top_k` likeliest, on the CPU,
    so that a seed means the same on every device. When the context is full, its later half is read anew and the text
    goes on.

    Args:
        model: in evaluation mode; its device is where it runs.
        prompt: at least one id, and at most `model.config.context_length`.
        end: the id of end-of-text.
        max_new_tokens: ids yielded at the most.
        temperature: divides the logits before drawing.
        top_k: how many candidates; None is all.
        seed: of the draws.
    """
    context, device = model.config.context_length, next(model.parameters()).device
    assert 0 < len(prompt) <= context
    draws = torch.Generator().manual_seed(seed)
    ids, cache, fresh = list(prompt), new_cache(model, batch=1), list(prompt)
    for _ in range(max_new_tokens):
        if cache.length + len(fresh) > context:
            cache, fresh = new_cache(model, batch=1), ids[-context // 2 :]
        logits_V = model(torch.tensor([fresh], device=device), cache)[0, -1].float().cpu()
        token = _choose(logits_V, temperature, top_k, draws)
        if token == end:
            return
        ids.append(token)
        fresh = [token]
        yield token


def _choose(logits_V: Tensor, temperature: float, top_k: int | None, draws: torch.Generator) -> int:
    if temperature == 0:
        return int(logits_V.argmax())
    values, candidates = logits_V.topk(min(top_k or len(logits_V), len(logits_V)))
    return int(candidates[torch.multinomial((values / temperature).softmax(-1), 1, generator=draws)])
