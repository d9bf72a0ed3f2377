"""The configuration of a model: the section `model` of params.yaml, and the same with its
vocabulary size."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from tokenmill.core.params import Section

Architecture = Literal["gpt2", "modern", "speedrun"]
"""The names of the architectures. Each is a module of this folder, and naming it here registers
it."""


@dataclass(frozen=True)
class ArchitectureFacts:
    """The facts about an architecture that are needed where torch is not loaded."""

    linear_maps: tuple[str, ...] = ("q", "k", "v", "out", "up", "down")
    """The names of the linear maps in a block."""
    is_rotary: bool = True
    """Whether it has rotary positions, which need an even number of features per head."""
    attention_scale: float = 1.0
    """A factor of the scores of attention, which are divided by the square root of the head's width
    as usual. A model is saved with it."""


FACTS: dict[Architecture, ArchitectureFacts] = {
    "gpt2": ArchitectureFacts(linear_maps=("qkv", "out", "up", "down"), is_rotary=False),
    # Normalised queries and keys of a small head agree by little
    "speedrun": ArchitectureFacts(attention_scale=1.5),
}
"""Those architectures whose facts are not all as in `modern`, which has the usual ones."""

FEWEST_IDS = 2
MOST_IDS = 1 << 24
"""The bounds of a vocabulary's size."""


class ModelParams(Section):
    """The section `model` without `start_from`."""

    architecture: Architecture
    """`gpt2`: exactly GPT-2 (learned positions, LayerNorm, GELU, biases; Radford et al. 2019) with
    an untied head. `modern`: RoPE, QK-norm, RMSNorm without weights, ReLU², no biases, logits
    capped at 15. `speedrun`: `modern` with learned rows for pairs and triples of tokens and sharper
    attention, for the least loss in a short time on a small vocabulary."""

    n_layer: int = Field(ge=1, le=4096)
    """Transformer blocks."""

    n_head: int = Field(ge=1, le=1 << 17)
    """Attention heads; must divide `n_embd`."""

    n_embd: int = Field(ge=1, le=1 << 17)
    """Width of the residual stream, in features."""

    context_length: int = Field(ge=2, le=1 << 20)
    """Tokens that the model sees at once; training sequences have this length."""

    dropout: float = Field(ge=0.0, lt=1.0)
    """Share of activations zeroed in training (embeddings, attention, residual branches); 0 for one
    pass over much text, 0.1 to 0.2 for many passes over little."""

    @property
    def facts(self) -> ArchitectureFacts:
        """The facts about the architecture."""
        return FACTS.get(self.architecture, ArchitectureFacts())

    @model_validator(mode="after")
    def _heads_fit(self) -> "ModelParams":
        if self.facts.is_rotary and self.n_embd % 2:
            raise ValueError(
                f"model.n_embd ({self.n_embd}) must be even, because rotary positions turn pairs "
                f"of features; try n_embd={self.n_embd + 1} or use architecture gpt2."
            )
        if self.n_embd % self.n_head:
            raise ValueError(
                f"model.n_head ({self.n_head}) must divide model.n_embd ({self.n_embd}); "
                f"try n_head={self._nearest_heads()}."
            )
        if self.facts.is_rotary and (self.n_embd // self.n_head) % 2:
            raise ValueError(
                f"model.n_embd / model.n_head ({self.n_embd} / {self.n_head} = "
                f"{self.n_embd // self.n_head}) must be even, because rotary positions turn pairs "
                "of features; halve n_head or use architecture gpt2."
            )
        return self

    def _nearest_heads(self) -> int:
        """The number of heads nearest to `n_head` that this width and architecture allow."""
        width = 2 if self.facts.is_rotary else 1
        fitting = [n for n in range(1, self.n_embd + 1) if self.n_embd % (n * width) == 0]
        return min(fitting, key=lambda n: (abs(n - self.n_head), n))


class ModelConfig(ModelParams):
    """Everything that fixes a model's shape: the parameters and the vocabulary's size."""

    vocab_size: int = Field(ge=FEWEST_IDS, le=MOST_IDS)
    """The number of ids that the tokenizer can give."""

    @property
    def head_dim(self) -> int:
        """Features per attention head."""
        return self.n_embd // self.n_head

    @property
    def attention_scale(self) -> float:
        """See `ArchitectureFacts.attention_scale`."""
        return self.facts.attention_scale

    @classmethod
    def of(cls, params: ModelParams, vocab_size: int) -> "ModelConfig":
        """Join the parameters with the vocabulary size that the tokens were made with."""
        return cls(**params.model_dump(), vocab_size=vocab_size)


def _all_or_names(value: object) -> object:
    """Refuse anything but `all` or a list of names with one error message; pydantic would give one
    for each alternative."""
    if value == "all" or (
        isinstance(value, list) and value and all(isinstance(name, str) for name in value)
    ):
        return value
    raise ValueError(
        f"finetune.lora.targets ({value!r}) must be 'all' or a list of names, such as [up, down]."
    )


class LoraParams(Section):
    """The section `finetune.lora`: which maps learn by LoRA (Hu et al. 2021), and how."""

    rank: int = Field(ge=1, le=1 << 17)
    """Rows of A and columns of B, whose product is added to the weights of a map; at most
    `model.n_embd`."""

    alpha: float = Field(gt=0.0, le=1e6)
    """The product is multiplied by `alpha` / `rank`."""

    targets: Annotated[Literal["all"] | list[str], BeforeValidator(_all_or_names)]
    """The linear maps of the blocks that learn: `all`, or a list of names. `gpt2` has `qkv`, `out`,
    `up` and `down`; `modern` and `speedrun` have `q`, `k`, `v`, `out`, `up` and `down`."""

    def maps(self, model: ModelParams) -> tuple[str, ...]:
        """The names of the maps that learn in a model.

        Raises:
            ValueError: the model has no map of some name, or is narrower than the rank.
        """
        there = model.facts.linear_maps
        wanted = there if self.targets == "all" else self.targets
        if missing := [name for name in wanted if name not in there]:
            raise ValueError(
                f"finetune.lora.targets ({', '.join(missing)}): {model.architecture} has no such "
                f"map in its blocks; it has {', '.join(there)}."
            )
        if self.rank > model.n_embd:
            raise ValueError(
                f"finetune.lora.rank ({self.rank}) must be at most model.n_embd ({model.n_embd})."
            )
        return tuple(name for name in there if name in wanted)
