"""Who trains without compiling waits for PyTorch at the start, and not for its compiler."""

from pathlib import Path

import pytest

from tests.fresh import COMPILER, imported_by

SCRIPT = """
import os, sys
from pathlib import Path
from tests.training.tiny import run, write_tokens

os.environ["DVC_ROOT"] = sys.argv[1]
here = Path(sys.argv[1])
tokens = write_tokens(here / "tokens", sequences=20)
for epochs in (1, 2):
    # Muon steps the embeddings by AdamW
    run(tokens, here / "model", epochs=epochs, optimizer="muon")
assert (here / "model" / "epoch-2").is_dir()
"""


@pytest.mark.slow
def test_training_that_continues_and_saves_loads_no_compiler(tmp_path: Path):
    found = imported_by("-c", SCRIPT, str(tmp_path))
    assert {"torch", "tokenmill.training.optimizer"} <= found
    assert not COMPILER & found
