"""Which tokens come when: every sequence once an epoch, in an order given by seed and epoch.

The tokens of a split are cut into sequences of `context_length`; a sequence's targets are its tokens shifted by one.
What a step sees follows from its number, so a resumed run needs no position. Axes: N sequences, B batch, T positions,
W = T + 1 tokens of a sequence and its last target.
"""

import numpy as np
import torch
from torch import Tensor


class Sequences:
    """The sequences of one split, gathered by one vectorised index per batch.

    A GPU is told what to copy and never waited for. So while it computes a step, whoever launches it is free to gather
    the next batch: that is all the prefetching there is, and no thread takes part.
    """

    def __init__(self, tokens: Tensor, *, context_length: int, device: torch.device):
        """Cut `tokens` (1-D integers, anywhere) into sequences; batches are handed out on `device`.

        The last tokens that fill no sequence of `context_length` plus one target are left out.
        """
        self.count = (len(tokens) - 1) // context_length
        # Each row ends with the token that the next one begins with: its last target.
        self._rows_NW = tokens.as_strided((self.count, context_length + 1), (context_length, 1))
        self._device = device

    def gather(self, index_B: np.ndarray) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these sequences: (B, T) int64 each, on the device."""
        rows_NW = self._rows_NW
        index = _sent(torch.from_numpy(index_B), rows_NW.device)
        shape = (len(index), rows_NW.shape[1])
        pinned = _is_far(rows_NW, self._device)
        picked_BW = torch.empty(shape, dtype=rows_NW.dtype, device=rows_NW.device, pin_memory=pinned)
        ids_BW = _sent(torch.index_select(rows_NW, 0, index, out=picked_BW), self._device)
        return ids_BW[:, :-1].long(), ids_BW[:, 1:].long()


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on this device, without waiting until it is there; CUDA needs pinned memory for that."""
    if _is_far(tensor, device) and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=device.type != "mps")


def _is_far(tensor: Tensor, device: torch.device) -> bool:
    return device.type == "cuda" and tensor.device.type == "cpu"


def evenly_spread(sequences: int, at_most: int) -> np.ndarray:
    """At most so many sequence numbers, evenly spread, always the same ones."""
    count = min(sequences, at_most)
    return np.arange(count, dtype=np.int64) * sequences // count
