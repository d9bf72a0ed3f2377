"""A model laid out for writing: what happens to one token outside attention, in as few operations as can be.

For so little work at a time the calls themselves cost most. So matrices lie the way that a product from the right reads
them, queries, keys and values come from one of them, and constant factors (the scale of attention, that of RMSNorm) are
multiplied into them beforehand. The numbers are those of the model up to rounding, which tests compare.
Axes: N tokens (of one text or of several), D width, H heads, K features per head, V vocabulary.

Texts written side by side: their tokens, keys and values, and one step for all of them.

Every text has a row, every step fills one slot in all rows, so that texts of different lengths end at the same slot. A
row knows which slots it can see. Where the slots run out they are used again from the first: attention does not ask for
their order, for keys carry their positions.
Axes: B texts, R some of them, T tokens read at once, S slots, D width, H heads, K features per head, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tokenmill.model.build import GPT
from tokenmill.model.gpt2 import GPT2
from tokenmill.model.gpt2 import Block as GPT2Block
from tokenmill.model.modern import LOGIT_CAP, Modern
from tokenmill.model.modern import Block as ModernBlock
from tokenmill.model.ops import NORM_EPS, capped, gelu


class Decoder(ABC):
    """Weights for writing; nothing in it changes, so that several texts and threads may share it."""

    def __init__(self, model: GPT):
        self.config = model.config
        self.device = model.tokens.weight.device
        self.tokens = model.tokens.weight
        self.head = _right(model.head.weight)

    @abstractmethod
    def start(self, ids_N: Tensor, position_N: Tensor) -> tuple[Tensor, Tensor]:
        """Embed tokens, (N, D); and what turns them by their positions. One position may stand for all."""

    @abstractmethod
    def heads(self, layer: int, x_ND: Tensor, turn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scaled queries, keys and values of one layer, (N, H, K) each."""

    @abstractmethod
    def finish(self, layer: int, x_ND: Tensor, attended_ND: Tensor) -> Tensor:
        """The rest of the layer, from what its heads attended to: (N, D)."""

    @abstractmethod
    def logits(self, x_ND: Tensor) -> Tensor:
        """What may come next: (N, V)."""


def decoder_of(model: GPT) -> Decoder:
    """Lay out a model for writing; its matrices are copied."""
    with torch.no_grad():
        return GPT2Decoder(model) if isinstance(model, GPT2) else ModernDecoder(model)


class GPT2Decoder(Decoder):
    """`gpt2` for writing."""

    def __init__(self, model: GPT2):
        super().__init__(model)
        self.positions, self.norm = model.positions.weight, model.norm
        self.blocks: list[GPT2Block] = list(model.blocks)  # type: ignore[arg-type]
        width, scale = model.config.n_embd, model.config.head_dim**-0.5
        scales = torch.cat((torch.full((width,), scale), torch.ones(2 * width))).to(self.device)
        self.qkv = [
            (block.attention.qkv.bias * scales, _right(block.attention.qkv.weight * scales[:, None]))
            for block in self.blocks
        ]
        self.out, self.up, self.down = (
            [(linear.bias, _right(linear.weight)) for linear in linears]
            for linears in zip(*((block.attention.out, block.up, block.down) for block in self.blocks), strict=True)
        )

    def start(self, ids_N: Tensor, position_N: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and positions have an embedding each; nothing is turned later."""
        return self.tokens[ids_N] + self.positions[position_N], position_N

    def heads(self, layer: int, x_ND: Tensor, turn: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG002
        """One product, then a view."""
        bias, weight = self.qkv[layer]
        together = torch.addmm(bias, _layer_norm(x_ND, self.blocks[layer].norm_1), weight)
        q_NHK, k_NHK, v_NHK = together.view(len(x_ND), 3, self.config.n_head, -1).unbind(1)
        return q_NHK, k_NHK, v_NHK

    def finish(self, layer: int, x_ND: Tensor, attended_ND: Tensor) -> Tensor:
        """Output projection and perceptron, each added to its shortcut."""
        bias, weight = self.out[layer]
        x_ND = torch.addmm(bias, attended_ND, weight).add_(x_ND)
        bias, weight = self.up[layer]
        inside = torch.addmm(bias, _layer_norm(x_ND, self.blocks[layer].norm_2), weight)
        bias, weight = self.down[layer]
        return torch.addmm(bias, gelu(inside), weight).add_(x_ND)

    def logits(self, x_ND: Tensor) -> Tensor:
        """The last norm and the head."""
        return torch.mm(_layer_norm(x_ND, self.norm), self.head)


class ModernDecoder(Decoder):
    """`modern` for writing.

    RMSNorm is division by the length here, its factor sqrt(D) is in the matrix that follows. Features of a head that
    rotary positions turn together lie side by side, as the parts of a complex number.
    """

    def __init__(self, model: Modern):
        super().__init__(model)
        config = model.config
        self.root = config.n_embd**0.5
        self.tokens = F.rms_norm(self.tokens, (config.n_embd,), eps=NORM_EPS)
        self.head = self.head * self.root
        self.eps_D, self.eps_K = (torch.tensor((size * NORM_EPS) ** 0.5) for size in (config.n_embd, config.head_dim))
        blocks: list[ModernBlock] = list(model.blocks)  # type: ignore[arg-type]
        self.qkv = [_right(self._together(block)) * self.root for block in blocks]
        self.out = [_right(block.attention.out.weight) for block in blocks]
        self.up = [_right(block.up.weight) * self.root for block in blocks]
        self.down = [_right(block.down.weight) for block in blocks]
        turn = torch.complex(model.cos, -model.sin)[:, None, None]
        # normalised heads are of length sqrt(K): queries by the scale 1 / sqrt(K) are of length 1
        self.turn = torch.cat((turn, turn * config.head_dim**0.5), dim=1)

    def _together(self, block: ModernBlock) -> Tensor:
        """Queries, keys and values in one matrix, the features that turn together side by side."""
        pairs = (self.config.n_head, 2, -1, self.config.n_embd)
        q, k = (
            linear.weight.view(pairs).transpose(1, 2).reshape(linear.weight.shape)
            for linear in (block.attention.q, block.attention.k)
        )
        return torch.cat((q, k, block.attention.v.weight))

    def start(self, ids_N: Tensor, position_N: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens are normalised beforehand; heads turn by their position."""
        return self.tokens[ids_N], self.turn[position_N]

    def heads(self, layer: int, x_ND: Tensor, turn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One product; queries and keys are brought to one length and turned."""
        together = torch.mm(_unit(x_ND, self.eps_D), self.qkv[layer])
        together = together.view(len(x_ND), 3, self.config.n_head, self.config.head_dim)
        units = _unit(together[:, :2], self.eps_K).unflatten(-1, (-1, 2))
        q_NHK, k_NHK = torch.view_as_real(torch.view_as_complex(units) * turn).flatten(-2).unbind(1)
        return q_NHK, k_NHK, together[:, 2]

    def finish(self, layer: int, x_ND: Tensor, attended_ND: Tensor) -> Tensor:
        """Output projection and perceptron, each added to its shortcut."""
        x_ND = torch.addmm(x_ND, attended_ND, self.out[layer])
        inside = torch.mm(_unit(x_ND, self.eps_D), self.up[layer])
        return torch.addmm(x_ND, inside.relu_().square_(), self.down[layer])

    def logits(self, x_ND: Tensor) -> Tensor:
        """The last norm, the head and its cap."""
        return capped(torch.mm(_unit(x_ND, self.eps_D), self.head), LOGIT_CAP)


def _right(weight: Tensor) -> Tensor:
    """A matrix (out, in) as `x @` reads it fastest: (in, out), in one piece."""
    return weight.detach().float().T.contiguous()


def _unit(x: Tensor, eps: Tensor) -> Tensor:
    """RMSNorm without its factor: divide by the length, to which `eps` is added as another feature."""
    return x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), eps)


def _layer_norm(x_ND: Tensor, norm: nn.LayerNorm) -> Tensor:
    return F.layer_norm(x_ND, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


UNSEEN = -1e30
"""Added to the score of a slot that a row does not see: its weight is 0."""


class Batch:
    """Several texts that one model writes; use inside `torch.inference_mode`."""

    def __init__(self, decoder: Decoder, prompts: Sequence[Sequence[int]], *, room: int):
        """Prepare for texts that begin with `prompts` and grow by `room` tokens at the most."""
        config = decoder.config
        assert all(0 < len(prompt) <= config.context_length for prompt in prompts)
        self._decoder, self._texts = decoder, [list(prompt) for prompt in prompts]
        self._next = max(map(len, prompts))
        self._size = min(config.context_length, self._next + room)
        shape = (len(prompts), config.n_head, self._size, config.head_dim)
        # slots before the shorter of several texts are never written; their weight is 0, but 0 times NaN is NaN
        new = torch.empty if min(map(len, prompts)) == self._next else torch.zeros
        self._keys = [new(shape, device=decoder.device) for _ in range(config.n_layer)]
        self._values = [new(shape, device=decoder.device) for _ in range(config.n_layer)]
        self._lengths = [0] * len(prompts)
        self._unseen = torch.full((len(prompts), self._size), UNSEEN, device=decoder.device)

    def read(self) -> Tensor:
        """Read the prompts; what may come after each, (B, V). Those of one length are read together."""
        by_length: dict[int, list[int]] = {}
        for row, text in enumerate(self._texts):
            by_length.setdefault(len(text), []).append(row)
        parts = [self._read(rows, length) for length, rows in by_length.items()]
        order = torch.tensor([row for rows in by_length.values() for row in rows]).argsort()
        return self._decoder.logits(torch.cat(parts)[order.to(self._decoder.device)])

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Add a token to each text; what may come after it, (B, V). A full context keeps its later half, read anew."""
        self._make_room()
        decoder, slot = self._decoder, self._next % self._size
        for text, token in zip(self._texts, tokens, strict=True):
            text.append(token)
        alike = min(self._lengths) == max(self._lengths)
        position = torch.tensor(self._lengths[:1] if alike else self._lengths, device=decoder.device)
        self._lengths = [length + 1 for length in self._lengths]
        self._next += 1
        self._unseen[:, slot] = 0
        filled = min(self._next, self._size)
        unseen = None if alike and self._lengths[0] == filled else self._unseen[:, None, :filled]
        x_BD, turn = decoder.start(torch.tensor(tokens, device=decoder.device), position)
        for layer in range(decoder.config.n_layer):
            q_BHK, k_BHK, v_BHK = decoder.heads(layer, x_BD, turn)
            keys, values = self._keys[layer], self._values[layer]
            keys.select(2, slot).copy_(k_BHK)
            values.select(2, slot).copy_(v_BHK)
            y_BHK = _attend(q_BHK, keys.narrow(2, 0, filled), values.narrow(2, 0, filled), unseen)
            x_BD = decoder.finish(layer, x_BD, y_BHK.view(x_BD.shape))
        return decoder.logits(x_BD)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the texts only."""
        chosen = torch.tensor(rows, device=self._decoder.device)
        self._texts, self._lengths = [self._texts[row] for row in rows], [self._lengths[row] for row in rows]
        self._keys = [keys[chosen] for keys in self._keys]
        self._values = [values[chosen] for values in self._values]
        self._unseen = self._unseen[chosen]

    def _make_room(self) -> None:
        """Read the later half of the texts whose context is full anew, up to the token that comes next."""
        context = self._decoder.config.context_length
        full = [row for row, length in enumerate(self._lengths) if length == context]
        later = (context + 1) // 2 - 1
        if len(full) == len(self._lengths):
            self._next = later
        if full:
            self._read(full, later)

    def _read(self, rows: list[int], count: int) -> Tensor:
        """Read the last `count` tokens of some texts, as if they were all there is; what the last came to, (R, D)."""
        decoder, device = self._decoder, self._decoder.device
        for row in rows:
            self._lengths[row] = count
        row_R1 = torch.tensor(rows, device=device)[:, None]
        slot_T = torch.arange(self._next - count, self._next, device=device) % self._size
        self._unseen[row_R1[:, 0]] = UNSEEN
        self._unseen[row_R1, slot_T] = 0
        ids_RT = torch.tensor([self._texts[row][len(self._texts[row]) - count :] for row in rows], device=device)
        x_ND, turn = decoder.start(ids_RT.flatten().long(), torch.arange(count, device=device).repeat(len(rows)))
        for layer in range(decoder.config.n_layer):
            q, k, v = (part.unflatten(0, ids_RT.shape) for part in decoder.heads(layer, x_ND, turn))
            self._keys[layer][row_R1, :, slot_T] = k
            self._values[layer][row_R1, :, slot_T] = v
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
            y_RHTK = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
            x_ND = decoder.finish(layer, x_ND, y_RHTK.transpose(1, 2).reshape(x_ND.shape))
        return x_ND.view(len(rows), count, -1)[:, -1] if count else x_ND


def _attend(q_BHK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, unseen_B1S: Tensor | None) -> Tensor:
    """What one new token a row sees in the slots: (B, H, K)."""
    scores_BHS = (k_BHSK @ q_BHK[..., None]).squeeze(-1)
    if unseen_B1S is not None:
        scores_BHS += unseen_B1S
    return (scores_BHS.softmax(-1)[..., None, :] @ v_BHSK).squeeze(-2)
