"""Rows, sums and what is made of them."""

import copy
import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest

from tokenmill.core.errors import UserError
from tokenmill.formats.records import adapter, read_rows, write_rows
from tokenmill.training.history import (
    EpochRow,
    MeanLoss,
    RunState,
    StepRow,
    train_metrics,
)

ROWS = [
    EpochRow(n, 10 * n, 320 * n, 0.004, 3.25 - n / 8, 3.5 - n / 8, 30.5 - n, 2.125 - n / 16)
    for n in (1, 2)
]


def test_epochs_survive_the_table(tmp_path: Path):
    write_rows(tmp_path / "history.csv", EpochRow, ROWS)
    assert read_rows(tmp_path / "history.csv", EpochRow) == ROWS


def test_table_has_six_digits_and_unix_line_ends(tmp_path: Path):
    write_rows(tmp_path / "steps.csv", StepRow, [StepRow(3, 1 / 3, math.pi * 1e-5, 0.01, 2 / 3)])
    expected = (
        b"step,epoch,loss,learning_rate,gradient_norm\n3,0.333333,3.14159e-05,0.01,0.666667\n"
    )
    assert (tmp_path / "steps.csv").read_bytes() == expected


def test_steps_survive_the_table(tmp_path: Path):
    rows = [StepRow(n, n / 8, 5.0 - n, 0.01, 0.25 * n) for n in (1, 2)]
    write_rows(tmp_path / "steps.csv", StepRow, rows)
    assert read_rows(tmp_path / "steps.csv", StepRow) == rows
    with pytest.raises(UserError, match=r"steps\.csv"):
        read_rows(tmp_path / "steps.csv", EpochRow)


@pytest.mark.parametrize(
    "content",
    [
        "epoch,loss\n1,2\n",
        "epoch\nx\n",
        ",".join(EpochRow.__annotations__) + "\n1,x\n",
        ",".join(EpochRow.__annotations__) + "\n1,0,3,0.1,1.0,1.0,2.7,1.0\n",
        ",".join(EpochRow.__annotations__) + "\n1,2,3,0.1,nan,1.0,2.7,1.0\n",
        ",".join(EpochRow.__annotations__) + "\n1,2,3,0.1,1.0,inf,2.7,1.0\n",
        b"\xff\n1\n",
    ],
)
def test_another_table_is_refused(tmp_path: Path, content: str | bytes):
    path = tmp_path / "history.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=r"history\.csv"):
        read_rows(path, EpochRow)


def test_numbers_that_are_not_finite_survive_the_table(tmp_path: Path):
    """A float16 gradient may overflow in the last step of a row."""
    write_rows(
        tmp_path / "steps.csv",
        StepRow,
        [StepRow(3, 1e-7, 1e17, 0.01, math.inf), StepRow(6, 1.0, 5.0, 0.0, math.nan)],
    )
    assert (tmp_path / "steps.csv").read_text().splitlines()[1:] == [
        "3,1e-07,1e+17,0.01,inf",
        "6,1.0,5.0,0.0,nan",
    ]
    first, second = read_rows(tmp_path / "steps.csv", StepRow)
    assert first.gradient_norm == math.inf
    assert math.isnan(second.gradient_norm)


def test_missing_table_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"history\.csv is missing"):
        read_rows(tmp_path / "history.csv", EpochRow)


def test_mean_loss_weighs_sequences():
    mean = MeanLoss()
    mean.add(2.0, 4)
    mean.add(5.0, 2)
    assert mean.take() == 3.0
    assert mean == MeanLoss()


def test_state_survives_json_bit_by_bit():
    third = 1 / 3
    state = RunState(
        7,
        99,
        MeanLoss(third, 4),
        MeanLoss(math.pi, 1),
        third,
        ROWS,
        [StepRow(1, third, third, third, third)],
    )
    state.epoch_weights = ["a" * 64]
    assert adapter(RunState).validate_python(json.loads(json.dumps(asdict(state)))) == state


def test_a_copy_of_a_state_stays_as_it_is():
    """A checkpoint is written while training goes on."""
    state = RunState(7, 99, MeanLoss(2.0, 4), MeanLoss(3.0, 1), 0.5, ROWS[:1])
    before = copy.deepcopy(state)
    copied = state.copied()
    for value in vars(state).values():
        if isinstance(value, MeanLoss):
            value.add(1.0, 2)
        elif isinstance(value, list):
            value.append("more")
    assert copied == before


def test_train_metrics_are_those_of_the_row():
    expected = {
        "epoch": 2,
        "steps": 20,
        "tokens": 640,
        "parameters": 77,
        "train_loss": 3.0,
        "val_loss": 3.25,
    }
    assert train_metrics(ROWS[1], parameters=77) == expected
