"""Training that starts from the weights of a model that there is."""

import shutil
import signal
from pathlib import Path

import pytest
import torch

from tests.training.fork_server import ForkServer
from tests.training.tiny import digest, model_config, run, write_tokens
from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of
from tokenmill.formats.token_file import read_metadata, write_metadata
from tokenmill.model.gpt import build
from tokenmill.model.huggingface import load_model, save_weights


@pytest.fixture
def start(here: Path) -> Path:
    """A model, and tokens that its tokenizer made."""
    save_weights(build(model_config(dropout=0.2), seed=77), here / "start")
    (here / "start/tokenizer.json").write_text("any")
    tokens = write_tokens(here / "tokens", sequences=19)
    made_by = {"tokenizer_sha256": sha256_of(here / "start/tokenizer.json")}
    write_metadata(tokens, read_metadata(tokens).model_copy(update=made_by))
    return here / "start"


def test_training_starts_from_these_weights(start: Path, here: Path):
    run(
        here / "tokens",
        here / "model",
        start=start,
        epochs=1,
        learning_rate=1e-12,
        weight_decay=0.0,
    )
    first = load_model(start)
    trained = load_model(here / "model/epoch-1")
    for mine, theirs in zip(trained.parameters(), first.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6, rtol=0)


def test_hash_of_the_weights_is_in_the_fingerprint(start: Path, here: Path):
    scratch = run(here / "tokens", here / "model", epochs=1).manifest
    found = run(here / "tokens", here / "model", start=start, epochs=1).manifest
    assert found.start_sha256 == sha256_of(start / "model.safetensors")
    save_weights(build(model_config(), seed=78), start)
    other = run(here / "tokens", here / "model", start=start, epochs=1).manifest
    assert len({scratch.fingerprint, found.fingerprint, other.fingerprint}) == 3
    assert scratch.start_sha256 is None


def test_stopped_run_ends_with_the_same_bytes(start: Path, here: Path):
    run(here / "tokens", here / "model", start=start)
    whole = digest(here / "model")
    shutil.rmtree(here / ".resume")
    for _ in range(2):
        with pytest.raises(UserError):
            run(here / "tokens", here / "again", start=start, runtime={"max_minutes": 1e-9})
    run(here / "tokens", here / "again", start=start)
    assert digest(here / "again") == whole


def test_killed_run_ends_with_the_same_bytes(start: Path, here: Path, fork_server: ForkServer):
    arguments = {"start": str(start), "epochs": 8}
    assert fork_server.start(here / "whole", here / "tokens", **arguments).wait() == 0
    # Writing a checkpoint after each step, it is far from its end when it is killed
    often = {"checkpoint": {"every_steps": 1}}
    killed = fork_server.start(here / "killed", here / "tokens", **arguments, runtime=often)
    killed.until(lambda: len(killed.checkpoints()) > 1)
    assert killed.stop(signal.SIGKILL) == -signal.SIGKILL
    again = fork_server.start(here / "killed", here / "tokens", **arguments)
    assert again.wait() == 0
    assert "continuing from step" in again.said
    assert digest(here / "killed/model") == digest(here / "whole/model")


def test_other_sizes_are_refused(start: Path, here: Path):
    with pytest.raises(UserError, match="other sizes"):
        run(here / "tokens", here / "model", start=start, model={"n_layer": 3})


def test_tokens_of_another_tokenizer_are_refused(start: Path, here: Path):
    (start / "tokenizer.json").write_text("other")
    with pytest.raises(UserError, match="another tokenizer"):
        run(here / "tokens", here / "model", start=start)


def test_missing_weights_are_named(start: Path, here: Path):
    (start / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model\.safetensors .*`dvc pull"):
        run(here / "tokens", here / "model", start=start)
