"""The page's models compute what PyTorch computes, to the bound of the stored precision."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.model.small import config_of, with_noise
from tests.publish.node import Node, needs_node
from tokenmill.core.errors import UserError
from tokenmill.evaluation.generate import candidate_probabilities, generate
from tokenmill.evaluation.sampling import Sampling
from tokenmill.model.gpt import GPT, build
from tokenmill.publish import weights
from tokenmill.publish.weights import KNOWN, PRECISIONS, Precision, packed

BOUNDS: dict[Precision, float] = {"float32": 2e-5, "float16": 3e-3, "int8": 1e-1}
"""The largest difference of logits whose standard deviation is about 1, from weights in float32."""
EXACT = 2e-5
"""From weights as they are stored."""


def small_model(architecture: str, **changes: Any) -> GPT:
    """A model in which no weight is zero and whose logits have a standard deviation of about 1."""
    model = with_noise(build(config_of(architecture, **changes), seed=3), seed=1, scale=0.1)
    return model.eval()


def take(node: Node, model: GPT, precision: Precision) -> None:
    about, data = packed(model, precision)
    node.ask("model", about=about, base64=base64.b64encode(data).decode())


def stored(model: GPT, precision: Precision) -> GPT:
    """The model with the weights that are stored, by the definition of each precision."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2 and precision == "float16":
                parameter.copy_(parameter.half().float())
            elif parameter.ndim == 2 and precision == "int8":
                scale = parameter.abs().amax(1, keepdim=True) / 127
                parameter.copy_((parameter / scale).round() * scale)
    return model


def torch_logits(model: GPT, ids: Sequence[int]) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.tensor([ids]))[0].numpy()


def some_ids(model: GPT, count: int) -> list[int]:
    return np.random.default_rng(5).integers(model.config.vocab_size, size=count).tolist()


@needs_node
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("architecture", KNOWN)
def test_logits_agree(node: Node, architecture: str, precision: Precision):
    model = small_model(architecture)
    ids = some_ids(model, model.config.context_length)
    take(node, model, precision)
    found = np.array(node.ask("logits", parts=[ids]))
    one_by_one = np.array(node.ask("logits", parts=[ids[:5], *([each] for each in ids[5:])]))
    np.testing.assert_allclose(one_by_one, found, atol=EXACT)
    whole = torch_logits(model, ids)
    assert 0.5 < whole.std() < 2
    assert np.abs(found - whole).max() < BOUNDS[precision]
    exact = torch_logits(stored(model, precision), ids)
    np.testing.assert_allclose(found, exact, atol=EXACT)


@needs_node
@pytest.mark.parametrize("vocab_size", [20, 2000])
def test_rows_of_pairs_and_triples_agree(node: Node, vocab_size: int):
    """With few tokens each pair and triple has a row; with many, hashes choose both."""
    model = small_model("speedrun", vocab_size=vocab_size)
    ids = some_ids(model, 40)
    take(node, model, "float32")
    found = np.array(node.ask("logits", parts=[ids]))
    np.testing.assert_allclose(found, torch_logits(model, ids), atol=EXACT)


@needs_node
@pytest.mark.parametrize("architecture", KNOWN)
def test_greedy_text_is_equal_beyond_the_context(node: Node, architecture: str):
    model = small_model(architecture, n_embd=36, n_head=2)
    take(node, model, "int8")
    stored(model, "int8")
    prompt = some_ids(model, 7)
    sampling = Sampling(max_new_tokens=60, repetition_penalty=1.3)
    steps = node.ask("write", prompt=prompt, sampling=vars(sampling), ends=[])
    written = [step["id"] for step in steps]
    assert written == list(generate(model, prompt, ends=(), sampling=sampling))
    ends = [written[20]]
    ended = node.ask("write", prompt=prompt, sampling=vars(sampling), ends=ends)
    assert [step["id"] for step in ended] == written[: written.index(ends[0]) + 1]
    judged = [thought for step in steps for thought in step["judged"]]
    text = [*prompt, *written]
    assert len(judged) == len(text) - 1
    expected = torch_logits(model, text[: model.config.context_length])
    loss = -torch.tensor(expected).log_softmax(-1)
    for index, thought in enumerate(judged[: model.config.context_length]):
        assert thought["loss"] == pytest.approx(float(loss[index, text[index + 1]]), abs=1e-4)
        top = dict(map(tuple, thought["likeliest"]))
        p = (-loss[index]).exp()
        assert sorted(top.values(), reverse=True) == list(top.values())
        assert list(top.values()) == pytest.approx(p.topk(10)[0].tolist(), abs=1e-4)
        assert all(p[id_] == pytest.approx(share, abs=1e-4) for id_, share in top.items())
    candidates = [[id_ for id_, _ in thought["likeliest"]] for thought in judged]
    again = node.ask("compare", ids=text, length=len(prompt), candidates=candidates)
    for thought, other in zip(judged, again, strict=True):
        assert other["probabilities"] == [share for _, share in thought["likeliest"]]
        assert other["loss"] == thought["loss"]


@needs_node
@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 4},
        {"temperature": 1.5, "top_p": 0.6},
        {"temperature": 1.0, "top_k": 300, "top_p": 0.9},
    ],
)
def test_draws_follow_the_probabilities(node: Node, how: dict[str, Any]):
    logits = torch.randn(400, generator=torch.Generator().manual_seed(2)) * 3
    sampling = Sampling(max_new_tokens=1, seed=7, **how)
    times = 4000
    asked = {"logits": logits.tolist(), "sampling": vars(sampling), "times": times}
    drawn = node.ask("choose", **asked)
    asked["times"] = 400
    assert drawn[:400] == node.ask("choose", **asked)
    asked["sampling"] = vars(sampling) | {"seed": 8}
    assert drawn[:400] != node.ask("choose", **asked)
    ids, p = candidate_probabilities(logits[None], sampling)
    share = np.zeros(400)
    share[np.arange(400) if ids is None else ids[0].numpy()] = (p[0] / p[0].sum()).numpy()
    counts = np.bincount(drawn, minlength=400)
    assert not counts[share == 0].any()
    deviation = np.sqrt(times * share * (1 - share)) + 1
    assert (np.abs(counts - times * share) / deviation).max() < 4.5


@pytest.mark.parametrize(("value", "precision"), [(1e6, "float16"), (float("nan"), "int8")])
def test_weights_that_cannot_be_stored_are_refused(value: float, precision: Precision):
    model = small_model("modern")
    with torch.no_grad():
        model.head.weight[3, 4] = value
    with pytest.raises(UserError, match=r"head\.weight"):
        packed(model, precision)


def test_an_architecture_that_the_page_lacks_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(weights, "KNOWN", ("gpt2", "modern"))
    with pytest.raises(
        UserError,
        match=r"model\.architecture \(speedrun\) is unknown to the page, .* gpt2, modern;",
    ):
        packed(small_model("speedrun"), "int8")
