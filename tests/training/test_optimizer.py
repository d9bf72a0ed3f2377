"""The optimizers: what decays, what a step is by hand, and that their state is all there is to
them."""

import dataclasses
import math
from typing import get_args

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.training.tiny import CPU, VOCABULARY, model_config, train_params
from tokenmill.model.config import Architecture
from tokenmill.model.device import Compute
from tokenmill.model.gpt import GPT, build, empty_model
from tokenmill.training.optimizer import AdamW, Muon, Optimizer, adamw
from tokenmill.training.params import OPTIMIZERS

ONE = torch.ones(())
HALF = dataclasses.replace(CPU, precision=torch.float16)
BY_NAME = dataclasses.replace(CPU, exact_float32=True)
"""As `train.precision: float32` asks for it."""
EVERY = [(a, o) for a in get_args(Architecture) for o in OPTIMIZERS]


def made(architecture: str, optimizer: str, compute: object = CPU) -> tuple[GPT, Optimizer]:
    model = build(model_config(architecture=architecture), seed=0)
    return model, Optimizer(model, train_params(optimizer=optimizer), compute)  # type: ignore[arg-type]


def step(model: GPT, optimizer: Optimizer, number: int, compute: object = CPU) -> None:
    ids_BT = torch.randint(VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(number))
    with compute.autocast():  # type: ignore[attr-defined]
        loss = model(ids_BT[:, :-1], ids_BT[:, 1:])
    optimizer.backward(loss)
    optimizer.set_rates(0.01)
    optimizer.step(loss.detach())


def values(model: GPT) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def assert_same_bits(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


@pytest.mark.parametrize(("architecture", "optimizer"), EVERY)
def test_decay_touches_matrices_and_with_muon_hidden_ones_only(architecture: str, optimizer: str):
    model, optim = made(architecture, optimizer)
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, 0.5, 1.0)
        parameter.grad = torch.zeros_like(parameter)
    before = values(model)
    optim.set_rates(0.01)
    optim.step(ONE)
    assert set(model.ngram_tables) <= before.keys()
    for name, after in values(model).items():
        decays = after.ndim == 2 and (optimizer != "muon" or name.startswith("blocks."))
        decay = 1.0 if name in model.ngram_tables else 0.1 if decays else 0.0
        torch.testing.assert_close(after, before[name] * (1 - 0.01 * decay), msg=name)


def test_muon_takes_the_hidden_matrices_and_adamw_the_rest():
    _, optim = made("gpt2", "muon")
    by_muon, by_adamw = (
        {
            optim._names[p]
            for rule, parameters in optim._by_rule.items()
            if isinstance(rule, kind)
            for p in parameters
        }
        for kind in (Muon, AdamW)
    )
    assert by_muon == {
        n
        for n in by_adamw | by_muon
        if n.startswith("blocks.") and n.endswith("weight") and "norm" not in n
    }
    assert not by_muon & by_adamw
    assert {"tokens.weight", "positions.weight", "head.weight", "norm.weight"} <= by_adamw


def test_adamw_is_pytorchs():
    model, optim = made("gpt2", "adamw")
    other, _ = made("gpt2", "adamw")
    params = train_params()
    groups = [
        {
            "params": [p for p in other.parameters() if (p.ndim >= 2) == decays],
            "weight_decay": decay,
        }
        for decays, decay in ((True, params.weight_decay), (False, 0.0))
    ]
    theirs = torch.optim.AdamW(groups, lr=0.01, betas=(params.beta1, params.beta2), fused=True)
    for number in range(4):
        gradients = torch.Generator().manual_seed(number)
        for mine, their in zip(model.parameters(), other.parameters(), strict=True):
            mine.grad = torch.randn(mine.shape, generator=gradients)
            their.grad = mine.grad.clone()
        for group in theirs.param_groups:
            group["lr"] = 0.01 / (number + 1)
        optim.set_rates(0.01 / (number + 1))
        optim.max_norm = math.inf
        optim.step(ONE)
        theirs.step()
    assert_same_bits(values(model), values(other))


def test_a_device_that_ignores_the_scale_gets_clipped_gradients(monkeypatch: pytest.MonkeyPatch):
    """As Apple's: their fused AdamW takes the scale and does nothing with it."""
    model, optim = made("gpt2", "adamw")
    other, theirs = made("gpt2", "adamw")
    step(model, optim, 0)
    monkeypatch.setattr("tokenmill.training.optimizer.DIVIDE_IN_STEP", ())
    scales = set[object]()

    def noting(*tensors: list[Tensor], grad_scale: object, **options: object) -> None:
        scales.add(grad_scale)
        adamw(*tensors, grad_scale=grad_scale, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("tokenmill.training.optimizer.adamw", noting)
    step(other, theirs, 0)
    assert scales == {None}
    for ours, clipped in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, clipped)


def test_a_step_forgets_the_gradients():
    model, optim = made("modern", "muon")
    step(model, optim, 0)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_adamw_goes_on_from_lies_on_the_gpu():
    """One that computes nothing: fake tensors know where they lie."""
    gpu = torch.device("cuda", 0)
    with FakeTensorMode():
        model = empty_model(model_config(architecture="gpt2"), "cuda")
        optim = Optimizer(model, train_params(optimizer="adamw"), Compute(gpu, torch.float32))
        for _ in range(2):
            for parameter in model.parameters():
                parameter.grad = torch.empty_like(parameter)
            optim._update(torch.ones((), device=gpu), unless=torch.zeros((), device=gpu))
            assert {value.device for value in optim.state().values()} == {gpu}
            optim.load({name: torch.empty(v.shape) for name, v in optim.state().items()})


@pytest.mark.parametrize(
    ("multiplies_bfloat16", "compute"),
    [(False, CPU), (True, CPU), (True, BY_NAME)],
    ids=["float32", "bfloat16", "float32 by name"],
)
@pytest.mark.parametrize(("architecture", "optimizer"), EVERY)
def test_a_longer_gradient_counts_as_one_of_the_bound(
    architecture: str,
    optimizer: str,
    multiplies_bfloat16: bool,
    compute: Compute,
    monkeypatch: pytest.MonkeyPatch,
):
    """In both of Muon's precisions, whichever this processor would choose; float32 by name takes
    no bfloat16.

    Muon's iteration enlarges small singular values, and with them what bfloat16 rounds (2^-8 of a
    value): the weights differ by up to 2.4e-4 then, and by 5e-3 where the bound is left out.
    """
    monkeypatch.setattr(
        "tokenmill.training.optimizer.multiplies_bfloat16", lambda _: multiplies_bfloat16
    )
    rounds = multiplies_bfloat16 and not compute.exact_float32
    atol = 5e-4 if rounds and optimizer == "muon" else 1e-6
    model, optim = made(architecture, optimizer, compute)
    other, by_hand = made(architecture, optimizer, compute)
    for number, (max_norm, factor) in enumerate(((0.5, 0.5), (math.inf, 1.0), (2.0, 1.0))):
        draws = torch.Generator().manual_seed(number)
        gradients = {
            name: torch.randn(p.shape, generator=draws) for name, p in model.named_parameters()
        }
        length = math.sqrt(sum(g.square().sum().item() for g in gradients.values()))
        for each, scale in ((model, 1 / length), (other, factor / length)):
            for name, parameter in each.named_parameters():
                parameter.grad = gradients[name] * scale
        optim.set_rates(0.01)
        optim.max_norm = max_norm
        norm = optim.step(ONE)
        assert norm.item() == pytest.approx(1.0, rel=1e-5)  # of up to half a million numbers
        by_hand.set_rates(0.01)
        by_hand.step(ONE)
    for (name, value), (_, same) in zip(values(model).items(), values(other).items(), strict=True):
        torch.testing.assert_close(value, same, rtol=1e-4, atol=atol, msg=name)
    state = by_hand.state()
    for name, value in optim.state().items():
        torch.testing.assert_close(value, state[name], rtol=1e-4, atol=1e-9, msg=name)


@pytest.mark.parametrize(("architecture", "optimizer"), EVERY)
@pytest.mark.parametrize("compute", [CPU, HALF], ids=["float32", "float16"])
def test_a_reloaded_optimizer_takes_the_same_next_steps(
    architecture: str, optimizer: str, compute: object
):
    model, optim = made(architecture, optimizer, compute)
    for number in range(3):
        step(model, optim, number, compute)
    weights = values(model)
    state = {name: value.clone() for name, value in optim.state().items()}

    again, optim_again = made(architecture, optimizer, compute)
    again.load_state_dict(weights)
    assert optim_again.fits(state)
    optim_again.load(state)
    assert_same_bits(optim_again.state(), state)
    for number in range(3, 6):
        step(model, optim, number, compute)
        step(again, optim_again, number, compute)
    assert_same_bits(values(again), values(model))
    assert_same_bits(optim_again.state(), optim.state())

    fresh, optim_fresh = made(architecture, optimizer, compute)
    fresh.load_state_dict(weights)
    for number in range(3, 6):
        step(fresh, optim_fresh, number, compute)
    assert any(not torch.equal(values(fresh)[n], values(model)[n]) for n in weights), (
        "without its state it would differ"
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_float16_overflow_changes_no_weight_but_the_scale(optimizer: str):
    model, optim = made("modern", optimizer, HALF)
    before = values(model)
    scale = optim._scaler.get_scale()
    assert optim.skips_overflow
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, math.inf)
    optim._scaler.scale(torch.ones(()))
    optim.set_rates(0.01)
    assert not math.isfinite(optim.step(ONE).item())
    assert_same_bits(values(model), before)
    assert optim._scaler.get_scale() == scale / 2
    assert optim.fits(optim.state())


def test_the_loss_scale_is_part_of_the_state():
    _, optim = made("modern", "adamw", HALF)
    model, other = made("modern", "adamw", HALF)
    optim._scaler.scale(torch.ones(()))
    optim._scaler.update(512.0)
    other.load(optim.state())
    step(model, other, 0, HALF)
    assert other._scaler.get_scale() == 512.0
    assert not made("modern", "adamw")[1].skips_overflow


@pytest.mark.parametrize(("architecture", "optimizer"), EVERY)
@pytest.mark.parametrize("bad", ["loss", "norm"])
def test_what_is_not_finite_changes_nothing_then_or_later(
    architecture: str, optimizer: str, bad: str
):
    model, optim = made(architecture, optimizer)
    step(model, optim, 0)
    before = values(model)
    state = {name: value.clone() for name, value in optim.state().items()}
    for number in range(2):
        optim.backward(model(torch.full((1, 8), number), torch.zeros(1, 8, dtype=torch.long)))
        loss = ONE
        if number == 0 and bad == "loss":
            loss = ONE * math.nan
        elif number == 0:
            next(model.parameters()).grad.fill_(math.nan)  # type: ignore[union-attr]
        optim.set_rates(0.01)
        optim.step(loss)
        assert_same_bits(values(model), before)
        assert_same_bits(optim.state(), state)
        assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("steps_before", [0, 2])
def test_a_device_that_decides_for_itself_decides_the_same(
    optimizer: str, steps_before: int, monkeypatch: pytest.MonkeyPatch
):
    """The way of a GPU, which the optimizers can go on the CPU as well."""
    model, optim = made("modern", optimizer)
    other, waiting = made("modern", optimizer)
    for number in range(steps_before):
        step(model, optim, number)
        step(other, waiting, number)
    for part in (optim, waiting):
        part.set_rates(0.01)
    before = values(model)
    for verdict, gradient in ((True, math.nan), (False, 0.5), (True, math.inf), (False, -0.25)):
        for parameter in [*model.parameters(), *other.parameters()]:
            parameter.grad = torch.full_like(parameter, gradient)
        for part, devices in ((optim, ("cpu",)), (waiting, ())):
            monkeypatch.setattr("tokenmill.training.optimizer.DECIDE_IN_STEP", devices)
            part._update(ONE, unless=torch.tensor(verdict))
        assert_same_bits(values(model), values(other))
        assert verdict == all(
            torch.equal(values(model)[name], value) for name, value in before.items()
        )
        before = values(model)
    assert_same_bits(optim.state(), waiting.state())


def test_a_float16_overflow_in_one_part_skips_the_other_too():
    model, optim = made("modern", "muon", HALF)
    before = values(model)
    for name, parameter in model.named_parameters():
        parameter.grad = torch.full_like(
            parameter, math.inf if name == "blocks.0.up.weight" else 1.0
        )
    optim._scaler.scale(ONE)
    optim.set_rates(0.01)
    optim.step(ONE)
    assert_same_bits(values(model), before)
    step(model, optim, 0, HALF)
    assert any(not torch.equal(values(model)[name], value) for name, value in before.items()), (
        "the next one counts"
    )
