"""Who counts, trains, loads or runs a model without compiling waits for PyTorch at the start, and
not for its compiler."""

from pathlib import Path

import pytest

from tests.fresh import COMPILER, imported_by

SCRIPT = """
import os, sys
from pathlib import Path
from typing import get_args
from tests.training.tiny import model_config, run, write_tokens
from tokenmill.evaluation.generate import generate
from tokenmill.evaluation.sampling import Sampling
from tokenmill.model.config import Architecture
from tokenmill.model.gpt import parameter_count
from tokenmill.model.huggingface import load_model

os.chdir(sys.argv[1])
here = Path(sys.argv[1])
tokens = write_tokens(here / "tokens", sequences=8)
for architecture in get_args(Architecture):
    for epochs in (1, 2):
        # Muon steps the embeddings by AdamW
        model = {"architecture": architecture}
        run(tokens, here / architecture, epochs=epochs, optimizer="muon", model=model)
    trained = load_model(here / architecture / "epoch-2")
    assert parameter_count(trained.config) == sum(p.numel() for p in trained.parameters())
    sampling = Sampling(temperature=1.0, max_new_tokens=3, seed=0)
    assert list(generate(trained, [1], ends=frozenset(), sampling=sampling))
"""


@pytest.mark.slow
def test_training_saving_and_answering_load_no_compiler(tmp_path: Path):
    found = imported_by("-c", SCRIPT, str(tmp_path))
    assert {"torch", "tokenmill.training.optimizer", "tokenmill.model.gpt"} <= found
    assert not COMPILER & found
