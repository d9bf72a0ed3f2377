"""The architecture `speedrun` for Hugging Face `transformers`: NanoChat with learned rows for pairs
and triples of tokens, and sharper attention.

`tokenmill export` copies this module and ngrams.py into an exported folder, and `transformers` runs
them with `trust_remote_code=True`. Nothing else imports it. Axes: B texts, T positions, D width.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.models.nanochat.configuration_nanochat import NanoChatConfig
from transformers.models.nanochat.modeling_nanochat import NanoChatAttention, NanoChatForCausalLM

from tokenmill.model.ngrams import ROWS, rows_of_ngrams


class NGramChatConfig(NanoChatConfig):
    """NanoChat's configuration under another name, so that nobody loads the model without its
    rows."""

    model_type = "nanochat_ngrams"


class NGramChatForCausalLM(NanoChatForCausalLM):
    """NanoChat whose tokens' embeddings are sums with rows of two tables.

    It never caches keys and values, because the embedding looks at the two ids before, which a
    cache does not hold.
    """

    config_class = NGramChatConfig

    def __init__(self, config: NGramChatConfig):
        super().__init__(config)
        self.pairs = nn.Embedding(ROWS, config.hidden_size)
        self.triples = nn.Embedding(ROWS, config.hidden_size)
        for module in self.model.modules():
            if isinstance(module, NanoChatAttention):
                module.scaling *= config.attention_scale
        # Its type is inferred, for which pyright would read all models of transformers
        cast("Any", self).post_init()

    def embed(self, ids_BT: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Look up the embeddings of tokens, pairs and triples: ids (B, T) -> (B, T, D). Where an
        attention mask (B, T) marks padding before a text by 0, the text starts behind it."""
        starts_BT = None
        if attention_mask is not None and attention_mask.ndim == 2:
            starts_BT = attention_mask.long().argmax(dim=1, keepdim=True).expand_as(ids_BT)
        vocab_size = self.config.vocab_size
        none_B2 = torch.full_like(ids_BT[:, :1], vocab_size).expand(-1, 2)
        pairs_BT, triples_BT = rows_of_ngrams(
            ids_BT, none_B2, vocab_size=vocab_size, starts_BT=starts_BT
        )
        return self.model.embed_tokens(ids_BT) + self.pairs(pairs_BT) + self.triples(triples_BT)

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """See `NanoChatForCausalLM.forward`."""
        if input_ids is None or kwargs.get("past_key_values") is not None:
            raise ValueError("speedrun needs the input_ids of whole texts, and no past_key_values")
        kwargs |= {"inputs_embeds": self.embed(input_ids, attention_mask), "use_cache": False}
        return super().forward(attention_mask=attention_mask, **kwargs)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """See `GenerationMixin.generate`; each new token reads the whole text again."""
        options = kwargs | {"use_cache": False}
        return super().generate(*args, **options)  # pyright: ignore[reportAttributeAccessIssue]
