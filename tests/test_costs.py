"""What training costs: sums over sessions, epochs out of them, unknown amounts that stay
unknown."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.cli.summary import cost_lines
from tokenmill.core.errors import UserError
from tokenmill.costs import (
    COSTS,
    NOTHING,
    TIMING,
    Cost,
    CostParams,
    CostRow,
    Timing,
    TimingRow,
    are_whole,
    epoch_costs,
    find_times,
    publish_times,
    read_timing,
    spent,
    total_utilisation,
)
from tokenmill.formats.records import read_rows

TIMING_COLUMNS = ["step", "seconds", "tokens_per_second", "units", "money"]

FREE = CostParams(price_per_hour=None, currency="EUR", units_per_hour=None)
COLAB = CostParams(price_per_hour=0.5, currency="EUR", units_per_hour=1.8)
CLOUD = CostParams(price_per_hour=2.0, currency="EUR", units_per_hour=0.0)


def table(
    *rows: tuple[int, Cost], flops: float | None = None, peak: float | None = None
) -> list[TimingRow]:
    """A timing table of these steps and sums, of a machine whose peak may be known."""
    return [
        TimingRow(step, cost.seconds, 1.0, cost.units, cost.money, 0, "EUR", flops, peak)
        for step, cost in rows
    ]


def test_an_hour_costs_its_price_and_unknown_stays_unknown():
    assert COLAB.cost_of(7200) == Cost(7200, units=3.6, money=1.0, currency="EUR")
    assert FREE.cost_of(7200) == Cost(7200, currency="EUR")
    assert Cost(1, money=2.0) + Cost(1, units=3.0, money=4.0) == Cost(2, money=6.0)


def test_sessions_add_up_at_their_own_prices_with_lost_steps(tmp_path: Path):
    first = Timing(tmp_path, step=0, logged=0, tokens=0, prices=CLOUD)
    first.interval(step=10, tokens=100)
    first.interval(step=20, tokens=200)
    lost = first.total.seconds
    Timing(
        tmp_path, step=10, logged=10, tokens=100, prices=COLAB
    )  # steps 11 to 20 are lost, and this dies at once
    second = Timing(tmp_path, step=10, logged=10, tokens=100, prices=COLAB)
    assert second.total.seconds == pytest.approx(lost, abs=1e-3)
    time.sleep(0.05)
    second.interval(step=20, tokens=200)
    row = read_timing(tmp_path / "timing.csv")[-1]
    paid = row.seconds - lost
    assert row.step == 20
    assert paid > 0.049  # the table has milliseconds
    assert row.money == pytest.approx((lost * 2.0 + paid * 0.5) / 3600, abs=1e-6)
    assert row.units == pytest.approx(paid / 3600 * 1.8, abs=1e-6)


@pytest.mark.parametrize("sessions", [[COLAB, FREE], [FREE, COLAB], [COLAB, FREE, COLAB]])
def test_the_money_of_a_part_is_no_sum(
    sessions: list[CostParams], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hours = 0
    monkeypatch.setattr(time, "perf_counter", lambda: hours * 3600.0)
    for prices in sessions:
        timing = Timing(
            tmp_path, step=10 * hours, logged=10 * hours, tokens=100 * hours, prices=prices
        )
        hours += 1234
        timing.interval(step=10 * hours, tokens=100 * hours)
    rows = read_timing(tmp_path / TIMING)
    ends = [row.step for row in rows]
    costs = epoch_costs(rows, ends)
    assert [row.money for row in costs] == [
        prices.price_per_hour and 1234 * prices.price_per_hour for prices in sessions
    ]
    again = Timing(tmp_path, step=10 * hours, logged=10 * hours, tokens=100 * hours, prices=COLAB)
    assert again.total == spent(rows) == Cost(3600 * hours, currency="EUR")
    assert "EUR" not in cost_lines(costs)[0][1]


def test_money_of_two_currencies_is_no_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nor is work on two machines a share of one peak."""
    hours = 0
    monkeypatch.setattr(time, "perf_counter", lambda: hours * 3600.0)
    machines = [("EUR", 1e12), ("USD", 1e13)]
    for step, (currency, peak) in zip((0, 20), machines, strict=True):
        prices = CostParams(price_per_hour=2, currency=currency, units_per_hour=1)
        timing = Timing(
            tmp_path,
            step=step,
            logged=step,
            tokens=step,
            prices=prices,
            step_flops=3.6e13,
            peak_flops=peak,
        )
        for done in (step + 10, step + 20):
            hours += 1
            timing.interval(step=done, tokens=done)
    rows = read_timing(tmp_path / TIMING)
    again = Timing(tmp_path, step=40, logged=40, tokens=40, prices=COLAB)
    for total in (again.total, spent(rows)):
        assert (total.seconds, total.units, total.money) == (4 * 3600, 4.0, None)
    assert spent(rows, after=20) == Cost(2 * 3600, 2.0, 4.0, "USD")
    costs = epoch_costs(rows, [10, 30, 40])
    assert [row.cost for row in costs] == [
        Cost(3600, 1.0, 2.0, "EUR"),
        Cost(2 * 3600, units=2.0),
        Cost(3600, 1.0, 2.0, "USD"),
    ]
    assert [row.utilisation for row in costs] == [0.1, None, 0.01]
    assert all(row.flops for row in costs)
    together = cost_lines(costs)[0][1]
    assert not any(text in together for text in ("EUR", "USD", "%"))


def test_a_link_in_place_of_the_table_is_not_followed(tmp_path: Path):
    """One that is there at the start, and one that comes while a run appends."""
    (tmp_path / "run").mkdir()
    outside = tmp_path / "outside"
    timing = Timing(tmp_path / "run", step=0, logged=0, tokens=0, prices=FREE)
    (tmp_path / "run/timing.csv").replace(outside)
    (tmp_path / "run/timing.csv").symlink_to(outside)
    before = outside.read_text()
    with pytest.raises(OSError, match=r"timing\.csv"):
        timing.interval(step=10, tokens=100)
    with pytest.raises(UserError, match="is a link"):
        Timing(tmp_path / "run", step=0, logged=0, tokens=0, prices=FREE)
    assert outside.read_text() == before


KILLED_AT_ITS_END = [(10, 1), (20, 2), (15, 4), (20, 5)]
"""The steps and seconds of a run that did its last steps once more."""


@pytest.mark.parametrize(
    ("rows", "spent"),
    [
        ([(10, 1), (20, 2), (15, 4), (20, 5), (30, 6)], {20: 2, 30: 6}),
        ([(10, 1), (20, 2), (30, 3), (15, 4), (20, 5)], {20: 2, 30: 3}),
        (KILLED_AT_ITS_END, {20: 5}),
        ([*KILLED_AT_ITS_END, (15, 7), (20, 8), (30, 9)], {20: 5, 30: 9}),
        ([(10, 1), (20, 2), (30, 3)], {20: 2, 30: 3}),
        ([(10, 1), (20, 2), (20, 3), (20, 4), (30, 6), (30, 7)], {20: 4, 30: 7}),
        ([(20, 2), (20, 3), (15, 5), (20, 6), (20, 7), (30, 8)], {20: 3, 30: 8}),
        ([(10, 1), (20, 2), (25, 3)], {20: 2, 30: None}),
    ],
)
def test_what_a_run_took_stays_when_another_goes_on(
    rows: list[tuple[int, int]], spent: dict[int, int | None], tmp_path: Path
):
    """Of a run that was trained elsewhere, what another one took here says nothing."""
    lines = [",".join(TIMING_COLUMNS), *(f"{step},{seconds},1,," for step, seconds in rows), ""]
    (tmp_path / TIMING).write_text("\n".join(lines))
    found = {steps: read_timing(tmp_path / TIMING, steps=steps) for steps in spent}
    assert {n: rows[-1].seconds if rows else None for n, rows in found.items()} == spent
    for steps, kept in found.items():
        assert [row.step for row in kept][-1:] == [steps] * bool(spent[steps])
        assert [row.step for row in kept] == sorted({row.step for row in kept})


def test_excluded_time_counts_in_the_cost_but_not_the_rate(tmp_path: Path):
    timing = Timing(tmp_path, step=0, logged=0, tokens=0, prices=COLAB)
    with timing.excluded():
        time.sleep(0.2)
    rate = timing.interval(step=1, tokens=100)
    assert 0 < 100 / rate <= timing.total.seconds - 0.2


def test_an_interval_has_its_own_seconds_and_tokens(monkeypatch: pytest.MonkeyPatch):
    now = 10.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    timing = Timing(None, step=0, logged=0, tokens=0, prices=FREE)
    now = 12.0
    assert timing.interval(step=1, tokens=100) == 50
    now = 15.0
    assert timing.interval(step=2, tokens=400) == 100
    assert timing.total.seconds == 5
    now = 16.0
    assert timing.interval(step=2, tokens=400) == 100, "no token more: the rate is the last one"
    assert (timing.total.seconds, timing.seconds) == (6, 6)
    ended = Timing(None, step=2, logged=2, tokens=400, prices=FREE)
    now = 17.0
    assert ended.interval(step=2, tokens=400) == 0
    assert (ended.total.seconds, ended.seconds) == (0, 1), "no token at all: no interval"


def test_without_a_folder_times_are_counted_but_not_written(tmp_path: Path):
    timing = Timing(None, step=0, logged=0, tokens=0, prices=FREE)
    timing.interval(step=1, tokens=10)
    assert timing.total.seconds > 0
    assert not list(tmp_path.iterdir())


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path):
    text = "step,seconds,tokens_per_second,units,money\n3,1.500,200,,\n6,3.000,210,,\n9,4.5"
    (tmp_path / "timing.csv").write_text(text)
    rows = read_timing(tmp_path / "timing.csv")
    assert are_whole(rows), "a table from before it told where its sums begin"
    assert [(row.step, row.tokens_per_second) for row in rows] == [(3, 200), (6, 210)]
    assert spent(rows) == Cost(3.0)
    again = Timing(tmp_path, step=9, logged=9, tokens=30, prices=FREE)
    assert again.total == Cost(3.0)
    assert read_timing(tmp_path / "timing.csv") == rows


@given(
    seconds=st.lists(st.floats(0.01, 1e4), min_size=1, max_size=30),
    per_epoch=st.integers(1, 7),
    prices=st.sampled_from([COLAB, FREE]),
)
def test_epochs_add_up_to_the_run(seconds: list[float], per_epoch: int, prices: CostParams):
    total = NOTHING
    rows = []
    for step, taken in enumerate(seconds, start=1):
        total += prices.cost_of(taken)
        rows.append((step, total))
    ends = [*range(per_epoch, len(seconds), per_epoch), len(seconds)]  # the last in its middle
    costs = epoch_costs(table(*rows, flops=6e9, peak=1e9), ends)
    assert [row.epoch for row in costs] == list(range(1, len(ends) + 1))
    assert sum(row.seconds for row in costs) == pytest.approx(sum(seconds))
    assert sum(row.flops or 0 for row in costs) == 6e9 * len(seconds)
    assert total_utilisation(costs) == pytest.approx(6 * len(seconds) / sum(seconds))
    for row in costs:
        assert row.flops
        assert row.utilisation == pytest.approx(row.flops / 1e9 / row.seconds)
        assert row.money == (None if prices is FREE else pytest.approx(row.hours * 0.5))


@pytest.mark.parametrize(("total", "money"), [(None, None), (2.0, 0.0)])
def test_an_epoch_without_a_price_costs_an_unknown_amount(total: float | None, money: float | None):
    """A price of 0 is a price."""
    rows = table((5, Cost(5, money=2.0)), (10, Cost(10, money=total)))
    costs = epoch_costs(rows, [5, 10])
    assert [row.money for row in costs] == [2.0, money]


def test_an_epoch_whose_beginning_is_missing_is_left_out():
    rows = table((7, Cost(7)), (10, Cost(10)), (15, Cost(15)))
    costs = epoch_costs(rows, [5, 10, 15])
    assert [(row.epoch, row.seconds, row.utilisation) for row in costs] == [(3, 5.0, None)]


@pytest.mark.parametrize(
    ("starts", "epochs"),
    [([3], [2, 3]), ([5], [2, 3]), ([7], [3]), ([0, 3], [1, 2, 3]), ([3, 0], [1, 2, 3])],
)
def test_steps_that_were_made_elsewhere_leave_no_total(
    starts: list[int], epochs: list[int], tmp_path: Path
):
    """Sessions of 15 steps, five to an epoch, with a row for each. They start at these steps."""
    for start in starts:
        timing = Timing(tmp_path, step=start, logged=start, tokens=start, prices=FREE)
        for step in range(start + 1, 16):
            timing.interval(step=step, tokens=step)
    rows = read_timing(tmp_path / TIMING, steps=15)
    costs = epoch_costs(rows, [5, 10, 15])
    assert [row.epoch for row in costs] == epochs
    assert are_whole(rows) is (0 in starts)


def test_steps_between_that_were_made_elsewhere_leave_no_total(tmp_path: Path):
    for start, end in ((0, 5), (10, 20)):
        timing = Timing(tmp_path, step=start, logged=start, tokens=start, prices=FREE)
        for step in range(start + 1, end + 1):
            timing.interval(step=step, tokens=step)
    rows = read_timing(tmp_path / TIMING, steps=20)
    for ends, epochs in (
        ([5, 10, 15, 20], [1, 3, 4]),
        ([5, 10, 20], [1, 3]),
        ([10, 20], [2]),
        ([20], []),
    ):
        costs = epoch_costs(rows, ends)
        assert [row.epoch for row in costs] == epochs
    assert not are_whole(rows)


def test_a_table_may_begin_to_count_late():
    rows = table((5, Cost(5)), (10, Cost(10, 1.0)), (15, Cost(15, 3.0)))
    costs = epoch_costs(rows, [5, 10, 15])
    assert [row.cost for row in costs] == [
        Cost(5, units, currency="EUR") for units in (None, 1.0, 2.0)
    ]


def test_a_table_may_cease_to_count_for_a_while():
    rows = table((5, Cost(5, 1.0)), (10, Cost(10)), (15, Cost(15, 3.0)))
    costs = epoch_costs(rows, [5, 10, 15])
    assert [row.cost for row in costs] == [
        Cost(5, units, currency="EUR") for units in (1.0, None, 2.0)
    ]


def test_an_epoch_too_short_for_the_clock_has_no_utilisation():
    (row,) = epoch_costs(table((5, Cost(0)), flops=1, peak=1e6), [5])
    assert (row.seconds, row.utilisation, total_utilisation([row])) == (0, None, None)


@pytest.mark.parametrize(
    ("currency", "kept"), [("EUR", "EUR"), ('a,"b', 'a,"b'), ("a\n\u2028b", "a b")]
)
def test_the_tables_survive_a_file(tmp_path: Path, currency: str, kept: str):
    prices = CostParams(price_per_hour=3600.0, currency=currency, units_per_hour=None)
    timing = Timing(
        tmp_path, step=0, logged=0, tokens=0, prices=prices, step_flops=6e5, peak_flops=1e9
    )
    for step in (5, 10):
        timing.interval(step=step, tokens=step)
    rows = read_timing(tmp_path / TIMING)
    assert [(row.step, row.currency) for row in rows] == [(5, kept), (10, kept)]
    assert {(row.step_flops, row.peak_flops) for row in rows} == {(6e5, 1e9)}
    costs = epoch_costs(rows, [5, 10])
    publish_times(tmp_path / "metrics", rows, costs)
    assert read_timing(tmp_path / "metrics" / TIMING) == rows
    again = read_rows(tmp_path / "metrics" / COSTS, CostRow)
    assert [row.currency for row in again] == [kept] * 2
    assert [row.flops for row in again] == [5 * 6e5] * 2
    assert [row.seconds for row in again] == pytest.approx([row.seconds for row in costs], rel=1e-5)


def test_the_machine_and_the_price_of_each_session_count(tmp_path: Path):
    """A table from before it had their columns goes on, too."""
    columns = ",".join([*TIMING_COLUMNS, "after"])
    (tmp_path / TIMING).write_text(f"{columns}\n5,1.000,1,,0.1,0\n")
    for step, peak in ((5, 1e9), (10, 4e9)):
        prices = CostParams(price_per_hour=1.0, currency=f"{peak:g}", units_per_hour=None)
        timing = Timing(
            tmp_path,
            step=step,
            logged=step,
            tokens=step,
            prices=prices,
            step_flops=2.0,
            peak_flops=peak,
        )
        timing.interval(step=step + 5, tokens=step + 5)
    first, *others = epoch_costs(read_timing(tmp_path / TIMING), [5, 10, 15])
    assert (first.seconds, first.currency, first.flops, first.utilisation) == (1, None, None, None)
    assert [row.currency for row in others] == ["1e+09", "4e+09"]
    assert [row.flops for row in others] == [10, 10]
    assert "operations" not in cost_lines([first, *others])[0][1]


def test_tables_that_are_not_there_are_empty(tmp_path: Path):
    assert read_timing(tmp_path / "none.csv") == []
    assert epoch_costs([], [5]) == []


def test_the_summary_names_the_costs_of_every_epoch():
    rows = table((5, Cost(12, 1.5)), (10, Cost(20, 2.0)), flops=6e5, peak=1e6)
    lines = cost_lines(epoch_costs(rows, [5, 10]))
    assert [text for _, text in lines[1:]] == [
        "epoch 1: 12 s, 1.5 units",
        "epoch 2: 8 s, 0.5 units",
    ]
    assert "20 s, 2 units" in lines[0][1]
    assert " 30% of" in lines[0][1], "6e6 of 20e6 operations, not the mean of 25 % and 37.5 %"
    assert cost_lines([]) == []


def test_plots_get_the_times_of_the_run_that_is_shown(tmp_path: Path):
    resume = tmp_path / ".resume"
    metrics = tmp_path / "metrics"
    (resume / "here").mkdir(parents=True)
    head = "step,seconds,tokens_per_second,units,money,after,currency,step_flops,peak_flops\n"
    for run, first in (("here/", "3,1.500,200,,,0,,,\n"), ("pruned.", "4,2.000,150,,,2,,,\n")):
        rows = f"{first}6,3.000,210,,,0,,,\n5,4.000,220,,,0,,,\n"
        (resume / f"{run}timing.csv").write_text(f"{head}{rows}")
        timing = read_timing(find_times(resume, run[:-1]), steps=5)
        publish_times(metrics, timing, epoch_costs(timing, [timing[0].step, 5]))
        assert (metrics / "timing.csv").read_text() == f"{head}{first}5,4.000,220,,,0,,,\n"
        *_, last = read_rows(metrics / COSTS, CostRow)
        assert (last.epoch, last.seconds) == (2, 4 - timing[0].seconds)
    publish_times(metrics, read_timing(find_times(resume, "trained elsewhere")), [])
    assert not list(metrics.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "x\n1\n",
        "step,seconds\n1,-1\n",
        "step,seconds,tokens_per_second,units,money\n2,2,1,,\n3,1,1,,\n",
        "step,seconds\n1,1,1\n",
        "step,seconds\n1e99,1\n",
    ],
)
def test_damaged_times_say_that_they_may_be_deleted(tmp_path: Path, text: str):
    (tmp_path / "timing.csv").write_text(text)
    with pytest.raises(UserError, match=r"timing\.csv .*rm"):
        read_timing(tmp_path / "timing.csv")


def test_times_of_a_run_whose_checkpoints_were_removed_go_on(tmp_path: Path):
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "run.timing.csv").write_text(",".join(TIMING_COLUMNS) + "\n3,1.500,200,,\n")
    timing = Timing(folder, step=5, logged=3, tokens=50, prices=FREE)
    timing.interval(step=6, tokens=60)
    rows = read_timing(find_times(tmp_path, "run"))
    assert [row.step for row in rows] == [3, 6]
    assert are_whole(rows), "no interval has ended behind step 3"
    assert timing.total.seconds > 1.5
