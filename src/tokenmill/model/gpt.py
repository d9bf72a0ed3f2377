"""The interface of every architecture, the key-value cache for generation, and `build`.

The rest of TokenMill uses only this interface, and never asks which architecture a model has. To
add an architecture, write a module in this folder with a subclass of `GPT`, called `MODEL`, and
name it in config.py: a table of docs/architecture.md has all that it needs. Then the tests in
tests/model run for it, too.

Axes: B texts, T new positions, S positions so far, H heads, K features per head, D width, V
vocabulary.
"""

import functools
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tokenmill.model import ops
from tokenmill.model.config import Architecture, LoraParams, ModelConfig
from tokenmill.words.units import counted


class LayerCache:
    """Keys and values of one attention layer, in memory allocated once."""

    def __init__(self, shape: tuple[int, int, int, int], device: torch.device):
        self.keys = torch.empty(shape, device=device)
        self.values = torch.empty(shape, device=device)
        self.length = 0

    def extend(self, k_BHTK: Tensor, v_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values of T new positions. Return those of all S positions so far, (B,
        H, S, K) each."""
        start = self.length
        new = k_BHTK.shape[2]
        assert start == 0 or new == 1, (
            "attention has no mask for several new positions behind others"
        )
        self.keys.narrow(2, start, new).copy_(k_BHTK)
        self.values.narrow(2, start, new).copy_(v_BHTK)
        self.length = start + new
        return self.keys.narrow(2, 0, self.length), self.values.narrow(2, 0, self.length)


class KVCache:
    """Keys and values of the tokens read so far, so that each further token computes one position
    only.

    All texts have the same length. `forward(ids_BT, cache=cache)` reads from the cache and extends
    it. The first call may read several tokens of each text; each further call reads one.
    """

    def __init__(self, config: ModelConfig, *, texts: int, max_length: int, device: torch.device):
        shape = (texts, config.n_head, max_length, config.head_dim)
        self.layers = [LayerCache(shape, device) for _ in range(config.n_layer)]
        self.last_ids_B2: Tensor | None = None
        """The last two ids that were read, where an architecture's `embed` needs them and sets
        them; the number of ids in the vocabulary stands for none."""
        self._device = device

    @property
    def length(self) -> int:
        """Positions that every layer holds."""
        return self.layers[-1].length

    def clear(self) -> None:
        """Forget all positions, and keep the memory for the next text."""
        self.last_ids_B2 = None
        for layer in self.layers:
            layer.length = 0

    def select(self, rows: Sequence[int]) -> None:
        """Keep these texts only, in this order."""
        index = torch.tensor(rows, device=self._device)
        if self.last_ids_B2 is not None:
            self.last_ids_B2 = self.last_ids_B2[index]
        for layer in self.layers:
            layer.keys = layer.keys[index]
            layer.values = layer.values[index]


@dataclass(frozen=True)
class TrainingMemory:
    """The memory that training needs besides parameters, gradients and optimizer state.

    The masks of dropout, and the row sums or the scores of attention, are not counted here: they
    are the same for all architectures.
    """

    block_bytes: int
    """Bytes per token that each block keeps for the backward pass."""
    scores_spare_bytes: int
    """How many of these a block does not keep where a CPU attends by all scores at once."""
    other_bytes: int
    """Bytes per token that the rest of the model keeps for the backward pass, without logits."""
    weight_copy_bytes: int
    """Bytes of float32 copies of weights; copies in half precision are not counted here."""
    logit_tensors: int
    """The number of tensors as large as the logits that the loss holds at the same time."""
    compiled_share: float
    """What code compiled for a GPU holds at its peak, as a multiple of the bytes per token above.
    Inductor's plans of models of GPT-2's width (`python -m tests.cuda.traffic`) say up to 1.06 for
    `gpt2` and 1.14 for `modern`."""


class GPT(nn.Module, ABC):
    """A causal language model. Each architecture is a subclass in a module of its own, named as in
    params.yaml."""

    config: ModelConfig
    lora: LoraParams | None = None
    """How the model learns by LoRA (training/lora.py). If None, all its weights learn."""
    tokens: nn.Embedding
    blocks: nn.ModuleList
    norm: Any
    """The norm behind the last block, a module or a function: (B, T, D) -> (B, T, D)."""
    head: nn.Linear

    logit_cap: ClassVar[float | None] = None
    """The logits, which are float32 then, stay within ± this number, by tanh; None: no cap."""
    hf_names: ClassVar[Sequence[tuple[str, str]]]
    """Pairs of a part of our parameter names and the part that transformers has in its place. A
    pair that starts with a dot is replaced anywhere in a name, the others only at its start."""
    hf_transposed: ClassVar[tuple[str, ...]] = ()
    """Endings of the names of block matrices that transformers stores as (in, out) instead of (out,
    in)."""
    ngram_tables: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters whose rows stand for pairs or triples of tokens. Most of these are
    rare, so their rows decay more than matrices do (training/optimizer.py)."""

    @abstractmethod
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config

    @property
    def device(self) -> torch.device:
        """The device that holds the weights."""
        return self.head.weight.device

    @abstractmethod
    def initialize(self) -> None:
        """Compute the buffers and draw the starting weights from PyTorch's current random state."""

    def compute_buffers(self) -> None:
        """Compute the buffers, which are neither trained nor saved; a model may have none."""

    def forward(
        self,
        ids_BT: Tensor,
        targets_BT: Tensor | None = None,
        starts_BT: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Compute logits or loss: ids (B, T) -> logits (B, T, V); with targets (B, T) -> their mean
        loss in nats, a scalar.

        With a cache the ids follow those that it holds, and only the last position's logits are
        computed: (B, 1, V).

        With `starts_BT`, a sequence holds several texts: `starts_BT` gives for each position where
        its text starts. No text attends to another, each has the positions that it has alone, and
        targets may be `IGNORED`.
        """
        x_BTD = self.embed(ids_BT, starts_BT, cache)
        return self.forward_embedded(x_BTD, targets_BT, starts_BT, cache)

    def embed(self, ids_BT: Tensor, starts_BT: Tensor | None, cache: KVCache | None) -> Tensor:  # noqa: ARG002
        """Look up embeddings: ids (B, T) -> the input of the blocks (B, T, D). On a CPU this part
        is not compiled."""
        return self.tokens(ids_BT)

    def forward_embedded(
        self,
        x_BTD: Tensor,
        targets_BT: Tensor | None,
        starts_BT: Tensor | None,
        cache: KVCache | None,
    ) -> Tensor:
        """The part of `forward` after `embed`. On a CPU it is the part that is compiled."""
        start = 0 if cache is None else cache.length
        x_BTD, *positions = self.enter(ops.residual_stream(x_BTD), start)
        mask = None if starts_BT is None else ops.own_text_mask(starts_BT)
        for layer, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, *positions, None if cache is None else cache.layers[layer], mask)
        if cache is not None:
            x_BTD = x_BTD[:, -1:]
        x_BTD = self.norm(x_BTD)
        if targets_BT is not None:
            some_ignored = starts_BT is not None
            return ops.next_token_loss(
                x_BTD, self.head.weight, targets_BT, cap=self.logit_cap, some_ignored=some_ignored
            )
        logits_BTV = self.head(x_BTD)
        cap = self.logit_cap
        return logits_BTV if cap is None else ops.softcap(logits_BTV.float(), cap)

    def enter(self, x_BTD: Tensor, start: int) -> tuple[Any, ...]:  # noqa: ARG002
        """What the first block gets of the embeddings of tokens whose first position is `start`,
        and what each block gets beside it."""
        return (x_BTD,)

    @staticmethod
    @abstractmethod
    def hf_config(config: ModelConfig) -> dict[str, Any]:
        """The content of config.json by which transformers recognises this architecture."""

    @staticmethod
    @abstractmethod
    def training_memory(config: ModelConfig, precision: torch.dtype) -> TrainingMemory:
        """The memory for training besides the parameters, with matrix products of a precision."""


def model_class(architecture: Architecture) -> type[GPT]:
    """The class of an architecture: `MODEL` in the module of this folder that has its name."""
    return importlib.import_module(f"tokenmill.model.{architecture}").MODEL


def build(config: ModelConfig, *, seed: int) -> GPT:
    """A model with fresh weights, on the CPU in float32. A seed gives the same weights on any
    machine."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = model_class(config.architecture)(config)
        model.initialize()
    return model


def empty_model(config: ModelConfig, device: str = "meta") -> GPT:
    """A model whose weights and buffers have no values yet, for loading. On the meta device it
    takes no memory."""
    with torch.device(device), _SkipInit():
        return model_class(config.architecture)(config)


class _SkipInit(TorchFunctionMode):
    """Makes the functions of `torch.nn.init` return their tensor unchanged.

    The values that they draw would be overwritten. On the meta device, drawing would also make
    PyTorch import its compiler, which takes two seconds.
    """

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Skip functions of `torch.nn.init`; call any other function."""
        if getattr(function, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if kwargs and "tensor" in kwargs else args[0]
        return function(*args, **(kwargs or {}))


def outline(config: ModelConfig) -> GPT:
    """A model on the meta device to look at, not to change. It is kept, because making one takes 3
    milliseconds a layer, and a plan looks at it some fifty times."""
    return _outline(config)  # pyright: ignore[reportArgumentType] (frozen, so it has a hash)


@functools.lru_cache(maxsize=4)
def _outline(config: ModelConfig) -> GPT:
    return empty_model(config)


def parameter_count(config: ModelConfig) -> int:
    """The number of trained parameters; allocates nothing."""
    return sum(parameter.numel() for parameter in outline(config).parameters())


def model_in_words(config: ModelConfig) -> str:
    """The architecture, the number of parameters and the sizes, as one line."""
    return (
        f"{config.architecture}, {parameter_count(config):,} parameters: "
        f"{counted(config.n_layer, 'layer')}, {counted(config.n_head, 'head')}, "
        f"{config.n_embd} wide, context {config.context_length}, vocabulary {config.vocab_size:,}"
    )


def copy_model(model: GPT, transform: Callable[[Tensor], Tensor]) -> GPT:
    """A copy of the model with `transform` applied to each parameter that learns. It has no
    buffers, so it can be saved but not run."""
    copy = empty_model(model.config)
    copy.lora = model.lora
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        owner, _, last = name.rpartition(".")
        setattr(copy.get_submodule(owner), last, torch.nn.Parameter(transform(parameter)))
    return copy


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    """Whether a parameter is a matrix of a block (no embedding, head, norm or bias)."""
    return parameter.ndim == 2 and name.startswith("blocks.")
