"""From logits to the next token: the likeliest, or one drawn among those that temperature, top-k and top-p leave.

Axes: B texts, V vocabulary.

Writing text: one token after another, with a cache of keys and values, to the end-of-text or a limit.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokenmill.core.errors import UserError
from tokenmill.model.decode import Batch, Decoder

SEEDS = 2**32
"""Seeds are below."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen, and how many; what is not said changes nothing: the likeliest are taken as they are."""

    max_new_tokens: int
    """Written at the most; end-of-text may come before."""
    temperature: float = 0.0
    """Divides the logits before drawing: below 1 more cautious, above 1 more daring; 0 takes the likeliest."""
    top_k: int | None = None
    """Draw among so many likeliest tokens; None: all."""
    top_p: float | None = None
    """Draw among the fewest likeliest tokens that together have this probability (nucleus sampling, Holtzman et al.
    2020, section 3.1); None: all."""
    repetition_penalty: float = 1.0
    """Divides the logits of tokens in sight by this, and multiplies negative ones (Keskar et al. 2019, section 4.1);
    1 is none."""
    seed: int = 0
    """Of the draws."""

    def __post_init__(self) -> None:
        """Refuse values without a meaning.

        Raises:
            UserError: names the first wrong value.
        """
        problems = {
            f"max_new_tokens ({self.max_new_tokens}) must be 1 or more.": self.max_new_tokens >= 1,
            f"temperature ({self.temperature}) must be 0 (the likeliest token each time) or more.": (
                0 <= self.temperature < math.inf
            ),
            f"top_k ({self.top_k}) must be 1 or more; leave it out to draw among all.": (
                self.top_k is None or self.top_k >= 1
            ),
            f"top_p ({self.top_p}) must be above 0 and at most 1; leave it out to draw among all.": (
                self.top_p is None or 0 < self.top_p <= 1
            ),
            f"repetition_penalty ({self.repetition_penalty}) must be above 0; 1 is none, 1.2 is usual.": (
                0 < self.repetition_penalty < math.inf
            ),
            f"seed ({self.seed}) must be between 0 and {SEEDS - 1}.": 0 <= self.seed < SEEDS,
        }
        for sentence, holds in problems.items():
            if not holds:
                raise UserError(sentence)


class Chooser:
    """Chooses the next tokens of texts written side by side; each text has draws of its own.

    Draws are made on the CPU, so that a seed means the same on every device.
    """

    def __init__(
        self, sampling: Sampling, prompts: Sequence[Sequence[int]], *, vocab_size: int, numbers: Sequence[int]
    ):
        """Begin texts; their `numbers` are added to the seed."""
        self._sampling = sampling
        self._draws = [torch.Generator().manual_seed(sampling.seed + number) for number in numbers]
        self._seen_BV: Tensor | None = None
        if sampling.repetition_penalty != 1:
            self._seen_BV = torch.zeros(len(prompts), vocab_size, dtype=torch.bool)
            for row, prompt in enumerate(prompts):
                self._seen_BV[row, list(prompt)] = True

    def choose(self, logits_BV: Tensor) -> list[int]:
        """A token for each text, by the model's logits."""
        logits_BV = logits_BV.float().cpu()
        if self._seen_BV is not None:
            logits_BV = penalised(logits_BV, self._seen_BV, self._sampling.repetition_penalty)
        chosen_B = logits_BV.argmax(-1) if self._sampling.temperature == 0 else self._draw(logits_BV)
        if self._seen_BV is not None:
            self._seen_BV.scatter_(1, chosen_B[:, None], value=True)
        return chosen_B.tolist()

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the texts only."""
        self._draws = [self._draws[row] for row in rows]
        if self._seen_BV is not None:
            self._seen_BV = self._seen_BV[list(rows)]

    def _draw(self, logits_BV: Tensor) -> Tensor:
        """One id for each row."""
        candidates, p = candidates_of(logits_BV, self._sampling)
        chosen_B1 = (p / self._noise_like(p)).argmax(-1, keepdim=True)
        return (chosen_B1 if candidates is None else candidates.gather(-1, chosen_B1))[:, 0]

    def _noise_like(self, p: Tensor) -> Tensor:
        """Exponential noise: the largest p / noise is a draw from p, and just what `torch.multinomial` does."""
        noise = torch.empty_like(p)
        for row, draws in zip(noise, self._draws, strict=True):
            row.exponential_(generator=draws)
        return noise


def candidates_of(logits_BV: Tensor, sampling: Sampling) -> tuple[Tensor | None, Tensor]:
    """Ids to draw from, likeliest first, and their probabilities; None stands for all ids in their order."""
    if sampling.top_k is None and sampling.top_p is None:
        return None, (logits_BV / sampling.temperature).softmax(-1)
    values, candidates = logits_BV.topk(min(sampling.top_k or logits_BV.shape[-1], logits_BV.shape[-1]))
    p = (values / sampling.temperature).softmax(-1)
    if sampling.top_p is not None:
        p = p.masked_fill(p.cumsum(-1) - p >= sampling.top_p, 0.0)
    return candidates, p


def penalised(logits_BV: Tensor, seen_BV: Tensor, penalty: float) -> Tensor:
    """The logits with those of the tokens seen made smaller."""
    smaller_BV = torch.where(logits_BV > 0, logits_BV / penalty, logits_BV * penalty)
    return torch.where(seen_BV, smaller_BV, logits_BV)


def generate(
    decoder: Decoder, prompt: Sequence[int], *, end: int, sampling: Sampling, number: int = 0
) -> Iterator[int]:
    """Yield the ids that follow `prompt`, without `end`, which stops it.

    When the context is full, its later half is read anew and the text goes on.

    Args:
        decoder: of a model; its device is where it runs.
        prompt: at least one id, and at most `decoder.config.context_length`.
        end: the id of end-of-text.
        sampling: how tokens are chosen, and how many.
        number: of this text among several; added to the seed.
    """
    return (token for _, token in _written(decoder, [prompt], end=end, sampling=sampling, first=number))


def generate_batch(
    decoder: Decoder, prompts: Sequence[Sequence[int]], *, end: int, sampling: Sampling
) -> list[list[int]]:
    """The ids that follow each prompt, written side by side: what `generate` gives for it and its number."""
    texts: list[list[int]] = [[] for _ in prompts]
    for number, token in _written(decoder, prompts, end=end, sampling=sampling, first=0):
        texts[number].append(token)
    return texts


@torch.inference_mode()
def _written(
    decoder: Decoder, prompts: Sequence[Sequence[int]], *, end: int, sampling: Sampling, first: int
) -> Iterator[tuple[int, int]]:
    """Tokens as they are written, each with the place of its prompt."""
    batch = Batch(decoder, prompts, room=sampling.max_new_tokens)
    numbers = range(first, first + len(prompts))
    chooser = Chooser(sampling, prompts, vocab_size=decoder.config.vocab_size, numbers=numbers)
    places, ended = list(range(len(prompts))), set[int]()
    logits_BV = batch.read()
    for left in range(sampling.max_new_tokens, 0, -1):
        tokens = chooser.choose(logits_BV)
        for place, token in zip(places, tokens, strict=True):
            if token == end:
                ended.add(place)
            elif place not in ended:
                yield place, token
        rows = [row for row, place in enumerate(places) if place not in ended]
        if not rows or left == 1:
            return
        if len(rows) <= len(places) // 2:
            places, tokens = [places[row] for row in rows], [tokens[row] for row in rows]
            batch.keep(rows)
            chooser.keep(rows)
        logits_BV = batch.step(tokens)
