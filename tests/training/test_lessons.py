"""The eleven failures of the project before this one, each with what happens now
(docs/lessons.md)."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.test_memory import WIDE, small_memory
from tests.training.tiny import CPU, digest, model_config, run
from tokenmill.core.errors import UserError
from tokenmill.formats.token_row import open_tokens
from tokenmill.model.gpt import build
from tokenmill.model.manifest import read_manifest
from tokenmill.model.sequences import Sequences, place_tokens, sequences_anywhere


def test_another_context_length_is_another_run(here: Path, tokens: Path, said: io.StringIO):
    """A run was resumed with another context length, and its positions meant nothing any more.

    The context length is part of the fingerprint that names the checkpoint folder.
    """
    run(tokens, here / "model")
    (first,) = (here / ".resume").iterdir()
    before = digest(first)
    run(tokens, here / "model", model={"context_length": 4})
    assert said.getvalue().count("starting from scratch") == 2
    assert digest(first) == before
    assert len(list((here / ".resume").iterdir())) == 2


def test_int32_tokens_reach_the_loss_as_int64(tokens: Path):
    """The loss crashed on targets of int32."""
    ids, _ = place_tokens(open_tokens(tokens, "train"), "mmap", CPU.device)
    assert isinstance(ids, torch.Tensor)
    inputs_BT, targets_BT = Sequences(ids.unfold(0, 9, 8), device=CPU.device).gather(np.arange(3))
    assert ids.dtype == torch.int32
    assert (inputs_BT.dtype, targets_BT.dtype) == (torch.int64, torch.int64)
    assert build(model_config(), seed=0)(inputs_BT, targets_BT).isfinite()


def test_a_run_continues_from_checkpoints_that_exist(here: Path, tokens: Path, said: io.StringIO):
    """The code that resumed looked for a name that nothing had saved.

    What is there is listed; what is no whole checkpoint is passed over with a sentence.
    """
    run(tokens, here / "quiet", epochs=3)
    shutil.rmtree(here / ".resume")
    run(tokens, here / "model", epochs=2)
    newest = max(here.glob(".resume/*/step-*"))
    (newest / "manifest.json").unlink()
    (newest.parent / "step-last").mkdir()
    (newest.parent / "final").mkdir()
    run(tokens, here / "model", epochs=3)
    assert f"{newest.name} is damaged" in said.getvalue()
    assert "continuing from step" in said.getvalue()
    assert digest(here / "model") == digest(here / "quiet")


def test_tokens_that_fit_are_read_from_memory(tokens: Path):
    """Random reads from a memory map were slow, although the file fitted in memory."""
    ids, place = place_tokens(open_tokens(tokens, "train"), "auto", CPU.device)
    assert place == "memory"
    assert isinstance(ids, torch.Tensor)
    assert not isinstance(ids.numpy().base, np.memmap)


@pytest.mark.parametrize("sequences", [1, 16])
def test_a_batch_is_one_operation_whatever_its_size(
    tokens: Path, monkeypatch: pytest.MonkeyPatch, sequences: int
):
    """A Python loop cut every batch out of the tokens, sequence after sequence."""
    calls = []
    select = torch.index_select
    monkeypatch.setattr(torch, "index_select", lambda *a, **k: calls.append(1) or select(*a, **k))
    ids, _ = place_tokens(open_tokens(tokens, "train"), "memory", CPU.device)
    sequences_anywhere(ids, context_length=8, device=CPU.device).gather(np.arange(sequences))
    assert len(calls) == 1


def test_compilation_and_precision_are_said_with_their_reason(
    here: Path, tokens: Path, said: io.StringIO, monkeypatch: pytest.MonkeyPatch
):
    """Both were off by accident for days, and nothing said so."""
    monkeypatch.setattr("tokenmill.training.compile.missing_compiler", lambda _: None)
    run(tokens, here / "model", precision="auto", runtime={"compile": "auto"})
    lines = {
        line.split()[0]: line for line in said.getvalue().splitlines() if line.startswith("  ")
    }
    assert "off: an epoch takes" in lines["compile"]
    assert "bfloat16" in lines["device"] or "float32" in lines["device"]


def test_a_batch_too_large_for_memory_is_cut(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    """A greedy batch size ran out of memory, and the night was lost.

    The step is repeated with half the micro-batch; the batch, and so the result, stay.
    """
    run(tokens, here / "quiet", runtime={"micro_batch_size": 1}, **WIDE)
    shutil.rmtree(here / ".resume")
    tried = small_memory(monkeypatch, holds=1)
    run(tokens, here / "model", **WIDE)
    assert tried[:3] == [5, 2, 1]
    assert digest(here / "model") == digest(here / "quiet")


def test_after_a_crash_the_next_process_starts_smaller(
    here: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
):
    """After a crash the notebook kept the memory, and every further attempt failed like the first.

    A process that cannot go on ends, and remembers the micro-batch with which the next one
    continues.
    """
    with monkeypatch.context() as patch:
        small_memory(patch, holds=0)
        with pytest.raises(UserError, match="micro-batch of 1"):
            run(tokens, here / "model", **WIDE)
    tried = small_memory(monkeypatch, holds=1)
    run(tokens, here / "model", **WIDE)
    assert tried[0] == 1


def test_a_model_refuses_another_tokenizer(here: Path, tokens: Path):
    """The code assumed a tokenizer that was not the one of the data."""
    run(tokens, here / "model", epochs=1)
    manifest = read_manifest(here / "model")
    assert (
        manifest.tokenizer_sha256
        == json.loads((tokens / "metadata.json").read_text())["tokenizer_sha256"]
    )
    with pytest.raises(UserError, match="another tokenizer"):
        manifest.check_tokenizer("f" * 64, "data/tokenizer")


@pytest.mark.parametrize("assumed", ["<i2", "<u2", "<i8"])
def test_another_dtype_is_refused(tokens: Path, tmp_path: Path, assumed: str):
    """A reader assumed int16, and half of every token became a token."""
    folder = tmp_path / "tokens"
    shutil.copytree(tokens, folder)
    path = folder / "train.bin"
    path.write_bytes(np.fromfile(path, "<i4").astype(assumed).tobytes())
    with pytest.raises(UserError, match="bytes"):
        open_tokens(folder, "train")
    metadata = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").write_text(json.dumps(metadata | {"dtype": assumed}))
    with pytest.raises(UserError, match="dtype"):
        open_tokens(folder, "train")


def test_a_session_that_is_cut_off_loses_nothing(here: Path, tokens: Path):
    """The session ended after twelve hours, and with it everything since the last save.

    With a limit the run saves and stops before that. `test_killed.py` kills it without a warning.
    """
    every: dict[str, Any] = {"checkpoint": {"every_steps": None}}
    run(tokens, here / "quiet", epochs=3, runtime=every)
    shutil.rmtree(here / ".resume")
    with pytest.raises(UserError, match="stopped by runtime"):
        run(tokens, here / "model", epochs=3, runtime=every | {"max_minutes": 1e-9})
    run(tokens, here / "model", epochs=3, runtime=every)
    assert digest(here / "model") == digest(here / "quiet")
