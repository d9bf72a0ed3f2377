"""The tokens of a split as sequences of `context_length`, and the mean loss of a model on them.

The targets of a sequence are the same tokens shifted by one. A packed sequence holds several whole
texts.

Axes: N sequences, B batch, T positions, W = T + 1 tokens of a sequence and its last target, L = 3
layers: inputs, targets, and where the text of each position starts.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import psutil
import torch
from torch import Tensor
from torch.nn import functional as F

from tokenmill.core.errors import UserError
from tokenmill.formats.token_blocks import CompressedTokens
from tokenmill.formats.token_file import other_form
from tokenmill.formats.token_row import Tokens
from tokenmill.model.device import Compute, is_out_of_memory
from tokenmill.model.gpt import GPT
from tokenmill.model.ops import IGNORED, LOGITS_AT_A_TIME

Done = TypeVar("Done")

MAX_MEMORY_SHARE = 0.5
"""Tokens take at most this share of the host's free memory; the model needs the rest."""

MAX_GPU_SHARE = 0.1
"""Tokens take at most this share of a GPU's free memory."""

Index = np.ndarray | Tensor
"""The numbers of sequences, (B,) int64, in host memory or on the tokens' device."""


class Sequences:
    """The sequences of one split; each batch is gathered by one vectorised index.

    Copies to a GPU are asynchronous, so the next batch is gathered while the GPU computes a step.
    No other prefetching, and no thread, is needed.
    """

    heaviest: int = 1
    """The weight of a sequence in a mean if all its targets count."""

    def __init__(self, rows_NW: Tensor, *, device: torch.device):
        """Take sequences as rows of integers, on any device, which may overlap in memory; their
        batches are returned on `device`."""
        self._rows_N = rows_NW
        self.count = len(rows_NW)
        self._device = device

    def weight(self, index_B: Index) -> int:
        """The weight of these sequences together in a mean of losses."""
        return len(index_B)

    def gather(self, index_B: Index, *, at_least: int = 0) -> tuple[Tensor, ...]:
        """What a model takes of these sequences: inputs and targets, and of packed ones where the
        text of each position starts; (B, T) int64 each, on the device.

        If there are fewer than `at_least`, the last one is repeated to fill up, with targets of
        `IGNORED`.
        """
        given = len(index_B)
        index = torch.as_tensor(index_B)
        if given < at_least:
            index = torch.cat([index, index[-1:].expand(at_least - given)])
        layers = self._layers(_to_device(self._rows(index), self._device))
        if given < at_least:
            layers[1][given:] = IGNORED
        return layers

    def _rows(self, index_B: Tensor) -> Tensor:
        """The tokens of these sequences; (B, W) integers, where the tokens are."""
        return torch.index_select(self._rows_N, 0, _to_device(index_B, self._rows_N.device))

    def _layers(self, rows_B: Tensor) -> tuple[Tensor, ...]:
        """What `gather` returns of such rows."""
        return rows_B[:, :-1].long(), rows_B[:, 1:].long()


class CompressedSequences(Sequences):
    """The sequences that begin at each of the tokens in a compressed file."""

    def __init__(self, tokens: CompressedTokens, *, context_length: int, device: torch.device):
        """Cut them out of `tokens`, at least `context_length` + 1."""
        self.count = len(tokens) - context_length
        self._tokens = tokens
        self._width = context_length + 1
        self._device = device

    def _rows(self, index_B: Tensor) -> Tensor:
        return torch.from_numpy(self._tokens.windows(index_B.numpy(), self._width))


def sequences_anywhere(
    tokens: Tensor | CompressedTokens, *, context_length: int, device: torch.device
) -> Sequences:
    """The sequences that begin at each token: the number of one is that of its first token.

    Args:
        tokens: as `place_tokens` gives them.
    """
    if isinstance(tokens, CompressedTokens):
        return CompressedSequences(tokens, context_length=context_length, device=device)
    return Sequences(tokens.unfold(0, context_length + 1, 1), device=device)


class PackedTexts(Sequences):
    """Sequences of several whole texts, none of which attends to another; some targets are
    `IGNORED`.

    A mean loss is the mean over all targets that count, in whichever sequence they are.
    """

    def __init__(self, layers_NLT: np.ndarray, *, device: torch.device):
        """Take the sequences of `layers_NLT` (int32): inputs, targets of which at least one counts,
        and starts, if there are several texts in one."""
        super().__init__(torch.from_numpy(layers_NLT), device=device)
        self.heaviest = layers_NLT.shape[2]
        self._counts_N = (layers_NLT[:, 1] != IGNORED).sum(1)

    def weight(self, index_B: Index) -> int:
        """The number of targets that count."""
        return int(self._counts_N[index_B].sum())

    def _layers(self, rows_B: Tensor) -> tuple[Tensor, ...]:
        return rows_B.long().unbind(1)


class WholeText(PackedTexts):
    """A text as sequences of which the last may be short: every token but the first is a target.

    So a mean loss with the bytes of the text gives its bits per byte.
    """

    def __init__(self, ids: np.ndarray, *, context_length: int, device: torch.device):
        """Take the text `ids`, (tokens,) int32, of at least two tokens. Behind its end inputs are 0
        and targets `IGNORED`."""
        short_by = -(len(ids) - 1) % context_length
        padded = np.pad(ids, (0, short_by), constant_values=IGNORED)
        inputs_NT, targets_NT = (
            row.reshape(-1, context_length) for row in (padded[:-1].clip(min=0), padded[1:])
        )
        super().__init__(np.stack([inputs_NT, targets_NT], axis=1), device=device)


def loss_on(
    model: GPT, sequences: Sequences, index: Index, *, micro_batch: int, compute: Compute
) -> Tensor:
    """Mean cross-entropy over the targets of at most `micro_batch` sequences, in nats; a scalar.

    A GPU always gets `micro_batch` sequences, so that code is compiled for one shape; those that
    fill up add nothing.
    """
    rows = max(len(index), micro_batch) if compute.device.type == "cuda" else len(index)
    with compute.autocast():
        loss = model(*sequences.gather(index, at_least=rows))
    full = rows * sequences.heaviest
    counted = sequences.weight(index)
    return loss * (full / counted) if full > counted else loss


def _to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy without waiting for the device. For that, CUDA needs pinned memory."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=device.type != "mps")


def place_tokens(
    tokens: Tokens, placement: str, device: torch.device, *, processes: int = 1
) -> tuple[Tensor | CompressedTokens, str]:
    """Tokens where `runtime.token_placement` puts them, and the name of that place.

    Args:
        tokens: as `open_tokens` gives them.
        placement: `device`, `memory`, `mmap`, `compressed`, or `auto` for the fastest that has
            room.
        device: the device of the model.
        processes: how many processes of this machine do the same.

    Raises:
        UserError: `mmap` or `compressed` is not the form in which `unpack` wrote the tokens.
    """
    compressed = isinstance(tokens, CompressedTokens)
    if problem := other_form(placement, compressed=compressed):
        raise UserError(problem)
    on_disk = "compressed" if compressed else "mmap"
    place = placement
    if place == "auto":
        size = len(tokens) * torch.int32.itemsize
        place = _fastest_memory(size, device, processes) or on_disk
    if place == on_disk:
        return (tokens if compressed else _as_tensor(tokens)), place
    tensor = _as_tensor(tokens[:] if compressed else np.array(tokens))
    return (tensor.to(device) if place == "device" else tensor), place


def _fastest_memory(size: int, device: torch.device, processes: int) -> str | None:
    """The fastest memory that has room for so many bytes; None if none has."""
    if device.type == "cuda" and size < MAX_GPU_SHARE * torch.cuda.mem_get_info(device)[0]:
        return "device"
    free = psutil.virtual_memory().available / processes
    return "memory" if size < MAX_MEMORY_SHARE * free else None


def _as_tensor(tokens: np.ndarray) -> Tensor:
    """A tensor that shares the array's memory. PyTorch's warning about read-only memory is
    silenced, because nothing here writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(tokens)


@torch.no_grad()
def token_losses(model: GPT, text: WholeText, *, micro_batch: int, compute: Compute) -> np.ndarray:
    """The cross-entropy of each target of a text, in nats, without dropout; (targets,) float32.

    Args:
        model: the model.
        text: the text.
        micro_batch: the most sequences that go through the model at the same time. It is halved
            when memory runs out, and fewer do if their logits are more than LOGITS_AT_A_TIME.
    """
    was_training = model.training
    model.eval()
    logits = text.heaviest * model.config.vocab_size
    micro_batch = min(micro_batch, max(1, LOGITS_AT_A_TIME // logits))
    everything = np.arange(text.count)
    losses = np.empty(text.weight(everything), dtype=np.float32)
    begin = 0
    for part in by_parts(
        everything,
        lambda index: _losses_of_each(model, text, index, compute),
        micro_batch=micro_batch,
    ):
        losses[begin : begin + len(part)] = part
        begin += len(part)
    model.train(was_training)
    return losses


def _losses_of_each(model: GPT, text: WholeText, index: np.ndarray, compute: Compute) -> np.ndarray:
    """The losses of the targets of these sequences."""
    inputs_BT, targets_BT = text.gather(index)
    with compute.autocast():
        logits_BTV = model(inputs_BT)
    targets_M = targets_BT.flatten()
    losses_M = F.cross_entropy(
        logits_BTV.flatten(0, 1).float(), targets_M, ignore_index=IGNORED, reduction="none"
    )
    return losses_M[targets_M != IGNORED].cpu().numpy()


def by_parts(
    index: np.ndarray,
    work: Callable[[np.ndarray], Done],
    *,
    micro_batch: int,
    shrink: bool = True,
) -> Iterator[Done]:
    """What `work` makes of the numbers `index`, at most `micro_batch` of them at a time. That is
    halved when memory runs out, if `shrink`.

    A caller should copy each result into one place. A small result that stays lies where the large
    tensors of the next part would fit, so memory would grow by these tensors with every part.
    """
    start = 0
    while start < len(index):
        part = index[start : start + micro_batch]
        try:
            done = work(part)
        except Exception as error:
            if not is_out_of_memory(error) or micro_batch == 1 or not shrink:
                raise
            micro_batch //= 2
        else:
            yield done
            start += len(part)


@torch.no_grad()
def mean_loss(
    model: GPT,
    sequences: Sequences,
    index: np.ndarray,
    *,
    micro_batch: int,
    compute: Compute,
    shrink: bool = True,
) -> float:
    """Mean cross-entropy over the sequences `index`, in nats, without dropout.

    Args:
        micro_batch: sequences that go through the model at the same time.
        shrink: halve `micro_batch` when memory runs out. Processes that compute together must not,
            because the others would wait for them.
    """
    was_training = model.training
    model.eval()
    losses = torch.empty(len(index), device=compute.device)
    weights = list[int]()
    for loss, weight in by_parts(
        index,
        lambda part: (
            loss_on(model, sequences, part, micro_batch=micro_batch, compute=compute),
            sequences.weight(part),
        ),
        micro_batch=micro_batch,
        shrink=shrink,
    ):
        losses[len(weights)] = loss
        weights.append(weight)
    model.train(was_training)
    return float(np.average(losses[: len(weights)].cpu().double().numpy(), weights=weights))


def bits_per_byte(loss: float, *, tokens: int, text_bytes: int) -> float:
    """A loss in nats per token as bits per byte of text, which does not depend on the tokenizer."""
    return loss / math.log(2) * tokens / text_bytes


def perplexity(loss: float) -> float:
    """The exponential of a loss in nats per token; infinite where that overflows."""
    return math.exp(loss) if loss < 700 else math.inf
