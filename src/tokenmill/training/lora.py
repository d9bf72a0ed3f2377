"""LoRA: a trained model learns by two thin matrices beside each large one, which stays as it is.

A map W (out, in) becomes W + alpha / rank · B A, with A (rank, in) random and B (out, rank) zero at
the start (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1). The
model holds this sum, so it is called, measured and saved like any other, and a forward pass costs
no more than before. The gradient of the sum is never computed, only those of A and B. What is
learned is also saved in the format of the library PEFT.

Axes: M positions of a batch, I inputs of a map, O its outputs, R rank.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.autograd import Function

from tokenmill.core.files import write_beside, write_json
from tokenmill.core.paths import damaged
from tokenmill.model.config import LoraParams, ModelConfig
from tokenmill.model.gpt import GPT, outline
from tokenmill.model.huggingface import hf_name, read_weights
from tokenmill.model.manifest import ADAPTER, ADAPTER_CONFIG


class LoraLinear(nn.Linear):
    """A linear map that learns by `lora_A` (R, I) and `lora_B` (O, R). Its `weight` is the sum, and
    frozen."""

    def __init__(self, layer: nn.Linear, rank: int, scale: float, generator: torch.Generator):
        super().__init__(layer.in_features, layer.out_features, device="meta")
        self.weight = layer.weight
        self.bias = layer.bias
        self.scale = scale
        self.before: Tensor
        self.register_buffer("before", layer.weight.detach().clone(), persistent=False)
        bound = 1 / math.sqrt(layer.in_features)
        self.lora_A = nn.Parameter(
            torch.empty(rank, layer.in_features).uniform_(-bound, bound, generator=generator)
        )
        self.lora_B = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (PyTorch's signature)
        """(..., I) -> (..., O)."""
        y = super().forward(input)
        return _LowRank.apply(y, input, self.lora_A, self.lora_B, self.scale)  # type: ignore[return-value]


class _LowRank(Function):
    """Returns y = x Wᵀ as it is; `backward` adds the gradients of A and B, which need no gradient
    of W."""

    @staticmethod
    def forward(  # noqa: PLR0917 (apply takes no keywords)
        ctx: Any, y: Tensor, x: Tensor, a_RI: Tensor, b_OR: Tensor, scale: float
    ) -> Tensor:
        ctx.save_for_backward(x.to(y.dtype), a_RI, b_OR)
        ctx.scale = scale
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, a_RI, b_OR = ctx.saved_tensors
        x_MI = x.flatten(0, -2)
        by_y_MO = gradient.flatten(0, -2)
        # A wide product is faster than a tall one
        by_b_OR = ((x_MI @ a_RI.T.to(x.dtype)).T @ by_y_MO).T
        by_a_RI = (by_y_MO @ b_OR.to(x.dtype)).T @ x_MI
        return gradient, None, by_a_RI.float() * ctx.scale, by_b_OR.float() * ctx.scale, None


def adapt(model: GPT, lora: LoraParams, *, seed: int) -> GPT:
    """Freeze a whole model, and let the maps of `lora` learn. Return the model, which still
    computes the same."""
    model.requires_grad_(False)
    model.lora = lora
    generator = torch.Generator().manual_seed(seed)
    for name in _targets(model, lora):
        layer = LoraLinear(model.get_submodule(name), lora.rank, lora.alpha / lora.rank, generator)  # type: ignore[arg-type]
        model.set_submodule(name, layer)
    return model


def _targets(model: GPT, lora: LoraParams) -> list[str]:
    """The names of the maps that learn, from the first block to the last."""
    maps = lora.maps(model.config)
    return [
        f"blocks.{name}"
        for name, _ in model.blocks.named_modules()
        if name.rpartition(".")[2] in maps
    ]


def trained_parameters(config: ModelConfig, lora: LoraParams) -> int:
    """The number of parameters that learn."""
    model = outline(config)
    return sum(
        lora.rank * sum(model.get_parameter(f"{name}.weight").shape)
        for name in _targets(model, lora)
    )


@torch.no_grad()
def merge(model: GPT) -> None:
    """Compute the sum of each LoRA map from its A and B again, in exact float32."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    for layer in model.modules():
        if isinstance(layer, LoraLinear):
            torch.addmm(
                layer.before, layer.lora_B, layer.lora_A, alpha=layer.scale, out=layer.weight
            )
    torch.set_float32_matmul_precision(precision)


def _learned(model: GPT) -> Iterator[tuple[str, nn.Parameter]]:
    """The matrices A and B under the names that PEFT gives them."""
    for name, parameter in model.named_parameters():
        if name.endswith(("lora_A", "lora_B")):
            yield f"base_model.model.{hf_name(model, name)}.weight", parameter


def save_adapter(model: GPT, folder: Path) -> None:
    """Write what a model has learned by LoRA in the format of PEFT."""
    assert model.lora
    tensors = {
        name: parameter.detach().float().cpu().contiguous() for name, parameter in _learned(model)
    }
    content = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": model.lora.rank,
        "lora_alpha": model.lora.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": bool(model.hf_transposed),
        "target_modules": sorted({".".join(name.split(".")[-4:-2]) for name in tensors}),
        "inference_mode": True,
    }
    write_json(folder / ADAPTER_CONFIG, content)
    with write_beside(folder / ADAPTER) as path:
        safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def load_adapter(model: GPT, folder: Path) -> None:
    """Load what a model had learned by LoRA when `folder` was written."""
    tensors = read_weights(folder / ADAPTER)
    learned = dict(_learned(model))
    if {name: each.shape for name, each in tensors.items()} != {
        name: each.shape for name, each in learned.items()
    }:
        raise damaged(folder / ADAPTER, "has matrices of other maps or of another rank")
    for name, parameter in learned.items():
        parameter.data.copy_(tensors[name])
    merge(model)
