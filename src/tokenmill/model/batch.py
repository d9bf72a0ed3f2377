"""Texts written side by side: their tokens, keys and values, and one step for all of them.

Every text has a row, every step fills one slot in all rows, so that texts of different lengths end at the same slot. A
row knows which slots it can see. Where the slots run out they are used again from the first: attention does not ask for
their order, for keys carry their positions.
Axes: B texts, R some of them, T tokens read at once, S slots, D width, H heads, K features per head, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from tokenmill.model.decoder import Decoder

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
