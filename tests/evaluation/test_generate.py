"""Generated text against a plain loop over the whole text, alone and in batches."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.model.small import small_config
from tokenmill.evaluation.generate import (
    Sampling,
    candidate_probabilities,
    generate,
    generate_batch,
    transpose_in_memory,
)
from tokenmill.model.gpt import GPT, KVCache, build
from tokenmill.model.huggingface import save_weights
from tokenmill.runs.model_code import write_code

NEVER = -1
"""An end-of-text that no model gives."""


def uncached(model: GPT, prompt: Sequence[int], count: int) -> list[int]:
    """Greedy by the book: the whole text through the model for every token; the later half when the
    context is full."""
    text = list(prompt)
    window = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            if len(window) > model.config.context_length:
                window = text[-(model.config.context_length // 2) :]
            text.append(int(model(torch.tensor([window]))[0, -1].argmax()))
            window.append(text[-1])
    return text[len(prompt) :]


def test_greedy_is_the_argmax_of_the_uncached_model(model: GPT):
    expected = uncached(model, [3, 1, 4], 9)
    assert (
        list(generate(model, [3, 1, 4], ends={NEVER}, sampling=Sampling(max_new_tokens=9)))
        == expected
    )


def test_text_continues_when_the_context_is_full(model: GPT):
    expected = uncached(model, [3, 1, 4], 40)
    written = list(generate(model, [3, 1, 4], ends={NEVER}, sampling=Sampling(max_new_tokens=40)))
    assert written == expected
    assert len(set(written)) > 1, "a constant text would prove nothing"


def test_a_prompt_may_fill_the_whole_context(model: GPT):
    assert (
        len(
            list(
                generate(model, list(range(12)), ends={NEVER}, sampling=Sampling(max_new_tokens=3))
            )
        )
        == 3
    )


def test_text_stops_before_end_of_text(model: GPT):
    written = list(
        generate(model, [2], ends={NEVER}, sampling=Sampling(max_new_tokens=30, temperature=2.0))
    )
    end = next(token for token in written[5:] if token not in written[:5])
    again = list(
        generate(model, [2], ends={end}, sampling=Sampling(max_new_tokens=30, temperature=2.0))
    )
    assert again == written[: written.index(end)]


def test_a_seed_gives_the_same_text_each_time(model: GPT):
    def drawn(seed: int) -> list[int]:
        return list(
            generate(
                model,
                [2],
                ends={NEVER},
                sampling=Sampling(max_new_tokens=20, temperature=1.5, top_k=10, seed=seed),
            )
        )

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)


def test_top_k_of_one_is_greedy(model: GPT):
    greedy = list(generate(model, [5, 6], ends={NEVER}, sampling=Sampling(max_new_tokens=20)))
    assert (
        list(
            generate(
                model,
                [5, 6],
                ends={NEVER},
                sampling=Sampling(max_new_tokens=20, temperature=3.0, top_k=1),
            )
        )
        == greedy
    )


@pytest.mark.parametrize("cut", [{}, {"top_k": 2}, {"top_p": 0.9}], ids=str)
@pytest.mark.parametrize("temperature", [1e-40, 1e-30, 1e-3])
def test_almost_no_temperature_is_greedy(temperature: float, cut: dict[str, Any]):
    how = Sampling(max_new_tokens=1, temperature=temperature, **cut)
    ids, p = candidate_probabilities(torch.tensor([[-300.0, 7.0, 200.0]]), how)
    assert p.sum().item() == 1
    assert (ids[0, p.argmax()] if ids is not None else p.argmax()).item() == 2


def test_top_k_draws_only_the_k_likeliest(model: GPT):
    with torch.no_grad():
        likeliest = set(model(torch.tensor([[7]]))[0, -1].topk(3).indices.tolist())
    how = [Sampling(max_new_tokens=1, temperature=50.0, top_k=3, seed=seed) for seed in range(60)]
    drawn = {next(generate(model, [7], ends={NEVER}, sampling=one)) for one in how}
    assert drawn == likeliest


def test_temperature_flattens_the_distribution(model: GPT):
    def kinds(temperature: float) -> int:
        how = [Sampling(max_new_tokens=1, temperature=temperature, seed=seed) for seed in range(60)]
        return len({next(generate(model, [7], ends={NEVER}, sampling=one)) for one in how})

    assert kinds(0.05) < kinds(5.0)


def test_logits_with_a_cache_are_those_of_the_whole_text(model: GPT):
    ids_BT = torch.randint(23, (3, 12), generator=torch.Generator().manual_seed(3))
    expected_BTV = model(ids_BT)
    with torch.inference_mode():
        cache = KVCache(model.config, texts=3, max_length=12, device=torch.device("cpu"))
        calls = [ids_BT[:, :4], *(ids_BT[:, t : t + 1] for t in range(4, 12))]
        got_BTV = torch.cat([model(ids, cache=cache) for ids in calls], dim=1)
    torch.testing.assert_close(got_BTV, expected_BTV[:, 3:], rtol=1e-4, atol=1e-4)


def test_transposing_in_memory_changes_no_weight_and_no_text(model: GPT):
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    how = Sampling(max_new_tokens=20, temperature=1.5)
    expected = list(generate(model, [3, 1], ends={NEVER}, sampling=how))
    transpose_in_memory(model)
    assert not model.head.weight.is_contiguous()
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
    assert list(generate(model, [3, 1], ends={NEVER}, sampling=how)) == expected


def test_a_seed_draws_what_a_plain_loop_draws(model: GPT):
    text = [2, 7]
    window = [2, 7]
    draws = torch.Generator().manual_seed(5)
    for _ in range(40):
        if len(window) > 12:
            window = text[-6:]
        values, ids = model(torch.tensor([window]))[0, -1].topk(9)
        text.append(int(ids[torch.multinomial(F.softmax(values / 1.2, -1), 1, generator=draws)]))
        window.append(text[-1])
    how = Sampling(max_new_tokens=40, temperature=1.2, top_k=9, seed=5)
    assert list(generate(model, [2, 7], ends={NEVER}, sampling=how)) == text[2:]


def alone(model: GPT, prompts: list[list[int]], *, end: int, how: Sampling) -> list[list[int]]:
    return [
        list(generate(model, prompt, ends={end}, sampling=replace(how, seed=how.seed + number)))
        for number, prompt in enumerate(prompts)
    ]


PROMPTS = [[3, 1, 4], [5, 5, 5], [9, 7, 9], [1, 2, 3], [6, 6, 7]]


@pytest.mark.parametrize("times", [1, 4], ids=["short", "as long as the context"])
@pytest.mark.parametrize("penalty", [1.0, 1.4])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_text_is_the_same_in_a_batch_as_alone(
    model: GPT, temperature: float, penalty: float, times: int
):
    how = Sampling(max_new_tokens=26, temperature=temperature, seed=3, repetition_penalty=penalty)
    prompts = [prompt * times for prompt in PROMPTS]
    expected = alone(model, prompts, end=NEVER, how=how)
    assert generate_batch(model, prompts, ends={NEVER}, sampling=how) == expected
    assert len({tuple(text) for text in expected}) == len(PROMPTS)


def test_a_text_that_ends_does_not_change_the_others(model: GPT):
    how = Sampling(max_new_tokens=40, temperature=2.0)
    ends = set()
    for end in range(0, 23, 5):
        expected = alone(model, PROMPTS, end=end, how=how)
        assert generate_batch(model, PROMPTS, ends={end}, sampling=how) == expected
        ends |= {len(text) for text in expected}
    assert len(ends) > 9, "they should end at very different places"


def test_a_context_of_two_continues():
    tiny = build(small_config("modern", context_length=2), seed=1).eval()
    assert len(list(generate(tiny, [1], ends={NEVER}, sampling=Sampling(max_new_tokens=9)))) == 9


def test_transformers_writes_the_same(model: GPT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM  # noqa: PLC0415

    save_weights(model, tmp_path)
    write_code(model.config, tmp_path)
    theirs: Any = AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True).eval()
    for prompt in ([3, 1, 4], [5, 9]):
        whole = theirs.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=8,
            do_sample=False,
            repetition_penalty=1.3,
            pad_token_id=0,
        )
        how = Sampling(max_new_tokens=8, repetition_penalty=1.3)
        assert (
            list(generate(model, prompt, ends={NEVER}, sampling=how))
            == whole[0, len(prompt) :].tolist()
        )
