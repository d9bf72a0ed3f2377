"""GPT-2 as published (Radford et al. 2019, section 2.3), with an untied head.

Pre-LayerNorm blocks, learned positions, GELU in its tanh form, biases everywhere but in the head. Weights start
as N(0, 0.02), the projections back into the residual stream as N(0, 0.02 / sqrt(2 n_layer)).
Axes: B batch, T positions, D width, V vocabulary.
"""

import math

import torch
from torch import Tensor, nn

from tokenmill.model.config import ModelConfig
from tokenmill.model.loss import next_token_loss
from tokenmill.model.ops import attend, gelu


class Attention(nn.Module):
    """Multi-head causal self-attention; queries, keys and values from one matrix."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_head, self.dropout = config.n_head, config.dropout
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.out = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        q, k, v = (h.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for h in self.qkv(x_BTD).chunk(3, dim=-1))
        dropout = self.dropout if self.training else 0.0
        return self.out(attend(q, k, v, dropout=dropout))


class Block(nn.Module):
    """Attention and a four times wider perceptron, each behind a LayerNorm and beside a shortcut."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.n_embd)
        self.attention = Attention(config)
        self.norm_2 = nn.LayerNorm(config.n_embd)
        self.up = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.down = nn.Linear(4 * config.n_embd, config.n_embd)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x_BTD = x_BTD + self.drop(self.attention(self.norm_1(x_BTD)))
        return x_BTD + self.drop(self.down(gelu(self.up(self.norm_2(x_BTD)))))


class GPT2(nn.Module):
    """The whole model: ids in, logits out."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.positions = nn.Embedding(config.context_length, config.n_embd)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.n_embd)
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
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * self.config.n_layer) if residual else 1.0))

    def forward(self, ids_BT: Tensor, targets_BT: Tensor | None = None) -> Tensor:
        """Ids (B, T) -> logits (B, T, V), or with targets their mean loss in nats."""
        position_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        return self.trunk(self.drop(self.tokens(ids_BT) + self.positions(position_T)), targets_BT)

    def trunk(self, x_BTD: Tensor, targets_BT: Tensor | None) -> Tensor:
        """`forward` from looked up embeddings on."""
        for block in self.blocks:
            x_BTD = block(x_BTD)
        x_BTD = self.norm(x_BTD)
        if targets_BT is not None:
            return next_token_loss(x_BTD, self.head.weight, targets_BT, cap=None)
        return self.head(x_BTD)
