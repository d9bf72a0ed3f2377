"""GPT-2 as published (Radford et al. 2019, section 2.3), with an untied head.

Pre-LayerNorm blocks, learned positions, GELU in its tanh form, biases everywhere but in the head.
Weights start as N(0, 0.02), the projections back into the residual stream as N(0, 0.02 / sqrt(2
n_layer)). Hugging Face `transformers` knows it as `GPT2LMHeadModel`; a test compares the two.
Compiled for a GPU, three layers have a form with which Inductor, PyTorch's compiler, makes fewer
passes over memory (`python -m tests.cuda.traffic` counts them). Axes: B batch, T positions, M = B *
T rows, D and E widths, V vocabulary.
"""

import math
from typing import Any

import torch
from torch import Size, Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from tokenmill.model import ops
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import GPT, KVCache, LayerCache, TrainingMemory
from tokenmill.model.ops import attend, gelu, stream_dtype


def rows(x_BTD: Tensor) -> Tensor:
    """Flatten (B, T, D) -> (M, D) when compiling for a GPU.

    Inductor fuses operations that have the same axes. The gradient of a (B, T, D) sum would need a
    pass of its own to be rounded for a matrix product, which has rows.
    """
    return x_BTD.flatten(0, 1) if ops.for_gpu(x_BTD) else x_BTD


def shaped(x: Tensor, shape: Size) -> Tensor:
    """The inverse of `rows`: x in this shape."""
    return x if x.shape == shape else x.view(shape)


class LayerNorm(nn.LayerNorm):
    """LayerNorm that keeps its normalised input in the precision of the products. Inductor would
    keep it in float32."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (PyTorch's signature)
        """Any shape (..., D) -> the same shape."""
        if not ops.for_gpu(input):
            # A sharded model gathers them in half precision
            weight, bias = self.weight.float(), self.bias.float()
            return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)
        return _LayerNorm.apply(input, self.weight, self.bias, self.eps, ops.product_dtype(input))  # type: ignore[return-value]


class _LayerNorm(Function):
    @staticmethod
    def forward(  # noqa: PLR0917 (`apply` takes no keywords)
        ctx: Any, x: Tensor, weight_D: Tensor, bias_D: Tensor, eps: float, kept: torch.dtype
    ) -> Tensor:
        x_f32 = x.float()
        variance, mean = torch.var_mean(x_f32, -1, correction=0, keepdim=True)
        scale = (variance + eps).rsqrt()
        normed = (x_f32 - mean) * scale
        ctx.save_for_backward(normed.to(kept), scale, weight_D)
        return ops.in_precision(normed * weight_D + bias_D, x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        normed, scale, weight_D = ctx.saved_tensors
        by_y = gradient.float()
        normed = normed.float()
        by_normed = by_y * weight_D
        along = (by_normed * normed).mean(-1, keepdim=True)
        by_x = (by_normed - by_normed.mean(-1, keepdim=True) - normed * along) * scale
        by_weight_D = (by_y * normed).flatten(0, -2).sum(0)
        by_bias_D = by_y.flatten(0, -2).sum(0)
        return by_x.to(gradient.dtype), by_weight_D, by_bias_D, None, None


class LinearBeforeFunction(nn.Linear):
    """A linear map before an elementwise function, whose pass over memory also adds the bias.

    The gradient of the bias is first summed within each sequence. These sums have the axes of the
    pass that computes the gradient, so they take no pass of their own.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (PyTorch's signature)
        """(B, T, D) -> (B, T, E), on a GPU in float32."""
        if not ops.for_gpu(input):
            return super().forward(input)
        return F.linear(input, self.weight) + self.bias.float().expand(len(input), 1, -1)


class Attention(nn.Module):
    """Multi-head causal self-attention. One matrix gives queries, keys and values."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.out = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x_BTD: Tensor, cache: LayerCache | None, mask: Tensor | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        q, k, v = (
            h.unflatten(-1, (self.n_head, -1)).transpose(1, 2)
            for h in self.qkv(x_BTD).chunk(3, dim=-1)
        )
        if cache is not None:
            k, v = cache.extend(k, v)
        dropout = self.dropout if self.training else 0.0
        return self.out(attend(q, k, v, dropout=dropout, mask_B1TT=mask))


class Block(nn.Module):
    """Attention and a four times wider perceptron, each with a LayerNorm and a shortcut."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm_1 = LayerNorm(config.n_embd)
        self.attention = Attention(config)
        self.norm_2 = LayerNorm(config.n_embd)
        self.up = LinearBeforeFunction(config.n_embd, 4 * config.n_embd)
        self.down = nn.Linear(4 * config.n_embd, config.n_embd)
        self.drop = ops.Dropout(config.dropout)

    def forward(self, x_BTD: Tensor, cache: LayerCache | None, mask: Tensor | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        shape = x_BTD.shape
        x = rows(x_BTD)
        x = x + rows(self.drop(self.attention(shaped(self.norm_1(x), shape), cache, mask)))
        x = x + rows(self.drop(self.down(gelu(self.up(shaped(self.norm_2(x), shape))))))
        return shaped(x, shape)


class GPT2(GPT):
    """The whole model: ids in, logits or loss out."""

    hf_names = (
        ("tokens.", "transformer.wte."),
        ("positions.", "transformer.wpe."),
        ("norm.", "transformer.ln_f."),
        ("head.", "lm_head."),
        ("blocks.", "transformer.h."),
        (".norm_1.", ".ln_1."),
        (".norm_2.", ".ln_2."),
        (".attention.qkv.", ".attn.c_attn."),
        (".attention.out.", ".attn.c_proj."),
        (".up.", ".mlp.c_fc."),
        (".down.", ".mlp.c_proj."),
    )
    hf_transposed = ("qkv.weight", "out.weight", "up.weight", "down.weight")

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.positions = nn.Embedding(config.context_length, config.n_embd)
        self.drop = ops.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = LayerNorm(config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def initialize(self) -> None:
        """Draw the starting weights from PyTorch's current random state."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "norm" in name:
                nn.init.ones_(parameter)
            else:
                residual = name.endswith(("attention.out.weight", "down.weight"))
                nn.init.normal_(
                    parameter, std=0.02 / (math.sqrt(2 * self.config.n_layer) if residual else 1.0)
                )

    def embed(self, ids_BT: Tensor, starts_BT: Tensor | None, cache: KVCache | None) -> Tensor:
        """Tokens and positions; see `GPT.embed`."""
        start = 0 if cache is None else cache.length
        position_T = torch.arange(start, start + ids_BT.shape[1], device=ids_BT.device)
        own_T = position_T if starts_BT is None else position_T - starts_BT
        return self.drop(self.tokens(ids_BT) + self.positions(own_T))

    @staticmethod
    def hf_config(config: ModelConfig) -> dict[str, Any]:
        """The configuration of `GPT2LMHeadModel`."""
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "activation_function": "gelu_new",
            "attn_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "resid_pdrop": config.dropout,
            "n_positions": config.context_length,
            "n_embd": config.n_embd,
            "n_layer": config.n_layer,
            "n_head": config.n_head,
        }

    @staticmethod
    def training_memory(config: ModelConfig, precision: torch.dtype) -> TrainingMemory:
        """See `GPT.training_memory`.

        A block keeps 2 widths of the residual stream (the inputs of its norms) and 14 in the
        precision of the products: 1 normed, 3 queries, keys and values, 1 attended, 1 normed, 4
        before and 4 behind GELU. Outside the blocks are the input of the last norm and the gradient
        of its output, which the loss computes at once.
        """
        stream_bytes = stream_dtype(precision).itemsize
        return TrainingMemory(
            block_bytes=(2 * stream_bytes + 14 * precision.itemsize) * config.n_embd,
            scores_spare_bytes=0,
            other_bytes=2 * stream_bytes * config.n_embd,
            weight_copy_bytes=0,
            logit_tensors=2,
            compiled_share=1.07,
        )


MODEL = GPT2
