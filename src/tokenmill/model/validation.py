"""The loss of a model without an update, perplexity and bits per byte."""

import math

import numpy as np
import torch

from tokenmill.model.device import Compute, is_out_of_memory
from tokenmill.model.gpt import GPT, loss_of
from tokenmill.model.sequences import Sequences


@torch.no_grad()
def mean_loss(
    model: GPT, sequences: Sequences, index: np.ndarray, *, micro_batch: int, compute: Compute, shrink: bool = True
) -> float:
    """Mean cross-entropy over the sequences `index`, in nats, without dropout.

    Args:
        micro_batch: sequences that go through the model at the same time.
        shrink: halve `micro_batch` when memory runs out. Processes that compute together must not, because the others
            would wait for them.
    """
    was_training = model.training
    model.eval()
    losses, sizes = [], []
    while (start := sum(sizes)) < len(index):
        part = index[start : start + micro_batch]
        try:
            with compute.autocast():
                losses.append(loss_of(model, *sequences.gather(part)))
            sizes.append(len(part))
        except Exception as error:
            if not is_out_of_memory(error) or micro_batch == 1 or not shrink:
                raise
            micro_batch //= 2
    model.train(was_training)
    return float(np.average(torch.stack(losses).cpu().double().numpy(), weights=sizes))


def bits_per_byte(loss: float, *, tokens: int, text_bytes: int) -> float:
    """A loss in nats per token as bits per byte of text, which does not depend on the tokenizer."""
    return loss / math.log(2) * tokens / text_bytes


def perplexity(loss: float) -> float:
    """The exponential of a loss in nats per token; infinite where that overflows."""
    return math.exp(loss) if loss < 700 else math.inf
