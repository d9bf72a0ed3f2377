"""Muon for all matrices of a shape at once gives what PyTorch's gives one after another."""

import copy
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tokenmill.training import optimizer as optimizer_module
from tokenmill.training.optimizer import Muon, _iterated, momentum_at, orthogonal

PYTORCHS = ((3.4445, -4.7750, 2.0315),) * 5
SHAPES = [(8, 8), (8, 8), (8, 32), (32, 8), (5, 7)]


def matrices(seed: int) -> list[Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draws) for shape in SHAPES]


def trainable() -> list[Tensor]:
    return [torch.nn.Parameter(matrix) for matrix in matrices(0)]


def no_means(parameters: list[Tensor]) -> dict[Tensor, dict[str, Tensor]]:
    return {p: {"momentum_buffer": torch.zeros_like(p)} for p in parameters}


def test_momentum_rises_to_its_value():
    assert [momentum_at(step) for step in (0, 150, 300, 10**6)] == pytest.approx(
        [0.85, 0.90, 0.95, 0.95]
    )


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("decay", "momentum"), [(0.0, 0.95), (0.1, 0.85)])
def test_with_its_coefficients_the_updates_are_those_of_pytorch(
    decay: float, momentum: float, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(optimizer_module, "POLAR_EXPRESS", PYTORCHS)
    ours = trainable()
    theirs = copy.deepcopy(ours)
    muon = Muon(precision, decay=decay)
    means = no_means(ours)
    torchs = torch.optim.Muon(
        theirs, lr=0.02, weight_decay=decay, momentum=momentum, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(1, 6):
        for mine, other, gradient in zip(ours, theirs, matrices(step), strict=True):
            mine.grad = gradient.clone()
            other.grad = gradient.clone()
        muon.update(ours, means, {"lr": 0.02, "momentum": momentum}, torch.ones(()), None)
        torchs.step()
        for mine, other, start in zip(ours, theirs, matrices(0), strict=True):
            # Theirs iterates in bfloat16
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-3)
            assert (mine - start).abs().max() > 0.005


def test_compiled_with_tensors_for_rates_it_does_the_same():
    ours = trainable()
    theirs = copy.deepcopy(ours)
    compiler = partial(torch.compile, dynamic=False, backend="aot_eager")
    plain = Muon(torch.float32, decay=0.1)
    compiled = Muon(torch.float32, decay=0.1, compiler=compiler)
    means, other_means = no_means(ours), no_means(theirs)
    for step in (1, 2):
        for mine, other, gradient in zip(ours, theirs, matrices(step), strict=True):
            mine.grad = gradient.clone()
            other.grad = gradient.clone()
        rates = {"lr": 0.02 / step, "momentum": 0.8 + step / 10}
        in_tensors = {name: torch.tensor(rate) for name, rate in rates.items()}
        plain.update(ours, means, rates, torch.tensor(2.0), torch.zeros(()))
        compiled.update(theirs, other_means, in_tensors, torch.tensor(2.0), torch.zeros(()))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(other, mine, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("count", "size"), [(5, 3), (2, 4), (4, 2)])
def test_processes_share_the_matrices(count: int, size: int):
    x = torch.randn(count, 4, 6, generator=torch.Generator().manual_seed(0))
    parts: list[Tensor] = []

    def all_gather(part: Tensor, *, rows: int) -> Tensor:
        parts.append(part)
        return x

    for rank in range(size):
        group: Any = SimpleNamespace(rank=rank, size=size, all_gather=all_gather)
        Muon(torch.float32, decay=0.0, group=group)._orthogonal_by_all(x)
    assert max(map(len, parts)) == math.ceil(count / size)
    torch.testing.assert_close(torch.cat(parts), orthogonal(x, torch.float32))


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 8, 32), (2, 7, 15), (2, 64, 64)])
def test_float32_and_bfloat16_go_the_same_way(shape: tuple[int, ...]):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    exact = orthogonal(x, torch.float32)
    quick = orthogonal(x, torch.bfloat16)
    torch.testing.assert_close(quick.float(), exact, rtol=0, atol=0.05)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("rest", [1e-6, 1e-3, 0.003, 0.01, 0.1, 1.0])
@settings(max_examples=30)
@given(large=st.lists(st.floats(0.3, 1.0), min_size=1, max_size=4), seed=st.integers(0, 2**31))
def test_singular_values_end_near_one(
    large: list[float], seed: int, rest: float, precision: torch.dtype
):
    """Also where one is as large as all together, as in a gradient of rank one: there bfloat16 is
    at its coarsest."""
    u, values, v = torch.linalg.svd(
        torch.randn(1, 8, 12, generator=torch.Generator().manual_seed(seed)), full_matrices=False
    )
    values[:] = rest
    values[0, : len(large)] = torch.tensor(large)
    x = u * values @ v
    ends = torch.linalg.svdvals(orthogonal(x, precision).float())[0]
    assert ends.max() < 1.25
    if precision == torch.float32:  # bfloat16 rounds as much as the smallest of them are
        assert ends[values[0] / x.norm() >= 0.003].min() > 0.74


@pytest.mark.parametrize("columns", [16, 31, 32, 64])
@pytest.mark.parametrize("smallest", [1e-1, 1e-3, 1e-6])
def test_the_short_way_ends_where_the_iteration_does(columns: int, smallest: float):
    draws = torch.Generator().manual_seed(columns)
    rows, spectrum, more = torch.linalg.svd(
        torch.randn(3, 16, columns, generator=draws), full_matrices=False
    )
    x = rows * torch.logspace(0, math.log10(smallest), spectrum.shape[-1]) @ more
    exact = _iterated(x.double() / x.double().norm(dim=(1, 2), keepdim=True))
    torch.testing.assert_close(orthogonal(x, torch.float32).double(), exact, rtol=0, atol=1e-3)


def test_nothing_changes_where_a_gradient_is_not_finite():
    ours = trainable()
    muon = Muon(torch.float32, decay=0.1)
    kept = no_means(ours)
    rates = {"lr": 0.02, "momentum": 0.95}
    for mine, gradient in zip(ours, matrices(1), strict=True):
        mine.grad = gradient
    muon.update(ours, kept, rates, torch.ones(()), None)
    before = [parameter.detach().clone() for parameter in ours]
    means = [kept[parameter]["momentum_buffer"].clone() for parameter in ours]
    for mine in ours:
        mine.grad = torch.full_like(mine, torch.inf)
    muon.update(ours, kept, rates, torch.ones(()), torch.ones(()))
    for mine, weight, mean in zip(ours, before, means, strict=True):
        assert torch.equal(mine, weight)
        assert torch.equal(kept[mine]["momentum_buffer"], mean)
