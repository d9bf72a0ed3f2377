"""Writing text: the likeliest token is the likeliest, a seed is a seed, the end is the end."""

from collections.abc import Sequence

import torch

from tokenmill.model.build import GPT
from tokenmill.model.generate import generate

NEVER = -1
"""An end-of-text that no model gives."""


def uncached(model: GPT, prompt: Sequence[int], count: int) -> list[int]:
    """Greedy by the book: the whole text through the model for every token; the later half when the context is full."""
    text, window = list(prompt), list(prompt)
    with torch.no_grad():
        for _ in range(count):
            if len(window) > model.config.context_length:
                window = text[-(model.config.context_length // 2) :]
            text.append(int(model(torch.tensor([window]))[0, -1].argmax()))
            window.append(text[-1])
    return text[len(prompt) :]


def test_greedy_is_the_argmax_of_the_uncached_model(model: GPT):
    expected = uncached(model, [3, 1, 4], 9)
    assert list(generate(model, [3, 1, 4], end=NEVER, max_new_tokens=9)) == expected


def test_it_goes_on_when_the_context_is_full(model: GPT):
    expected = uncached(model, [3, 1, 4], 40)
    written = list(generate(model, [3, 1, 4], end=NEVER, max_new_tokens=40))
    assert written == expected
    assert len(set(written)) > 1, "a constant text would prove nothing"


def test_a_prompt_may_fill_the_whole_context(model: GPT):
    assert len(list(generate(model, list(range(12)), end=NEVER, max_new_tokens=3))) == 3


def test_it_stops_at_the_end_without_giving_it(model: GPT):
    written = list(generate(model, [2], end=NEVER, max_new_tokens=30, temperature=2.0))
    end = next(token for token in written[5:] if token not in written[:5])
    again = list(generate(model, [2], end=end, max_new_tokens=30, temperature=2.0))
    assert again == written[: written.index(end)]


def test_a_seed_gives_its_own_text_each_time(model: GPT):
    def drawn(seed: int) -> list[int]:
        return list(generate(model, [2], end=NEVER, max_new_tokens=20, temperature=1.5, top_k=10, seed=seed))

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)


def test_one_candidate_is_greedy(model: GPT):
    greedy = list(generate(model, [5, 6], end=NEVER, max_new_tokens=20))
    assert list(generate(model, [5, 6], end=NEVER, max_new_tokens=20, temperature=3.0, top_k=1)) == greedy


def test_only_the_likeliest_candidates_are_drawn(model: GPT):
    with torch.no_grad():
        likeliest = set(model(torch.tensor([[7]]))[0, -1].topk(3).indices.tolist())
    options = {"end": NEVER, "max_new_tokens": 1, "temperature": 50.0, "top_k": 3}
    drawn = {next(generate(model, [7], seed=seed, **options)) for seed in range(60)}
    assert drawn == likeliest


def test_temperature_flattens_the_choice(model: GPT):
    def kinds(temperature: float) -> int:
        options = {"end": NEVER, "max_new_tokens": 1, "temperature": temperature}
        return len({next(generate(model, [7], seed=seed, **options)) for seed in range(60)})

    assert kinds(0.05) < kinds(5.0)
