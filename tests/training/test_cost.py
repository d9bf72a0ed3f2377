"""Hours, units, money, energy and operations: added up over sessions, unknown where they are."""

import io
import re
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from tests.training.tiny import CONTEXT, model_config, run
from tokenmill.commands.summary import _costs
from tokenmill.costs import (
    CostParams,
    Meter,
    Spent,
    TimeRow,
    Timing,
    epoch_costs,
    price,
    rapl,
    read_costs,
    read_timing,
    unknown,
    write_costs,
)
from tokenmill.display.training import TrainingDisplay, amounts, clock
from tokenmill.model.build import build
from tokenmill.model.config import ModelConfig
from tokenmill.model.size import flops_per_token, matmul_parameters
from tokenmill.planning.hardware import HARDWARE, hardware_of, peak_flops
from tokenmill.training.history import StepRow

FREE = CostParams(price_per_hour=None, currency="EUR", units_per_hour=None)
COLAB = CostParams(price_per_hour=0.5, currency="EUR", units_per_hour=1.8)
GPT2_SMALL = ModelConfig(
    architecture="gpt2", n_layer=12, n_head=12, n_embd=768, context_length=512, dropout=0.0, vocab_size=32_000
)


def rows_of(folder: Path) -> list[TimeRow]:
    return read_timing(folder / "timing.csv")


def test_an_hour_costs_what_it_costs_and_what_is_unknown_stays_so():
    assert price(COLAB, 7200) == Spent(7200, units=3.6, money=1.0)
    assert price(FREE, 7200) == Spent(7200)
    assert Spent(1, money=2.0) + Spent(1, units=3.0) == Spent(2, units=3.0, money=2.0)


def test_sessions_add_up_each_at_its_own_price_lost_steps_included(tmp_path: Path):
    first = Timing(tmp_path, step=0, tokens=0, meter=Meter(FREE, unknown))
    first.interval(step=10, tokens=100)
    first.interval(step=20, tokens=200)
    free = first.spent.seconds
    second = Timing(tmp_path, step=10, tokens=100, meter=Meter(COLAB, unknown))  # steps 11 to 20 were lost
    assert [row.step for row in rows_of(tmp_path)] == [10]
    assert second.spent.seconds == pytest.approx(free, abs=1e-3)
    time.sleep(0.05)
    second.interval(step=20, tokens=200)
    row = rows_of(tmp_path)[-1]
    paid = row.spent.seconds - free
    assert row.step == 20
    assert paid > 0.049  # the table has milliseconds
    assert row.spent.money == pytest.approx(paid / 3600 * 0.5, abs=1e-6)
    assert row.spent.units == pytest.approx(paid / 3600 * 1.8, abs=1e-6)
    assert row.spent.watt_hours is None


def test_time_aside_is_spent_but_slows_no_rate(tmp_path: Path):
    timing = Timing(tmp_path, step=0, tokens=0, meter=Meter(COLAB, unknown))
    with timing.aside():
        time.sleep(0.2)
    time.sleep(0.01)
    rate = timing.interval(step=1, tokens=100)
    assert timing.spent.seconds > 0.2
    assert rate > 100 / 0.2


def test_a_table_without_costs_and_a_row_cut_off_are_read(tmp_path: Path):
    (tmp_path / "timing.csv").write_text("step,seconds,tokens_per_second\n3,1.500,200\n6,3.000,210\n9,4.5")
    assert rows_of(tmp_path) == [TimeRow(3, Spent(1.5), 200), TimeRow(6, Spent(3.0), 210)]


@given(
    seconds=st.lists(st.floats(0.01, 1e4), min_size=1, max_size=30),
    per_epoch=st.integers(1, 7),
    known=st.booleans(),
)
def test_epochs_add_up_to_the_run(seconds: list[float], per_epoch: int, known: bool):
    spent, rows = Spent(), []
    for step, taken in enumerate(seconds, start=1):
        spent += price(COLAB if known else FREE, taken)
        rows.append(TimeRow(step, spent, 1.0))
    costs = epoch_costs(rows, steps_per_epoch=per_epoch, flops_per_epoch=6e9, peak=1e9, currency="EUR")
    epochs = len(seconds) // per_epoch
    assert [cost.epoch for cost in costs] == list(range(1, epochs + 1))
    assert sum(cost.seconds for cost in costs) == pytest.approx(sum(seconds[: epochs * per_epoch]))
    for cost in costs:
        assert (cost.money is not None) == known
        assert cost.utilisation == pytest.approx(6 / cost.seconds)
        assert not known or cost.money == pytest.approx(cost.hours * 0.5)


def test_an_epoch_whose_beginning_is_not_in_the_table_is_left_out():
    rows = [TimeRow(step, Spent(step), 1.0) for step in (7, 10, 15)]
    costs = epoch_costs(rows, steps_per_epoch=5, flops_per_epoch=1, peak=None, currency="EUR")
    assert [(cost.epoch, cost.seconds, cost.utilisation) for cost in costs] == [(3, 5.0, None)]


def test_the_table_of_costs_survives_a_file(tmp_path: Path):
    rows = [TimeRow(5, Spent(12.5, 1.5, None, 4.25), 1.0), TimeRow(10, Spent(20, 2.0, None, 6.0), 1.0)]
    costs = epoch_costs(rows, steps_per_epoch=5, flops_per_epoch=3e6, peak=None, currency="EUR")
    write_costs(tmp_path / "costs.csv", costs)
    for read, written in zip(read_costs(tmp_path / "costs.csv"), costs, strict=True):
        assert (read.epoch, read.units, read.money, read.utilisation) == (written.epoch, written.units, None, None)
        assert read.hours == pytest.approx(written.hours, rel=1e-5)
    assert read_costs(tmp_path / "none.csv") == []


def test_a_training_leaves_its_costs_by_epoch(here: Path, tokens: Path):
    outcome = run(tokens, here / "model", runtime={"cost": {"price_per_hour": 3600.0, "units_per_hour": 7200.0}})
    costs = read_costs(here / "costs.csv")
    assert [cost.epoch for cost in costs] == [1, 2]
    for cost in costs:
        assert cost.money == pytest.approx(cost.seconds, abs=2e-3)
        assert cost.units == pytest.approx(2 * cost.seconds, abs=4e-3)
        assert cost.flops == 19 * CONTEXT * flops_per_token(outcome.manifest.model)
    lines = _costs(costs)
    assert len(lines) == 3
    assert re.fullmatch(r"training took  \d s, [\d.]+ units, [\d.]+ EUR(, .* kWh)? for .* operations", lines[0])
    assert re.match(r" {15}epoch 2: \d s, [\d.]+ units, [\d.]+ EUR", lines[2])


def test_the_progress_line_tells_what_is_spent_and_what_is_to_come(monkeypatch: pytest.MonkeyPatch):
    out = io.StringIO()
    display = TrainingDisplay(out)
    display.start([("model", "x")], step=100, total=300, prices=COLAB)
    monkeypatch.setattr("tokenmill.display.training.PLAIN_EVERY", 0.0)
    display._began -= 7200.0  # a hundred steps took two hours
    row = StepRow(step=200, epoch=2.0, loss=1.5, learning_rate=0.1, gradient_norm=1.0)
    display.interval(row, 1000.0, Spent(10_800, units=5.4, money=1.5))
    assert "spent 3.0 h, 5.4 units, 1.50 EUR; 2.0 h, 3.6 units, 1.00 EUR to come, until " in out.getvalue()
    assert out.getvalue().strip().endswith(clock(7200.0))
    assert amounts(Spent(30, watt_hours=2000.0), "EUR") == "30 s, 2 kWh"


def package(folder: Path, joules: float) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "energy_uj").write_text(f"{round(joules * 1e6)}\n")
    (folder / "max_energy_range_uj").write_text("1000000000\n")


def test_the_counters_of_cpu_packages_add_up_and_begin_again(tmp_path: Path):
    package(tmp_path / "intel-rapl:0", 990)
    package(tmp_path / "intel-rapl:1", 5)
    package(tmp_path / "intel-rapl:0:0", 700)  # a part of package 0
    joules = rapl(tmp_path)
    meter = Meter(FREE, joules)
    assert joules() == 995
    package(tmp_path / "intel-rapl:0", 8)
    assert joules() == 995 + 18
    assert meter.charge(1.0).watt_hours == pytest.approx(18 / 3600)
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert joules() is None
    assert meter.charge(1.0).watt_hours is None
    assert rapl(tmp_path / "nothing")() is None


@pytest.mark.parametrize("n_layer", [1, 3])
def test_matrix_products_are_counted_as_pytorch_counts_them(n_layer: int):
    """`modern` has no biases and norms without weights, so the parameters account for every product but attention's."""
    config = model_config(n_layer=n_layer)
    ids_BT = torch.zeros((2, CONTEXT), dtype=torch.long)
    model = build(config, seed=0)
    with FlopCounterMode(display=False) as counter:
        model(ids_BT).square().mean().backward()
    counted = counter.get_flop_counts()["Global"]
    products = sum(n for operation, n in counted.items() if "bmm" not in str(operation))  # those are attention's
    assert products == 6 * matmul_parameters(config) * ids_BT.numel()
    assert flops_per_token(config) == 6 * matmul_parameters(config) + 12 * n_layer * 16 * CONTEXT


def test_gpt2_small_has_as_many_parameters_as_published_and_costs_what_the_paper_says():
    assert matmul_parameters(GPT2_SMALL) == 134_601_216 - 32_000 * 768 - 512 * 768
    assert flops_per_token(GPT2_SMALL) == 6 * 109_632_000 + 12 * 12 * 768 * 512


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", None),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
    ],
)
def test_only_a_device_that_is_known_has_a_peak(name: str, expected: str | None):
    found = hardware_of(name)
    assert (found.name if found else None) == expected
    assert peak_flops(torch.device("cpu")) is None
    assert len({entry.name for entry in HARDWARE}) == len(HARDWARE)
