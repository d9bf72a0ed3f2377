"""Which tokens come when: every sequence once an epoch, in an order given by seed and epoch.

The tokens of a split are cut into sequences of `context_length`; a sequence's targets are its tokens shifted by one.
What a step sees follows from its number, so a resumed run needs no position. Axes: N sequences, B batch, T positions,
W = T + 1 tokens of a sequence and its last target.
"""

import numpy as np


class EpochSampler:
    """The order of sequences: a permutation per epoch, cut into steps."""

    def __init__(self, *, sequences: int, per_step: int, seed: int):
        """Order that many sequences, `per_step` to an optimizer step; the last step of an epoch takes what is left."""
        self.sequences, self.per_step, self.seed = sequences, per_step, seed
        self.steps_per_epoch = -(-sequences // per_step)
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def indices_at(self, step: int) -> np.ndarray:
        """The sequences of step `step`, counted from 0 over all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, np.random.default_rng((self.seed, epoch)).permutation(self.sequences)
        return self._order[position * self.per_step : (position + 1) * self.per_step]


def split_into_micro_batches(
    index: np.ndarray, *, micro_batch: int, rank: int, size: int
) -> list[tuple[np.ndarray, float]]:
    """What process `rank` of `size` computes of a step's sequences `index`, at most `micro_batch` at a time.

    With each micro-batch comes the weight of its mean gradient, such that the mean over all processes of the sum over
    their micro-batches is the mean over the step's sequences. All processes get the same number of micro-batches; one
    that has a sequence less fills up with a sequence that weighs nothing.
    """
    shares = np.array_split(index, size)
    count = -(-len(shares[0]) // micro_batch)
    starts = range(0, count * micro_batch, micro_batch)
    cut = [shares[rank][start : start + micro_batch] for start in starts]
    return [(part, size * len(part) / len(index)) if len(part) else (index[:1], 0.0) for part in cut]
