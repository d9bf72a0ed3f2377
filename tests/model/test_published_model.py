"""A saved folder is what Hugging Face `transformers` says the architecture is."""

from pathlib import Path

import pytest
import torch

from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import save_weights


def test_transformers_computes_the_same_logits(model: GPT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import GPT2LMHeadModel, NanoChatForCausalLM  # noqa: PLC0415

    save_weights(model, tmp_path)
    kind = GPT2LMHeadModel if model.config.architecture == "gpt2" else NanoChatForCausalLM
    published, report = kind.from_pretrained(tmp_path, output_loading_info=True)  # pyright: ignore[reportGeneralTypeIssues]
    assert not any(report.values()), report
    ids_BT = torch.randint(23, (3, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        theirs_BTV, ours_BTV = published.eval()(ids_BT).logits, model(ids_BT)
    assert ours_BTV.std() > 0.5, "weights so small would prove nothing"
    torch.testing.assert_close(ours_BTV, theirs_BTV, rtol=1e-5, atol=1e-5)
    assert sum(p.numel() for p in published.parameters()) == sum(p.numel() for p in model.parameters())
