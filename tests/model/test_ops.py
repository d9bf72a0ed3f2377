"""The loss in chunks of rows against PyTorch's loss of all logits at once, the padded vocabulary
of a GPU, and compiled operations against ordinary ones."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tests.model.small import ARCHITECTURES, small_config
from tokenmill.model import ops
from tokenmill.model.gpt import build
from tokenmill.model.gpt2 import _LayerNorm

SIZES = st.integers(1, 7)


@settings(max_examples=80, deadline=None)
@given(
    batch=SIZES,
    positions=SIZES,
    width=SIZES,
    vocabulary=st.integers(2, 90),
    cap=st.sampled_from([None, 15.0, 1.5]),
    padding=st.none() | st.integers(0, 70),
    rows=st.integers(1, 50),
    seed=st.integers(0, 99),
)
def test_loss_and_gradients_are_those_of_all_logits_at_once(
    *,
    batch: int,
    positions: int,
    width: int,
    vocabulary: int,
    cap: float | None,
    padding: int | None,
    rows: int,
    seed: int,
):
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(
        batch * positions, width, generator=draws, dtype=torch.float64, requires_grad=True
    )
    head = torch.randn(vocabulary, width, generator=draws, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(vocabulary, (batch * positions,), generator=draws)
    logits = x @ head.T if cap is None else cap * torch.tanh(x @ head.T / cap)
    expected = F.cross_entropy(logits.float(), targets)
    ours = ops._Loss.apply(x, head, targets, cap, x.dtype, padding, rows, True)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    weight = 3.0  # micro-batches scale the loss
    for got, wanted in zip(
        torch.autograd.grad(weight * ours, (x, head)),
        torch.autograd.grad(weight * expected, (x, head)),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_loss_of_a_model_is_that_of_its_logits(architecture: str):
    model = build(small_config(architecture), seed=0)
    for parameter in model.parameters():  # else the starting logits are nearly nothing
        torch.nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(1))
    ids = torch.randint(23, (3, 12), generator=torch.Generator().manual_seed(2))
    targets = ids.roll(1, 1)
    expected = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    got = model(ids, targets_BT=targets)
    torch.testing.assert_close(got, expected)
    for ours, theirs in zip(
        torch.autograd.grad(got, [*model.parameters()]),
        torch.autograd.grad(expected, [*model.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_the_vocabulary_does_not_change_the_loss(architecture: str):
    model = build(small_config(architecture), seed=0)
    ids = torch.zeros(1, 3, dtype=torch.long)
    assert model(ids).shape[-1] == len(model.head.weight) == 23
    plain, padded = (
        ops._Loss.apply(
            torch.ones(2, 16),
            model.head.weight,
            torch.tensor([22, 0]),
            None,
            torch.float32,
            padding,
            9,
            True,
        )
        for padding in (None, -23 % ops.ALIGNED)
    )
    assert torch.equal(plain, padded), "zeros among the logits would raise the loss"


@pytest.mark.parametrize("cap", [None, 15.0])
def test_an_ignored_target_adds_nothing(cap: float | None):
    x = torch.randn(6, 5, requires_grad=True)
    head = torch.randn(30, 5, requires_grad=True)
    targets = torch.tensor([3, 29, 0, 7, ops.IGNORED, ops.IGNORED])
    few = ops._Loss.apply(x[:4], head, targets[:4], cap, x.dtype, 2, 4, True)
    all_ = ops._Loss.apply(x, head, targets, cap, x.dtype, 2, 4, True)
    torch.testing.assert_close(all_ * 6, few * 4)
    for ours, theirs in zip(
        torch.autograd.grad(all_ * 6, (x, head)),
        torch.autograd.grad(few * 4, (x, head)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("padding", [None, 2])
def test_the_gradient_of_the_head_stays_within_float16(padding: int | None):
    """Summed as it is, 2,000 rows of 60 would leave the range, which ends at 65,504."""
    x = torch.full((2000, 4), 60.0)
    head = torch.zeros(30, 4, requires_grad=True)
    loss = ops._Loss.apply(
        x, head, torch.zeros(2000, dtype=torch.long), None, torch.float16, padding, 2000, True
    )
    (gradient,) = torch.autograd.grad(loss, head)
    assert gradient[0].tolist() == pytest.approx([-60 * 29 / 30] * 4, rel=1e-3)


@pytest.mark.parametrize(
    ("compiled", "most"), [(False, ops.LOGITS_AT_A_TIME), (True, ops.COMPILED_LOGITS)]
)
def test_a_gpu_gets_few_pieces_of_one_size(compiled: bool, most: int):
    rows = ops.rows_at_a_time(64 * 512, 50_257, on_gpu=True, compiled=compiled)
    assert rows % ops.ALIGNED_ROWS == 0
    assert (rows - ops.ALIGNED_ROWS) * 50_257 < most
    assert 64 * 512 % rows == 0 or not compiled, "a shorter last one would need kernels of its own"


def test_logits_at_a_time_stay_below_the_limit(monkeypatch: pytest.MonkeyPatch):
    largest = [0]
    highest = torch.Tensor.amax

    def note(logits: torch.Tensor, axis: int, *, keepdim: bool) -> torch.Tensor:
        largest[0] = max(largest[0], logits.numel())
        return highest(logits, axis, keepdim=keepdim)

    monkeypatch.setattr(torch.Tensor, "amax", note)
    monkeypatch.setattr(ops, "LOGITS_AT_A_TIME", 100)
    x = torch.randn(4, 8, 5, requires_grad=True)
    head = torch.randn(30, 5, requires_grad=True)
    ops.next_token_loss(x, head, torch.zeros(4, 8, dtype=torch.long), cap=None).backward()
    assert 0 < largest[0] <= 100


class Products(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten.mm.default
        return func(*args, **kwargs or {})


@pytest.mark.parametrize(("mode", "products"), [(torch.enable_grad, 3), (torch.no_grad, 1)])
def test_without_gradients_the_head_is_multiplied_once(mode: Any, products: int):
    x = torch.randn(4, 8, 5, requires_grad=True)
    head = torch.randn(30, 5, requires_grad=True)
    targets = torch.zeros(4, 8, dtype=torch.long)
    expected = ops.next_token_loss(x, head, targets, cap=15.0).detach()
    with mode(), Products() as seen:
        found = ops.next_token_loss(x, head, targets, cap=15.0)
    assert seen.count == products
    assert torch.equal(found.detach(), expected)


COMPILED: dict[str, Callable[[Tensor], Tensor]] = {
    "rms_norm": ops.rms_norm,
    "apply_rotary": lambda x: ops.apply_rotary(x, torch.full((8,), 0.6), torch.full((8,), 0.8)),
    "relu_squared": ops.relu_squared,
    "gelu": ops.gelu,
    "layer_norm": lambda x: _LayerNorm.apply(  # type: ignore[return-value]
        x, torch.full((8,), 1.5), torch.full((8,), 0.5), 1e-5, x.dtype
    ),
}


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_functions_have_the_same_gradient(name: str, dtype: torch.dtype):
    """PyTorch 2.11 lost the gradient where the last operation made no new tensor."""
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    towards = torch.arange(32.0).view(4, 8)
    gradients = []
    for function in (
        COMPILED[name],
        torch.compile(COMPILED[name], dynamic=False, backend="eager"),
    ):
        leaf = x.clone().requires_grad_()
        (function(leaf) * towards).sum().backward()
        gradients.append(leaf.grad)
    assert gradients[0].abs().sum() > 0
    torch.testing.assert_close(gradients[1], gradients[0])


SIN = torch.tensor([0.8] * 4 + [-0.8] * 4)
FORMULAS: list[tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = [
    (ops.rms_norm, lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()),
    (
        lambda x: ops.apply_rotary(x, torch.full((8,), 0.6), SIN),
        lambda x: 0.6 * x + SIN * x.roll(4, -1),
    ),
    (ops.relu_squared, lambda x: x.relu().square()),
    (ops.gelu, lambda x: F.gelu(x, approximate="tanh")),
]


@pytest.mark.parametrize(("ours", "formula"), FORMULAS, ids=[*COMPILED][: len(FORMULAS)])
def test_values_and_gradients_are_those_of_the_formula(
    ours: Callable[[Tensor], Tensor], formula: Callable[[Tensor], Tensor]
):
    """Also where numbers are so small that the norm's constant counts."""
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    x[2:] *= 1e-3
    found = []
    for function in (ours, formula):
        leaf = x.clone().requires_grad_()
        y = function(leaf)
        (y * torch.arange(32.0).view(4, 8)).sum().backward()
        found.append((y.detach(), leaf.grad))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)
    with torch.inference_mode():
        torch.testing.assert_close(ours(x), found[1][0], rtol=1e-4, atol=1e-6)


def test_the_residual_stream_is_not_float16():
    """Its range is too small for a sum over all blocks."""
    for products, stream in (
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
    ):
        assert ops.stream_dtype(products) == stream


def test_compiled_attention_drops_out():
    """In torch 2.11 a compiled function takes itself for an exported one, whose attention once had
    no dropout."""
    draws = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, ops.MAX_PLAIN_LENGTH, 4, generator=draws) for _ in range(3))
    compiled = torch.compile(ops.attend, dynamic=False, backend="eager")
    assert not torch.equal(compiled(q, k, v, dropout=0.5), compiled(q, k, v, dropout=0.0))


def test_long_texts_attend_and_drop_out_as_short_ones(monkeypatch: pytest.MonkeyPatch):
    """PyTorch's own kernel takes the same mask and the same dropout."""
    draws = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 9, 4, generator=draws) for _ in range(3))
    mask = ops.own_text_mask(torch.tensor([[0] * 4 + [4] * 5, [0] * 9]))
    short = [ops.attend(q, k, v, dropout=0.0, mask_B1TT=each) for each in (None, mask)]
    monkeypatch.setattr(ops, "MAX_PLAIN_LENGTH", 8)
    for each, expected in zip((None, mask), short, strict=True):
        torch.testing.assert_close(ops.attend(q, k, v, dropout=0.0, mask_B1TT=each), expected)
        dropped = ops.attend(q, k, v, dropout=0.5, mask_B1TT=each)
        assert (dropped - expected).abs().max() > 0.1


@given(
    share=st.floats(0.0, 0.95),
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    seed=st.integers(0, 99),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_dropout_keeps_or_zeroes_and_its_gradient_does_the_same(
    share: float, shape: list[int], seed: int, dtype: torch.dtype
):
    torch.manual_seed(seed)
    x = torch.ones(shape, dtype=dtype, requires_grad=True)
    y = ops.dropout(x, share)
    y.sum().backward()
    assert y.dtype == dtype
    kept = y[y != 0].float()
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - share)), rtol=8e-3, atol=0)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, y.detach(), rtol=0, atol=0)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 0.9])
def test_dropout_draws_its_share_independently(share: float):
    torch.manual_seed(0)
    dropped = (ops.dropout(torch.ones(2**20), share) == 0).float()
    error = (share * (1 - share) / 2**20) ** 0.5
    assert abs(dropped.mean().item() - share) < 5 * error + 2**-17
    for distance in (1, 2, 3, 4):
        both = (dropped[distance:] * dropped[:-distance]).mean().item()
        assert abs(both - share**2) < 5 * error


def test_dropout_does_not_depend_on_threads():
    threads = torch.get_num_threads()
    found = []
    for count in (1, 2):
        torch.set_num_threads(count)
        torch.manual_seed(3)
        found.append(ops.dropout(torch.ones(100_003), 0.3))
    torch.set_num_threads(threads)
    assert torch.equal(*found)
