"""The ladder's rungs do the same work, each in its way; one that fails or makes no sense is named, and fails alone."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from bench import rungs
from bench.ladder_table import draw, print_table, rows_of
from bench.rungs import RUNGS, TINY, ScriptAttention, left_out, loop, make, vectorised
from bench.turns import Rival, Timed, measure
from tokenmill.model.build import build
from tokenmill.model.gpt2 import Attention, Block

IDS = np.random.default_rng(0).integers(TINY.vocab_size, size=2000).astype("<u2")


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    IDS.tofile(tmp_path / "tokens.bin")
    return tmp_path / "tokens.bin"


@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_takes_steps(rung: str, tokens: Path):
    make(rung, TINY, tokens)(2)


@pytest.mark.parametrize("flash", [False, True])
def test_attention_of_a_script_is_the_models_own(flash: bool):
    model = build(TINY.config("flash"), seed=0)
    ours, x_BTD = model.blocks[0], torch.randn(2, 16, 16)
    assert isinstance(ours, Block)
    assert isinstance(ours.attention, Attention)
    torch.testing.assert_close(ScriptAttention(ours.attention, 16, flash=flash)(x_BTD), ours.attention(x_BTD))


def test_a_loop_reads_the_same_from_a_file_as_from_memory(tokens: Path):
    mapped = np.memmap(tokens, dtype="<u2", mode="r")
    (inputs, targets), (same_inputs, same_targets) = loop(mapped, TINY)(), loop(IDS, TINY)()
    assert torch.equal(inputs, same_inputs)
    assert torch.equal(targets, same_targets)
    for x_BT, y_BT in ((inputs, targets), vectorised(IDS, TINY)()):
        assert x_BT.shape == (TINY.batch, TINY.context_length)
        assert torch.equal(x_BT[:, 1:], y_BT[:, :-1])


def test_bfloat16_that_would_be_emulated_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    cpu = torch.device("cpu")
    monkeypatch.setattr(rungs, "multiplies_bfloat16", lambda _: True)
    assert left_out("mixed", cpu) is None
    monkeypatch.setattr(rungs, "multiplies_bfloat16", lambda _: False)
    assert [rung for rung in RUNGS if rung != "compiled" and left_out(rung, cpu)] == ["mixed"]
    reason = left_out("mixed", cpu)
    print_table(rows_of({"RAM": Timed(2.0, [0.5, 0.7]), "mixed": Timed(failed=reason)}, TINY, peak=1e9))
    said = capsys.readouterr().out
    assert f"left out: mixed: {reason}" in said
    assert "0.6" in said


def test_rungs_are_compared_turn_by_turn(tmp_path: Path):
    """A load that comes for one turn slows both alike, and the ratio does not see it."""
    climbed = {
        "memory map": Timed(1.0, [1.0, 8.0, 1.0]),
        "RAM": Timed(1.0, [0.5, 4.0, 0.5]),
        "mixed": Timed(failed="no"),
    }
    rows = rows_of(climbed, TINY, peak=1e9)
    assert [row.get("times the first") for row in rows] == [1.0, 2.0, None]
    assert [row["original, s"] for row in rows] == [1.6, 0.8, 0.225]
    draw(rows, "cpu", tmp_path / "l.svg")
    assert "left out" in (tmp_path / "l.svg").read_text()


def test_a_rung_that_fails_fails_alone(tokens: Path):
    rivals = {name: Rival(partial(make, name, TINY, tokens), is_stage=False) for name in ("none", "RAM")}
    climbed = measure(rivals, rounds=2, steps=1, at_a_time=2)
    assert climbed["none"].failed == "ValueError: tuple.index(x): x not in tuple"
    assert climbed["RAM"].failed is None
    assert climbed["RAM"].first > 0
    assert len(climbed["RAM"].turns) == 2
