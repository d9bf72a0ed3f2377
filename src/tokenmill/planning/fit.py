"""Choose a vocabulary, model, context, batch and number of epochs for a text and an amount of time,
with reasons.

The model is a step on a ladder of depths, as in nanochat, where one number sets the shape. Of the
steps that the time allows, the one with the lowest loss by scaling laws is taken: Hoffmann et al.
2022 (Chinchilla) for new text, Muennighoff et al. 2023 for text that is read again. The laws were
fitted on larger models; docs/plan-against-reality.md compares them with trained small ones. Where
even the next larger model reads the text several times, it learns more, and is taken, unless it is
large enough to learn the text by heart.
"""

import functools
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.core.params import RANDOM
from tokenmill.data.readers import FORMATS, texts
from tokenmill.data.report import Tally
from tokenmill.data.sources import find_sources
from tokenmill.formats.chat import TURN_TOKENS, split_turns
from tokenmill.formats.raw_text import raw_text
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import parameter_count
from tokenmill.planning.benchmark import TooLargeError
from tokenmill.schema import AllParams
from tokenmill.tokens.bpe import train_reference
from tokenmill.training.params import auto_learning_rate
from tokenmill.training.schedule import Workload
from tokenmill.training.size import flops_per_token
from tokenmill.words.units import counted, duration, si

ENOUGH = 20.0
"""The number of tokens per parameter at which a given computation gives the lowest loss (Hoffmann
et al. 2022, table 3)."""

REPEATS = 4
"""The number of epochs over the same text that are about as good as new text (Muennighoff et al.
2023, section 5)."""

PARAMETERS_PER_TOKEN = 1.0
"""The number of parameters for each token of new text beyond which each parameter is worth less.
The paper has 1/20, for texts of a hundred million tokens and more. On a small text far larger
models still gain (nanoGPT: 10 million parameters on 1 MB of Shakespeare)."""

LADDER = [
    *((2, 64), (3, 96), (4, 128), (5, 160), (6, 192), (8, 256), (8, 384), (10, 512)),
    *((12, 768), (16, 1024), (20, 1280), (24, 1536), (32, 2048)),
]
"""Layers and widths of models, each about twice as costly as the one before."""

SAMPLE_BYTES = 8_000_000
"""Bytes of text that are read to know a corpus. Of a larger one some files are read, evenly
spread."""

MEASURED_BYTES = 500_000
"""Bytes of text that are encoded to measure the bytes of a token."""

BYTES_PER_ENTRY = 500
"""Bytes of text for each entry of the vocabulary that is tried first, so that each occurs some
hundred times."""

WORTH_ITS_WORK = 0.2
"""The share of tokens that twice the vocabulary must save, divided by the share that it adds to the
operations of a token. Of twelve doublings those gained that had 0.22 and more, and those cost that
had 0.19 and less (docs/plan-against-reality.md)."""

# Sizes of a vocabulary; 256 of its entries are the bytes
SMALLEST_VOCABULARY = 512
LARGEST_VOCABULARY = 32_768

CHEAPEST = 1024
"""The size of the vocabulary with which a small model reads a text in the least time. With fewer
entries there are more tokens to read."""

GIVE_UP = 1.05
"""Stop climbing the ladder once the predicted loss exceeds the best by this factor."""

NEARLY = 1.01
"""Take the smallest model whose predicted loss is within this factor of the lowest."""

READ_BY_LARGER = 4
"""The number of epochs that the next larger model must have to be taken. Of small models that read
1 to 5 MB, the larger one gained with four epochs and more. With three it gained 0.3 % once and lost
2.1 % once, with fewer it lost (docs/plan-against-reality.md)."""

ENOUGH_STEPS = 1000
"""The fewest steps, approximately, that a run should have, so that Muon's rate suits it."""

MOST_EPOCHS = 6
"""The most epochs. Eight gained nothing and twelve cost 4 %, for small models that read 1 MB
(docs/plan-against-reality.md)."""

LARGE = 15
"""The number of parameters for each token of the text from which a model learns it by heart in
fewer epochs."""

MOST_EPOCHS_OF_LARGE = 4
"""The most epochs of a large model. With 26 parameters for each token of 1 MB, five cost 0.3 %
against four, and six 2 % (docs/plan-against-reality.md)."""

LARGEST = 30
"""The most parameters for each token of the text. With 53 of them the loss was 1 to 2 % higher than
with 26 after three and after six epochs (docs/plan-against-reality.md)."""

TRAINED_WITH: dict[str, Any] = {
    "optimizer": "muon",
    "batch_size": 16,
    "gradient_accumulation_steps": 1,
    "epochs": REPEATS,
}
"""The parameters of a training before its batch and its epochs are chosen; whether a GPU compiles
depends on both."""

StepSeconds = Callable[[Workload], float]
"""A function that gives the seconds of an optimizer step of a training, or raises TooLargeError."""


@dataclass(frozen=True)
class Corpus:
    """The facts about a text that matter for a model; the text is not cleaned yet."""

    text_bytes: int
    documents: int
    turn_tokens: int
    """The number of special tokens at the boundaries of turns."""
    median_bytes: float
    """The median length of a document in UTF-8 bytes."""
    sample: list[str]
    """Documents with SAMPLE_BYTES of text. Each turn of a conversation is a text of its own."""

    @classmethod
    def read(cls, root: Path, params: AllParams) -> "Corpus":
        """Read the text at `data.raw`, or as much of it as a sample needs."""
        raw = raw_text(params.data.raw, root)
        sources = find_sources(raw, FORMATS, params.data.encoding).sources
        disk = sum(source.size for source in sources)
        every = max(1, disk // SAMPLE_BYTES)
        read = list[str]()
        lengths = list[int]()
        total = 0
        turn_tokens = 0
        blocks: list[int] = []
        tally = Tally()
        for document in chain.from_iterable(
            texts(each, params.clean, tally, blocks.append) for each in sources[::every]
        ):
            parts = split_turns(document)
            said = [part for part in parts if part not in TURN_TOKENS]
            read += said
            turn_tokens += len(parts) - len(said)
            lengths.append(sum(len(text.encode()) for text in said))
            total += lengths[-1]
            if total > SAMPLE_BYTES:
                break
        if not total:
            tally.refuse_unread()
            raise UserError(
                f"data.raw ({params.data.raw}) holds no text; set data.raw to text of your own."
            )
        share = max(1.0, disk / sum(blocks))
        return cls(
            text_bytes=round(total * share),
            documents=round(len(lengths) * share),
            turn_tokens=round(turn_tokens * share),
            median_bytes=statistics.median(lengths),
            sample=read,
        )


@dataclass(frozen=True)
class TokenizedText:
    """The numbers that a tokenizer gives for a corpus."""

    corpus: Corpus
    vocabulary: int
    bytes_per_token: float
    train_tokens: int
    val_tokens: int

    @classmethod
    def of(cls, corpus: Corpus, vocabulary: int, *, val_fraction: float) -> "TokenizedText":
        """Train a tokenizer on the sample, and count the tokens of the corpus."""
        tokenizer = train_reference([corpus.sample], vocabulary)
        some = "\n".join(corpus.sample)[:MEASURED_BYTES]
        bytes_per_token = len(some.encode()) / len(tokenizer.encode(some).ids)
        special = corpus.documents + corpus.turn_tokens
        tokens = round(corpus.text_bytes / bytes_per_token) + special
        val = round(val_fraction * tokens)
        return cls(corpus, tokenizer.get_vocab_size(), bytes_per_token, tokens - val, val)


@dataclass(frozen=True)
class Fit:
    """A proposal: values for params.yaml, and the reason for each."""

    work: Workload
    text: TokenizedText
    seconds: float
    """Seconds that the training takes."""
    too_large: str | None
    """Why no larger model was tried, where memory is the reason."""

    @property
    def values(self) -> dict[str, Any]:
        """The values of the parameters, by their dotted names."""
        config = self.work.config
        train = self.work.train
        names = ("architecture", "n_layer", "n_head", "n_embd", "context_length", "dropout")
        return {
            "model.start_from": str(RANDOM),
            "tokenizer.type": "bpe",
            "tokenizer.vocab_size": config.vocab_size,
            **{f"model.{name}": getattr(config, name) for name in names},
            "train.epochs": train.epochs,
            "train.batch_size": train.batch_size,
            "train.gradient_accumulation_steps": 1,
            "train.optimizer": train.optimizer,
            "train.learning_rate": "auto",
            "train.schedule.warmup_steps": train.schedule.warmup_steps,
            "train.schedule.horizon_epochs": None,
        }

    @property
    def reasons(self) -> list[tuple[str, str, str]]:
        """Lines of a proposal: its name, its value, and the reason."""
        work = self.work
        text = self.text
        config = self.work.config
        train = self.work.train
        occurs = text.train_tokens // config.vocab_size
        document = text.corpus.median_bytes / text.bytes_per_token
        vocabulary = f"each occurs {occurs:,} times; {text.bytes_per_token:.2f} bytes each"
        model = (
            f"{parameter_count(config):,} parameters: the lowest loss on this text in this time "
            f"(Chinchilla, Muennighoff), or one step more that reads it {READ_BY_LARGER} times"
        )
        half = f"half of the documents have {document:,.0f} or more"
        most = "as many as the time allows"
        if train.epochs >= most_epochs(work):
            most = "more would teach nothing"
        worth = "nearly as good as new text"
        if train.epochs > REPEATS:
            worth = "each teaches less than the one before"
        epochs = f"{most}; {si(work.tokens_per_epoch * train.epochs, space='')} tokens, {worth}"
        rate = f"Muon's at this width (auto), after {train.schedule.warmup_steps} warm-up steps"
        return [
            ("vocabulary", f"{config.vocab_size:,}", vocabulary),
            ("model", f"{counted(config.n_layer, 'layer')}, {config.n_embd} wide", model),
            ("context", f"{config.context_length}", f"tokens: {half}; at most about the width"),
            ("batch", f"{train.batch_size}", _batch_reason(work)),
            ("epochs", f"{train.epochs}", epochs),
            ("rate", f"{train.peak:g}", rate),
        ]


def _batch_reason(work: Workload) -> str:
    """Why a step of a proposal has so many tokens."""
    operations = work.tokens_per_epoch * work.train.epochs * flops_per_token(work.config)
    suiting = batch_tokens_for(operations)
    step = f"{work.tokens_per_step:,} tokens a step"
    if work.train.batch_size >= _power_of_two(suiting / work.config.context_length):
        return f"{step} suit so much work (DeepSeek LLM)"
    return (
        f"{step}; {suiting:,.0f} suit so much work (DeepSeek LLM), but leave few steps, and Muon's "
        f"rate suits about {ENOUGH_STEPS:,} or more"
    )


def fit(corpus: Corpus, params: AllParams, *, seconds: float, step_seconds: StepSeconds) -> Fit:
    """Propose a training of at most so many seconds.

    The vocabulary is halved until it is worth its work to the model that is then found, or until
    the time suffices to read the text once, because the output layer is most of a small model's
    work. It is doubled if that is worth its work to the same model. Then the next larger model is
    taken if the time suffices for READ_BY_LARGER epochs of it.

    Raises:
        UserError: the smallest model cannot read the text once in this time or does not fit memory,
            or the text is shorter than its context.
    """
    search = _Search(params, seconds, step_seconds)

    @functools.cache
    def tokenized(vocabulary: int) -> TokenizedText:
        return TokenizedText.of(corpus, vocabulary, val_fraction=params.tokenize.val_fraction)

    text = tokenized(vocabulary_for(corpus.text_bytes))
    while True:
        work = _best(list(search.proposals(text)))
        if text.vocabulary <= CHEAPEST:
            break
        half = tokenized(text.vocabulary // 2)
        if work and _is_worth_its_work(text, half, work.config):
            break
        text = half
    if not work:
        raise UserError(search.why_none(text))
    if text.vocabulary < LARGEST_VOCABULARY:
        twice = tokenized(2 * text.vocabulary)
        if _is_worth_its_work(twice, text, work.config):
            shape = work.config.n_layer, work.config.n_embd
            if larger := search.proposal(twice, shape):
                text, work = twice, larger
    work = search.next_larger(text, work)
    warmup = min(20, work.steps // 10)
    schedule = {"warmup_steps": warmup, "horizon_epochs": None}
    work = _changed(work, schedule=work.train.schedule.model_copy(update=schedule))
    promised = search.epoch_seconds(work, text) * work.train.epochs
    return Fit(work, text, promised, search.too_large.get(text.vocabulary))


@dataclass(frozen=True)
class _Search:
    """The trainings that so many seconds allow on one machine."""

    params: AllParams
    seconds: float
    timed: StepSeconds
    too_large: dict[int, str] = field(default_factory=dict)
    """Why the smallest model with a vocabulary of so many entries did not fit."""

    def step_seconds(self, work: Workload) -> float:
        """The seconds of a step; without end for a model that memory does not hold, so that no time
        suffices for it."""
        try:
            return self.timed(work)
        except TooLargeError as error:
            self.too_large.setdefault(work.config.vocab_size, str(error))
            return math.inf

    def epoch_seconds(self, work: Workload, text: TokenizedText) -> float:
        """The seconds of an epoch and its validation."""
        return epoch_seconds(work, text, self.step_seconds(work))

    def proposals(self, text: TokenizedText) -> Iterator[Workload]:
        """Yield trainings that read the text at least once, from the smallest model up, until they
        learn less in this time, or are too large for the text."""
        lowest = math.inf
        for shape in LADDER:
            if shape != LADDER[0] and self._is_too_large(text, shape):
                return
            work = self.proposal(text, shape)
            if not work:
                return
            yield work
            loss = predicted_loss(work)
            lowest = min(lowest, loss)
            if loss > GIVE_UP * lowest:
                return

    def proposal(self, text: TokenizedText, shape: tuple[int, int]) -> Workload | None:
        """The training of a model of so many layers and this width; None if it cannot read the text
        once, or the text is shorter than its context."""
        work = workload(self.params, text, *shape)
        if not work.sequences:
            return None
        work = self._batched(work)
        epochs = min(most_epochs(work), int(self.seconds / self.epoch_seconds(work, text)))
        return _changed(work, epochs=epochs) if epochs else None

    def next_larger(self, text: TokenizedText, work: Workload) -> Workload:
        """The training of the next larger model if it is not too large for the text and reads it
        often enough, else `work`."""
        rung = LADDER.index((work.config.n_layer, work.config.n_embd)) + 1
        if rung == len(LADDER) or self._is_too_large(text, LADDER[rung]):
            return work
        larger = self.proposal(text, LADDER[rung])
        return larger if larger and larger.train.epochs >= READ_BY_LARGER else work

    def _is_too_large(self, text: TokenizedText, shape: tuple[int, int]) -> bool:
        return parameters_per_token(workload(self.params, text, *shape)) > LARGEST

    def why_none(self, text: TokenizedText) -> str:
        """Why there is no proposal: even the smallest model does not suit the text, the memory or
        the time."""
        smallest = workload(self.params, text, *LADDER[0])
        if not smallest.sequences:
            return (
                f"data.raw ({self.params.data.raw}) has {counted(text.train_tokens, 'token')} to "
                f"train on, not enough for a sequence of {smallest.config.context_length}; add "
                "text."
            )
        needed = self.epoch_seconds(self._batched(smallest), text)
        return self.too_large.get(text.vocabulary) or (
            f"one pass of the smallest model over this text takes {duration(needed)}; give more "
            "time, or less text."
        )

    def _batched(self, work: Workload) -> Workload:
        """The training with the batch that suits the operations of this machine in the time, and
        the text."""
        most = most_epochs(work) * work.tokens
        tokens = min(work.tokens_per_step * self.seconds / self.step_seconds(work), most)
        operations = tokens * flops_per_token(work.config)
        of_step = min(batch_tokens_for(operations), tokens / ENOUGH_STEPS)
        sequences = _power_of_two(of_step / work.config.context_length)
        return _changed(work, batch_size=max(4, sequences))


def _best(proposals: list[Workload]) -> Workload | None:
    """The smallest model whose loss is nearly the lowest."""
    lowest = min(map(predicted_loss, proposals), default=math.inf)
    return next((work for work in proposals if predicted_loss(work) <= NEARLY * lowest), None)


def _is_worth_its_work(larger: TokenizedText, smaller: TokenizedText, config: ModelConfig) -> bool:
    """Whether the larger vocabulary saves enough tokens for the work that it adds to each."""
    work, less = (
        flops_per_token(config.model_copy(update={"vocab_size": text.vocabulary}))
        for text in (larger, smaller)
    )
    saved = 1 - smaller.bytes_per_token / larger.bytes_per_token
    return saved > WORTH_ITS_WORK * (work / less - 1)


def parameters_per_token(work: Workload) -> float:
    """The number of parameters for each token of the text."""
    return parameter_count(work.config) / work.tokens


def most_epochs(work: Workload) -> int:
    """The most epochs that teach this model something."""
    return MOST_EPOCHS_OF_LARGE if parameters_per_token(work) > LARGE else MOST_EPOCHS


def vocabulary_for(text_bytes: int) -> int:
    """The size of the vocabulary for a text: a power of two, so that each entry occurs some hundred
    times.

    Example:
        >>> vocabulary_for(1_100_000), vocabulary_for(100_000_000)
        (2048, 32768)
    """
    return min(
        max(_power_of_two(text_bytes / BYTES_PER_ENTRY), SMALLEST_VOCABULARY), LARGEST_VOCABULARY
    )


def heads_for(width: int) -> int:
    """The number of heads of a model: 32 features each, in a wide model 64."""
    return width // (32 if width < 384 else 64)


def context_for(width: int, *, document_tokens: float) -> int:
    """Tokens of a sequence: as many as a document has, but no more than this width makes use of."""
    return min(_power_of_two_above(width), max(64, _power_of_two_above(document_tokens)))


def batch_tokens_for(flops: float) -> float:
    """Tokens of a step for a training of so many floating-point operations (Bi et al. 2024,
    DeepSeek LLM, equation 1)."""
    return 0.292 * flops**0.3271


def predicted_loss(work: Workload) -> float:
    """The predicted loss after this training, in nats per token (Muennighoff et al. 2023, equations
    5 to 7 and appendix A).

    Parameters and tokens count less, the more of them there are for the text: tokens that are read
    again, and parameters beyond those that suit the text, lose value exponentially.
    """
    unique = work.tokens_per_epoch
    seen = work.tokens_per_epoch * work.train.epochs
    suiting = min(parameter_count(work.config), unique * PARAMETERS_PER_TOKEN)
    tokens = _worth(unique, seen, half_life=15.39)
    parameters = _worth(suiting, parameter_count(work.config), half_life=5.31)
    return 1.87 + 521 / parameters**0.353 + 1488 / tokens**0.353


def _worth(new: float, used: float, *, half_life: float) -> float:
    """The amount of new material that has the value of `used`, of which only `new` is new."""
    return new * (1 + half_life * (1 - math.exp(-(used / new - 1) / half_life)))


def epoch_seconds(work: Workload, text: TokenizedText, step_seconds: float) -> float:
    """Seconds of an epoch and its validation. A validation token takes a third of the time of a
    training token."""
    most = work.train.validation_bytes or math.inf
    validated = min(text.val_tokens, most / text.bytes_per_token)
    return step_seconds * (work.steps_per_epoch + validated / work.tokens_per_step / 3)


def workload(params: AllParams, text: TokenizedText, layers: int, width: int) -> Workload:
    """A model of this depth and width for this text, with a batch that is suitable for timing."""
    context = context_for(width, document_tokens=text.corpus.median_bytes / text.bytes_per_token)
    shape = {
        "architecture": "modern",
        "n_layer": layers,
        "n_embd": width,
        "n_head": heads_for(width),
        "context_length": context,
    }
    fixed = {"vocab_size": text.vocabulary, "dropout": 0.0}
    config = ModelConfig.model_validate(params.model.model_dump() | shape | fixed)
    train = params.train.model_copy(
        update=TRAINED_WITH | {"learning_rate": auto_learning_rate(config, "muon")}
    )
    return Workload(config, train, text.train_tokens)


def _changed(work: Workload, **changes: object) -> Workload:
    return replace(work, train=work.train.model_copy(update=changes))


def _power_of_two(value: float) -> int:
    """The nearest power of two, by its logarithm."""
    return 2 ** round(math.log2(max(1.0, value)))


def _power_of_two_above(value: float) -> int:
    return 2 ** math.ceil(math.log2(max(1.0, value)))
