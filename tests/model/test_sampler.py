"""Probabilities as transformers' processors give them, draws as `torch.multinomial` makes them."""

from typing import Any

import pytest
import torch

from tokenmill.core.errors import UserError
from tokenmill.evaluation.generate import Sampler, candidate_probabilities, penalize
from tokenmill.evaluation.sampling import Sampling

LOGITS = torch.randn(5, 60, generator=torch.Generator().manual_seed(0)) * 4


def probabilities(sampling: Sampling) -> torch.Tensor:
    candidates, p = candidate_probabilities(LOGITS, sampling)
    return p if candidates is None else torch.zeros_like(LOGITS).scatter(-1, candidates, p)


@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 0.7},
        {"temperature": 1.9, "top_k": 7},
        {"temperature": 1.0, "top_k": 1000},
        {"temperature": 1.3, "top_p": 0.6},
        {"temperature": 0.2, "top_p": 0.01},
        {"temperature": 2.0, "top_k": 9, "top_p": 0.8},
        {"temperature": 1.0, "top_p": 1.0},
    ],
)
def test_candidates_are_those_of_transformers(how: dict[str, Any]):
    from transformers.generation.logits_process import (  # noqa: PLC0415
        LogitsProcessorList,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    chain = LogitsProcessorList([TemperatureLogitsWarper(how["temperature"])])
    if "top_k" in how:
        chain.append(TopKLogitsWarper(how["top_k"]))
    if "top_p" in how:
        chain.append(TopPLogitsWarper(how["top_p"]))
    theirs = chain(torch.zeros(5, 1, dtype=torch.long), LOGITS.clone()).softmax(-1)  # type: ignore[arg-type]
    ours = probabilities(Sampling(max_new_tokens=1, **how))
    ours = ours / ours.sum(-1, keepdim=True)  # the nucleus takes the share of the rest
    torch.testing.assert_close(ours, theirs)


def test_the_penalty_is_that_of_transformers():
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor  # noqa: PLC0415

    ids = torch.tensor([[0, 1, 2, 2, 9]] * 5)
    seen = torch.zeros(5, 60, dtype=torch.bool).scatter_(1, ids, value=True)
    theirs = RepetitionPenaltyLogitsProcessor(1.7)(ids, LOGITS.clone())  # type: ignore[arg-type]
    assert (LOGITS[:, :3] < 0).any()
    assert (LOGITS[:, :3] > 0).any()
    assert torch.equal(penalize(LOGITS, seen, 1.7), theirs)


@pytest.mark.parametrize("how", [{}, {"top_k": 12}, {"top_p": 0.9}])
def test_draws_are_those_of_multinomial_for_each_text(how: dict[str, Any]):
    sampling = Sampling(max_new_tokens=1, temperature=1.5, seed=11, **how)
    sampler = Sampler(sampling, [[0]] * 5, vocab_size=60)
    ours = [sampler.sample(LOGITS) for _ in range(20)]
    generators = [torch.Generator().manual_seed(11 + number) for number in range(5)]
    candidates, p = candidate_probabilities(LOGITS, sampling)
    for drawn in ours:
        for row, token in enumerate(drawn):
            at = int(torch.multinomial(p[row], 1, generator=generators[row]))
            assert token == (at if candidates is None else candidates[row, at])
    assert len({tuple(drawn) for drawn in ours}) > 10


def test_a_high_penalty_avoids_repetition_while_it_can():
    sampler = Sampler(
        Sampling(max_new_tokens=1, repetition_penalty=10.0),
        [[3], [4]],
        vocab_size=60,
    )
    logits = LOGITS[:2].abs().clamp(0.5, 4.0)
    drawn = [sampler.sample(logits) for _ in range(59)]
    assert (
        sorted([3, *(a for a, _ in drawn)])
        == sorted([4, *(b for _, b in drawn)])
        == list(range(60))
    )


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"max_new_tokens": 0}, r"max_new_tokens \(0\) must be 1 or more"),
        ({"temperature": -0.1}, r"temperature \(-0.1\) must be 0 .* or more"),
        ({"temperature": float("nan")}, r"temperature \(nan\)"),
        ({"temperature": float("inf")}, r"temperature \(inf\)"),
        ({"top_k": 0}, r"top_k \(0\) must be 1 or more"),
        ({"top_p": 0.0}, r"top_p \(0.0\) must be above 0 and at most 1"),
        ({"top_p": 1.1}, r"top_p \(1.1\)"),
        (
            {"repetition_penalty": 1e-300},
            r"repetition_penalty \(1e-300\) must be between 0.1 and 10",
        ),
        ({"repetition_penalty": 11.0}, r"repetition_penalty \(11.0\)"),
        ({"seed": -1}, r"seed \(-1\) must be between 0 and 4294967295"),
        ({"seed": 2**32}, r"seed \(4294967296\)"),
    ],
)
def test_a_value_out_of_range_is_refused(how: dict[str, Any], sentence: str):
    with pytest.raises(UserError, match=sentence):
        Sampling(**({"max_new_tokens": 1} | how))


def test_the_ends_of_the_ranges_are_in_them():
    Sampling(max_new_tokens=1, temperature=0, top_k=1, top_p=1, repetition_penalty=0.1, seed=0)
    Sampling(max_new_tokens=1, repetition_penalty=10, seed=2**32 - 1)
