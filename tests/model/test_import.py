"""Counting, building, loading and running a model do not import PyTorch's compiler."""

from pathlib import Path

import pytest

from tests.fresh import COMPILER, imported_by
from tests.model.small import ARCHITECTURES, small_config
from tokenmill.model.gpt import build
from tokenmill.model.huggingface import save_weights

SCRIPT = """
import sys, torch
from pathlib import Path
from tokenmill.model.gpt import build, parameter_count
from tokenmill.evaluation.generate import generate
from tokenmill.evaluation.generate import Sampling
from tokenmill.model.huggingface import load_model

for folder in sys.argv[1:]:
    model = load_model(Path(folder))
    built = build(model.config, seed=0)
    assert parameter_count(model.config) == sum(p.numel() for p in built.parameters())
    model(torch.zeros(1, 3, dtype=torch.long))
    sampling = Sampling(temperature=1.0, max_new_tokens=3, seed=0)
    assert list(generate(model, [1], ends=(), sampling=sampling))
"""


@pytest.mark.slow
def test_models_run_without_importing_the_compiler(tmp_path: Path):
    folders = [tmp_path / architecture for architecture in ARCHITECTURES]
    for folder in folders:
        save_weights(build(small_config(folder.name), seed=0), folder)
    found = imported_by("-c", SCRIPT, *map(str, folders))
    assert {"torch", "tokenmill.model.gpt"} <= found
    assert not COMPILER & found
