"""`modern` with learned rows for pairs and triples of tokens and sharper attention, for the least
loss in a short time.

A row of each of two tables is added to the embedding of a token: that of the pair which it forms
with the token before it, and that of the triple with the two before it. A small network need not
learn what follows such short sequences often, and looking up a row takes no product. Axes: B batch,
T positions, D width.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import KVCache, TrainingMemory
from tokenmill.model.modern import NanoChat
from tokenmill.model.ngrams import ROWS, rows_of_ngrams

INDEX_BYTES = 2 * 8
"""Bytes per token that the numbers of the two rows take, which the backward pass needs."""


class NGramChat(NanoChat):
    """The whole model: ids in, logits or loss out."""

    # transformers has the tables in the whole model, under the same names
    ngram_tables = ("pairs.weight", "triples.weight")

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        # Made in another way, an embedding would draw numbers, and so change the other weights
        self.pairs, self.triples = (
            nn.Embedding.from_pretrained(torch.empty(ROWS, config.n_embd), freeze=False)
            for _ in range(2)
        )

    def initialize(self) -> None:
        """Draw the weights that `modern` draws from the same random state; the rows start at
        zero."""
        super().initialize()
        nn.init.zeros_(self.pairs.weight)
        nn.init.zeros_(self.triples.weight)

    def embed(self, ids_BT: Tensor, starts_BT: Tensor | None, cache: KVCache | None) -> Tensor:
        """Look up the tokens' embeddings and the rows of the pairs and triples that they end. See
        `GPT.embed`."""
        before_B2 = None if cache is None else cache.last_ids_B2
        if before_B2 is None:
            before_B2 = torch.full_like(ids_BT[:, :1], self.config.vocab_size).expand(-1, 2)
        if cache is not None:
            cache.last_ids_B2 = torch.cat([before_B2, ids_BT], dim=1)[:, -2:]
        pairs_BT, triples_BT = rows_of_ngrams(
            ids_BT, before_B2, vocab_size=self.config.vocab_size, starts_BT=starts_BT
        )
        x_BTD = super().embed(ids_BT, starts_BT, cache)
        return x_BTD + self.pairs(pairs_BT) + self.triples(triples_BT)

    @staticmethod
    def hf_config(config: ModelConfig) -> dict[str, Any]:
        """The configuration of `NGramChatForCausalLM` in runs/modeling_speedrun.py.

        The model has a `model_type` of its own, because `transformers` would load it as `nanochat`
        without the rows where nobody allows code from the folder.
        """
        code = "modeling_speedrun"
        return NanoChat.hf_config(config) | {
            "architectures": ["NGramChatForCausalLM"],
            "model_type": "nanochat_ngrams",
            "auto_map": {
                "AutoConfig": f"{code}.NGramChatConfig",
                "AutoModelForCausalLM": f"{code}.NGramChatForCausalLM",
            },
            "use_cache": False,
            "attention_scale": config.attention_scale,
        }

    @staticmethod
    def training_memory(config: ModelConfig, precision: torch.dtype) -> TrainingMemory:
        """See `GPT.training_memory`."""
        need = NanoChat.training_memory(config, precision)
        return dataclasses.replace(need, other_bytes=need.other_bytes + INDEX_BYTES)


MODEL = NGramChat
