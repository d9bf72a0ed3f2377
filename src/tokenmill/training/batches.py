"""Which tokens come when: every window once an epoch, in an order given by seed and epoch.

The tokens of a split are cut into windows of `context_length`; a window's targets are its tokens shifted by one.
What a step sees follows from its number, so a resumed run needs no position. Axes: N windows, B batch, T positions,
W = T + 1 tokens of a window and its last target.
"""

import numpy as np
import torch
from torch import Tensor


class Windows:
    """The windows of one split, gathered by one vectorised index per batch.

    A GPU is told what to copy and never waited for. So while it computes a step, whoever launches it is free to gather
    the next batch: that is all the prefetching there is, and no thread takes part.
    """

    def __init__(self, tokens: Tensor, *, context_length: int, device: torch.device):
        """Cut `tokens` (1-D integers, anywhere) into windows; batches are handed out on `device`.

        The last tokens that fill no window of `context_length` plus one target are left out.
        """
        self.count = (len(tokens) - 1) // context_length
        # Each row ends with the token that the next one begins with: its last target.
        self._rows_NW = tokens.as_strided((self.count, context_length + 1), (context_length, 1))
        self._device = device

    def gather(self, index_B: np.ndarray) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these windows: (B, T) int64 each, on the device."""
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


class EpochOrder:
    """The order of windows: a permutation per epoch, cut into steps."""

    def __init__(self, *, windows: int, per_step: int, seed: int):
        """Order `windows` windows, `per_step` to an optimizer step; the last step of an epoch takes what is left."""
        self.windows, self.per_step, self.seed = windows, per_step, seed
        self.steps_per_epoch = -(-windows // per_step)
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def at(self, step: int) -> np.ndarray:
        """The windows of step `step`, counted from 0 over all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, np.random.default_rng((self.seed, epoch)).permutation(self.windows)
        return self._order[position * self.per_step : (position + 1) * self.per_step]


def pieces(index: np.ndarray, *, micro_batch: int, rank: int, size: int) -> list[tuple[np.ndarray, float]]:
    """What process `rank` of `size` computes of a step's windows `index`, at most `micro_batch` at a time.

    With each piece comes the weight of its mean gradient, such that the mean over all processes of the sum over their
    pieces is the mean over the step's windows. All processes get the same number of pieces; one that has a window less
    fills up with a window that weighs nothing.
    """
    shares = np.array_split(index, size)
    count = -(-len(shares[0]) // micro_batch)
    starts = range(0, count * micro_batch, micro_batch)
    cut = [shares[rank][start : start + micro_batch] for start in starts]
    return [(part, size * len(part) / len(index)) if len(part) else (index[:1], 0.0) for part in cut]


def evenly_spread(windows: int, at_most: int) -> np.ndarray:
    """At most so many window numbers, evenly spread, always the same ones."""
    count = min(windows, at_most)
    return np.arange(count, dtype=np.int64) * windows // count
