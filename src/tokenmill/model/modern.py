"""A GPT with what has been learned since GPT-2, in the exact form of nanochat (Karpathy 2025).

Rotary positions (Su et al. 2021), queries and keys normalised (Henry et al. 2020), RMSNorm without weights (Zhang
and Sennrich 2019), ReLU² (So et al. 2021), no biases, an untied head, logits capped at ±15 by tanh (Gemma Team
2024). Hugging Face `transformers` knows it as `NanoChatForCausalLM`; a test compares the two.
Axes: B batch, H heads, T positions, K features per head, D width, V vocabulary.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tokenmill.model.config import ModelConfig
from tokenmill.model.loss import next_token_loss
from tokenmill.model.ops import attend, capped, relu_squared, rms_norm, rotate

LOGIT_CAP = 15.0


ROPE_BASE = 10_000.0


def rotary_angles(context_length: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotations, (context_length, K / 2) each."""
    frequency = ROPE_BASE ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angle = torch.outer(torch.arange(context_length, dtype=torch.float32), frequency)
    return angle.cos(), angle.sin()


class Attention(nn.Module):
    """Multi-head causal self-attention with rotary positions and normalised queries and keys."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_head, self.head_dim, self.dropout = config.n_head, config.head_dim, config.dropout
        self.q, self.k, self.v, self.out = (nn.Linear(config.n_embd, config.n_embd, bias=False) for _ in range(4))

    def forward(self, x_BTD: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        together = F.linear(x_BTD, torch.cat((self.q.weight, self.k.weight, self.v.weight)))
        q_and_k, v = together.unflatten(-1, (-1, self.head_dim)).transpose(1, 2).tensor_split((2 * self.n_head,), 1)
        q, k = rotate(rms_norm(q_and_k), cos_TK, sin_TK).chunk(2, dim=1)
        dropout = self.dropout if self.training else 0.0
        return self.out(attend(q, k, v, dropout=dropout))


class Block(nn.Module):
    """Attention and a four times wider perceptron, each behind a norm and beside a shortcut."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention = Attention(config)
        self.up = nn.Linear(config.n_embd, 4 * config.n_embd, bias=False)
        self.down = nn.Linear(4 * config.n_embd, config.n_embd, bias=False)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x_BTD: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x_BTD = x_BTD + self.drop(self.attention(rms_norm(x_BTD), cos_TK, sin_TK))
        return x_BTD + self.drop(self.down(relu_squared(self.up(rms_norm(x_BTD)))))


class Modern(nn.Module):
    """The whole model: ids in, logits out."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.cos: Tensor
        self.sin: Tensor
        for name in ("cos", "sin"):
            self.register_buffer(name, torch.empty(config.context_length, config.head_dim // 2), persistent=False)

    def set_angles(self) -> None:
        """Compute the rotations, on the CPU: the same for every device."""
        cos, sin = rotary_angles(self.config.context_length, self.config.head_dim)
        self.cos.copy_(cos)
        self.sin.copy_(sin)

    def initialize(self) -> None:
        """Compute the rotations and draw the starting weights from PyTorch's current random state.

        Matrices into a branch are uniform with variance 1 / D, those out of it zero, so that every block starts as
        the identity. The embedding is normalised at once, so its scale only sets how fast it learns.
        """
        self.set_angles()
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.head.weight, std=0.001)
        bound = math.sqrt(3 / self.config.n_embd)
        for name, parameter in self.blocks.named_parameters():
            if name.endswith(("attention.out.weight", "down.weight")):
                nn.init.zeros_(parameter)
            else:
                nn.init.uniform_(parameter, -bound, bound)

    def forward(self, ids_BT: Tensor, targets_BT: Tensor | None = None) -> Tensor:
        """Ids (B, T) -> logits (B, T, V) in float32, or with targets their mean loss in nats."""
        return self.trunk(self.tokens(ids_BT), targets_BT)

    def trunk(self, x_BTD: Tensor, targets_BT: Tensor | None) -> Tensor:
        """`forward` from looked up embeddings on."""
        x_BTD = self.drop(rms_norm(x_BTD))
        cos, sin = (angle[: x_BTD.shape[1]] for angle in (self.cos, self.sin))
        cos_TK, sin_TK = torch.cat((cos, cos), dim=-1), torch.cat((sin, -sin), dim=-1)
        for block in self.blocks:
            x_BTD = block(x_BTD, cos_TK, sin_TK)
        x_BTD = rms_norm(x_BTD)
        if targets_BT is not None:
            return next_token_loss(x_BTD, self.head.weight, targets_BT, cap=LOGIT_CAP)
        return capped(self.head(x_BTD).float(), LOGIT_CAP)
