"""A GPT with improvements made since GPT-2, in the exact form of nanochat (Karpathy 2025).

Rotary positions (Su et al. 2021), normalised queries and keys (Henry et al. 2020), RMSNorm without
weights (Zhang and Sennrich 2019), ReLU² (So et al. 2021), no biases, an untied head, logits capped
at ±15 by tanh (Gemma Team 2024). Hugging Face `transformers` knows it as `NanoChatForCausalLM`; a
test compares the two. Axes: B batch, H heads, T positions, K features per head, D width, V
vocabulary.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tokenmill.model import ops
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import GPT, LayerCache, TrainingMemory
from tokenmill.model.ops import (
    NORM_EPS,
    apply_rotary,
    attend,
    relu_squared,
    rms_norm,
    stream_dtype,
)

LOGIT_CAP = 15.0
ROPE_BASE = 10_000.0

Rotation = tuple[Tensor, Tensor]
"""Cosine and sine of each position and feature, (T, K) each; see `apply_rotary`."""


def rotary_angles(context_length: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotations, (context_length, K / 2) each."""
    frequency = ROPE_BASE ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angle = torch.outer(torch.arange(context_length, dtype=torch.float32), frequency)
    return angle.cos(), angle.sin()


class Attention(nn.Module):
    """Multi-head causal self-attention with rotary positions and normalised queries and keys."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_head = config.n_head
        self.head_dim = config.head_dim
        self.dropout = config.dropout
        self.q, self.k, self.v, self.out = (
            nn.Linear(config.n_embd, config.n_embd, bias=False) for _ in range(4)
        )

    def forward(
        self, x_BTD: Tensor, rotation: Rotation, cache: LayerCache | None, mask: Tensor | None
    ) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        maps = (self.q, self.k, self.v)
        if x_BTD.shape[1] > 1 and self.q.weight.requires_grad:
            # One larger product is faster, although the weights are copied for it; maps with LoRA
            # must be called.
            qkv = F.linear(x_BTD, torch.cat([each.weight for each in maps]))
        else:
            qkv = torch.cat([each(x_BTD) for each in maps], dim=-1)
        qk, v = (
            qkv.unflatten(-1, (-1, self.head_dim))
            .transpose(1, 2)
            .tensor_split((2 * self.n_head,), 1)
        )
        cos_TK, sin_TK = rotation
        # Flash attention's result lies in memory as its queries do, and so it needs no copy
        if ops.for_gpu(qk):
            qk = apply_rotary(
                rms_norm(qk.transpose(1, 2)), cos_TK[:, None], sin_TK[:, None]
            ).transpose(1, 2)
        else:
            qk = apply_rotary(rms_norm(qk), cos_TK, sin_TK)
        q, k = qk.chunk(2, dim=1)
        if cache is not None:
            k, v = cache.extend(k, v)
        dropout = self.dropout if self.training else 0.0
        return self.out(attend(q, k, v, dropout=dropout, mask_B1TT=mask))


class Block(nn.Module):
    """Attention and a four times wider perceptron, each after a norm and with a shortcut around
    both."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention = Attention(config)
        self.up = nn.Linear(config.n_embd, 4 * config.n_embd, bias=False)
        self.down = nn.Linear(4 * config.n_embd, config.n_embd, bias=False)
        self.drop = ops.Dropout(config.dropout)

    def forward(
        self, x_BTD: Tensor, rotation: Rotation, cache: LayerCache | None, mask: Tensor | None
    ) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x_BTD = x_BTD + self.drop(self.attention(rms_norm(x_BTD), rotation, cache, mask))
        return x_BTD + self.drop(self.down(relu_squared(self.up(rms_norm(x_BTD)))))


class NanoChat(GPT):
    """The whole model: ids in, logits or loss out."""

    hf_names = (
        ("tokens.", "model.embed_tokens."),
        ("head.", "lm_head."),
        ("blocks.", "model.layers."),
        (".attention.out.", ".self_attn.o_proj."),
        (".attention.q.", ".self_attn.q_proj."),
        (".attention.k.", ".self_attn.k_proj."),
        (".attention.v.", ".self_attn.v_proj."),
        (".up.", ".mlp.fc1."),
        (".down.", ".mlp.fc2."),
    )

    norm = staticmethod(rms_norm)
    logit_cap = LOGIT_CAP

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.drop = ops.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.cos: Tensor
        self.sin: Tensor
        for name in ("cos", "sin"):
            self.register_buffer(
                name, torch.empty(config.context_length, config.head_dim // 2), persistent=False
            )

    def compute_buffers(self) -> None:
        """Compute the rotations, on the CPU, so that they are the same on every device. They carry
        the square root of the scale of attention, because queries and keys are both rotated."""
        cos, sin = rotary_angles(self.config.context_length, self.config.head_dim)
        self.cos.copy_(cos * self.config.attention_scale**0.5)
        self.sin.copy_(sin * self.config.attention_scale**0.5)

    def initialize(self) -> None:
        """Compute the rotations and draw the starting weights from PyTorch's current random state.

        Matrices that lead into a branch are uniform with variance 1 / D; those that lead out of it
        are zero, so that every block starts as the identity. The embedding is normalised at once,
        so its scale only sets how fast it learns.
        """
        self.compute_buffers()
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.head.weight, std=0.001)
        bound = math.sqrt(3 / self.config.n_embd)
        for name, parameter in self.blocks.named_parameters():
            if name.endswith(("attention.out.weight", "down.weight")):
                nn.init.zeros_(parameter)
            else:
                nn.init.uniform_(parameter, -bound, bound)

    def enter(self, x_BTD: Tensor, start: int) -> tuple[Tensor, Rotation]:
        """The normed embeddings, and the rotations of their positions, which attention makes; see
        `GPT.enter`."""
        cos, sin = (angle[start : start + x_BTD.shape[1]] for angle in (self.cos, self.sin))
        rotation = torch.cat((cos, cos), dim=-1), torch.cat((sin, -sin), dim=-1)
        return self.drop(rms_norm(x_BTD)), rotation

    @staticmethod
    def hf_config(config: ModelConfig) -> dict[str, Any]:
        """The configuration of `NanoChatForCausalLM`."""
        return {
            "architectures": ["NanoChatForCausalLM"],
            "model_type": "nanochat",
            "hidden_act": "relu2",
            "hidden_size": config.n_embd,
            "intermediate_size": 4 * config.n_embd,
            "num_hidden_layers": config.n_layer,
            "num_attention_heads": config.n_head,
            "num_key_value_heads": config.n_head,
            "max_position_embeddings": config.context_length,
            "final_logit_softcapping": LOGIT_CAP,
            "rms_norm_eps": NORM_EPS,
            "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_BASE},
            "attention_bias": False,
        }

    @staticmethod
    def training_memory(config: ModelConfig, precision: torch.dtype) -> TrainingMemory:
        """See `GPT.training_memory`.

        A block keeps 19 widths in the precision of the products: 2 normed inputs, 3 queries, keys
        and values, 2 normed and 2 rotated queries and keys, 1 attended and 1 copy of it, 4 before
        and 4 behind ReLU². Beside a residual stream of another precision it also keeps the 2 normed
        inputs in that. Beside all scores of attention it keeps only the values of queries, keys and
        values, and one copy of what is attended. In float32 it copies the matrices of queries, keys
        and values for one product.
        """
        stream = stream_dtype(precision)
        kept_twice = 0 if stream == precision else 2 * stream.itemsize
        copies = 12 * config.n_layer * config.n_embd**2
        return TrainingMemory(
            block_bytes=(19 * precision.itemsize + kept_twice) * config.n_embd,
            scores_spare_bytes=3 * precision.itemsize * config.n_embd,
            other_bytes=3 * stream.itemsize * config.n_embd,
            weight_copy_bytes=copies if precision == torch.float32 else 0,
            logit_tensors=3,
            compiled_share=1.15,
        )


MODEL = NanoChat
