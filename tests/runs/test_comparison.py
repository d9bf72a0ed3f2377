"""A comparison's tables, its caution and its answers, on a terminal and as a page."""

import itertools
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.reports.html_page import Page
from tests.runs.project_of_runs import write_run
from tests.terminal import Terminal
from tokenmill.cli.compare import print_comparison, render_page
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_text
from tokenmill.core.paths import HISTORY, STEPS
from tokenmill.runs.comparison import ComparedEpoch, ComparedRun, Comparison

MakeRun = Callable[..., ComparedRun]
LOCK = """\
stages:
  clean: {{outs: [{{path: data/clean, md5: {clean}}}]}}
  tokenizer: {{outs: [{{path: data/tokenizer, md5: {tokenizer}}}]}}
  unpack: {{outs: [{{path: data/tokens, md5: {tokens}}}]}}
"""


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    def make(
        *, clean: str = "text", tokenizer: str = "bpe", tokens: str = "", **how: Any
    ) -> ComparedRun:
        write_run(tmp_path, **how)
        hashes = {"clean": clean, "tokenizer": tokenizer, "tokens": tokens or clean + tokenizer}
        (tmp_path / "dvc.lock").write_text(LOCK.format_map(hashes))
        return ComparedRun.read("<i>\x1b", tmp_path)

    return make


def compared(*runs: tuple[str, ComparedRun, int]) -> Comparison:
    return Comparison([ComparedEpoch.of(name, run, epoch) for name, run, epoch in runs])


def printed(comparison: Comparison, *, width: int, colours: bool) -> str:
    out = Terminal()
    shown = {"COLUMNS": str(width)} | ({} if colours else {"NO_COLOR": "1"})
    with mock.patch.dict(os.environ, shown):
        print_comparison(comparison, out)
    return out.getvalue()


def test_measures_are_those_of_the_files(make_run: MakeRun):
    run = make_run(epochs=3)
    rows = compared(("a", run, 1), ("b", run, 2)).measures
    assert rows["validation loss"] == ["3.5000", "2.5000"]
    assert rows["bits per byte"] == ["1.7500", "1.2500"]
    assert rows["right answers"] == ["0 of 2", "1 of 2"]
    assert rows["tokens seen"] == ["40,960", "81,920"]
    assert rows["parameters"] == ["57,344", "57,344"]
    assert rows["epoch"] == ["1 of 3", "2 of 3"]


@pytest.mark.parametrize(
    ("how", "marked"),
    [
        ({}, {"validation loss", "perplexity", "bits per byte", "right answers"}),
        ({"tokenizer": "char"}, {"bits per byte", "right answers"}),
        ({"clean": "more"}, {"right answers"}),
        ({"prompts": slice(1, 4)}, {"validation loss", "perplexity", "bits per byte"}),
    ],
)
def test_best_values_are_marked_where_they_can_be_compared(
    make_run: MakeRun, how: dict[str, Any], marked: set[str]
):
    first, second = make_run(epochs=1), make_run(epochs=2, **how)
    comparison = compared(("a", first, 1), ("b", second, 2), ("c", first, 1))
    assert comparison.best == {name: [False, True, False] for name in marked}
    page = render_page(comparison)
    assert page.count('<span class="badge best">') == len(marked)
    text = printed(comparison, width=80, colours=False)
    assert len(re.findall(r"^[a-z ]+ .*\* \d", text, re.MULTILINE)) == len(marked)


def test_of_equal_values_none_is_the_best(make_run: MakeRun):
    run = make_run(epochs=1)
    assert compared(("a", run, 1), ("b", run, 1)).best == {}


def test_a_history_of_fewer_epochs_is_refused(make_run: MakeRun, tmp_path: Path):
    make_run(epochs=2)
    history = tmp_path / HISTORY
    write_text(history, history.read_text()[: history.read_text().rindex("\n2,") + 1])
    with pytest.raises(UserError, match=r"2 epochs and .*history\.csv 1;"):
        ComparedRun.read("a", tmp_path)


def test_a_run_without_steps_is_refused(make_run: MakeRun, tmp_path: Path):
    run = make_run(epochs=1)
    steps = tmp_path / STEPS
    steps.write_text(steps.read_text().splitlines()[0] + "\n")
    with pytest.raises(UserError, match=r"steps\.csv has no rows"):
        ComparedRun.read(run.name, tmp_path)


def test_a_huge_perplexity_has_few_digits(make_run: MakeRun):
    column = ComparedEpoch.of("a", make_run(epochs=1), 1)
    bad = replace(column, result=column.result.model_copy(update={"perplexity": 1.9158e61}))
    assert Comparison([bad]).measures["perplexity"] == ["1.92e+61"]


def test_no_row_and_no_grid_where_nothing_is_expected(make_run: MakeRun):
    run = make_run(epochs=2, prompts=slice(2, 4))
    comparison = compared(("a", run, 1), ("b", run, 2))
    assert "right answers" not in comparison.measures
    assert 'class="matrix"' not in render_page(comparison)


def test_filters_hide_the_columns_and_lines_of_a_value(make_run: MakeRun):
    wide = make_run(epochs=2, params={"model.n_embd": 256})
    run = make_run(epochs=2)
    for few in ((("a", run, 1), ("b", wide, 1)), (("a", run, 1), ("b", run, 2), ("c", run, 1))):
        assert "checkbox" not in render_page(compared(*few))
    page = render_page(compared(("a", run, 1), ("b", wide, 1), ("c", run, 2)))
    Page(page).assert_self_contained()
    values = re.findall(r"<label><input [^>]*><bdi>(.*?)</bdi></label>", page)
    assert values[-2:] == ["128", "256"]
    rule = re.search(r"#show-2-1:not\(:checked\)\) :is\((.*?)\) \{", page)
    assert rule
    assert set(rule[1].split(", ")) == {
        "table tr > :nth-child(2)",
        ".versions > :nth-child(1)",
        "table tr > :nth-child(4)",
        ".versions > :nth-child(3)",
        ".line-1",
    }
    assert page.count('<polyline class="line-') == 4, "two runs in two charts"
    assert "epoch 1: 1.7500" in page, "bits per byte"


@pytest.mark.parametrize("lock", ["{}", "stages: []", "stages: {train: {outs: [1]}}"])
def test_damaged_lock_is_a_user_error(lock: str, make_run: MakeRun, tmp_path: Path):
    make_run(epochs=1)
    (tmp_path / "dvc.lock").write_text(lock)
    with pytest.raises(UserError, match=r"dvc\.lock"):
        ComparedRun.read("a", tmp_path)


def test_a_lock_that_is_no_mapping_shall_hold_stages(make_run: MakeRun, tmp_path: Path):
    make_run(epochs=1)
    (tmp_path / "dvc.lock").write_text("3\n")
    with pytest.raises(UserError, match=r"dvc\.lock must hold `stages:` at .* a single value"):
        ComparedRun.read("a", tmp_path)


def test_only_parameters_that_differ_are_shown(make_run: MakeRun):
    first = make_run(epochs=1)
    second = make_run(
        epochs=1, params={"model.n_layer": 12, "runtime.device": "cpu", "evaluate.prompts": []}
    )
    for other, differing in ((second, {"model.n_layer": ["4", "12"]}), (first, {})):
        comparison = compared(("a", first, 1), ("b", other, 1))
        assert comparison.settings == differing
        text = printed(comparison, width=80, colours=False)
        assert ("what differs" in text, "model.n_layer" in text) == 2 * (bool(differing),)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({}, ""),
        ({"tokenizer": "char"}, "The tokenizers differ"),
        ({"clean": "more", "tokenizer": "char"}, "The texts for validation differ"),
        ({"clean": "more"}, "The texts for validation differ"),
        ({"clean": "manifest", "tokens": "textbpe"}, ""),
        ({"params": {"tokenize.val_fraction": 0.5}}, "The texts for validation differ"),
        ({"params": {"train.validation_bytes": 1000}}, "The texts for validation differ"),
        ({"params": {"model.n_layer": 12}}, ""),
    ],
)
def test_caution_names_what_must_not_be_compared(
    make_run: MakeRun, how: dict[str, Any], sentence: str
):
    comparison = compared(("a", make_run(epochs=1), 1), ("b", make_run(epochs=1, **how), 1))
    assert comparison.caution.startswith(sentence)
    assert bool(comparison.caution) == bool(sentence)
    assert comparison.caution in " ".join(printed(comparison, width=80, colours=False).split())
    assert comparison.caution in Page(render_page(comparison)).words


def test_prompt_of_one_run_only_is_marked(make_run: MakeRun):
    both = compared(
        ("a", make_run(epochs=1, prompts=slice(0, 2)), 1),
        ("b", make_run(epochs=1, prompts=slice(1, 4)), 1),
    )
    assert len(both.prompts) == 4
    asked = [[version.answer is not None for version in prompt.versions] for prompt in both.prompts]
    assert asked == [[True, False], [True, True], [False, True], [False, True]]
    text = printed(both, width=80, colours=False)
    assert text.count("(not asked)") == 3
    assert Page(render_page(both)).words.count("not asked") == 2 * 3, "greedy and sampled"


def with_question(run: ComparedRun, number: int, **changes: Any) -> ComparedRun:
    """The run with another question of this number."""
    questions = list(run.evaluation.questions)
    questions[number] = questions[number].model_copy(update=changes)
    return replace(run, evaluation=run.evaluation.model_copy(update={"questions": questions}))


def test_a_question_and_a_text_of_the_same_words_are_two_prompts(make_run: MakeRun):
    run = make_run(epochs=1)
    words = run.evaluation.questions[0].prompt
    both = compared(("a", with_question(run, 1, prompt=words, kind="text"), 1), ("b", run, 1))
    assert [(one.question.kind, one.question.prompt) for one in both.prompts[:2]] == [
        ("user", words),
        ("text", words),
    ]
    first, second = (one.versions[0].answer for one in both.prompts[:2])
    assert [first, second] == run.evaluation.epochs[0].answers[:2]


def test_right_answers_are_those_to_the_same_expectations(make_run: MakeRun):
    first, second = make_run(epochs=1), make_run(epochs=2)
    other = with_question(second, 0, expect="something else")
    assert "right answers" in compared(("a", first, 1), ("b", second, 2)).best
    assert "right answers" not in compared(("a", first, 1), ("b", other, 2)).best


@pytest.mark.parametrize(("expect", "mark"), [("Madrid", "right"), ("x", "wrong"), (None, "")])
def test_answers_are_graded_by_the_shown_expectation(
    make_run: MakeRun, expect: str | None, mark: str
):
    """Each of two runs may expect something else of a prompt."""
    run = make_run(epochs=1)
    assert run.evaluation.epochs[0].answers[0].greedy == "The capital of Spain is Madrid."
    both = compared(("a", run, 1), ("b", with_question(run, 0, expect=expect), 1))
    assert both.prompts[0].question.expect == expect
    assert both.prompts[0].versions[0].mark == mark


def test_changes_are_marked_by_signs_or_colours(make_run: MakeRun):
    run = make_run(epochs=2)
    comparison = compared(("one", run, 1), ("two", run, 2))
    plain, inked = (printed(comparison, width=100, colours=colours) for colours in (False, True))
    assert "  two  right  The capital of [-Spain-] {+France+} is [-Madrid-] {+Paris+}." in plain
    assert "\033" not in plain
    assert "is \033[9;31mMadrid\033[0m \033[1;32mParis\033[0m." in inked
    bare = re.sub(r"\[-|-\]|\{\+|\+\}", "", plain)
    assert re.sub(r"\033\[[\d;]*m", "", inked).split() == bare.split()


def test_answers_are_cut_on_a_terminal_and_none_is_said(make_run: MakeRun):
    run = make_run(epochs=2)
    long = printed(compared(("a", run, 1)), width=100, colours=False)
    assert 200 < long.count("x") < 400
    assert "(nothing)" not in long
    assert "(nothing)" in printed(compared(("a", run, 2)), width=100, colours=False)


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_line_is_wider_than_the_terminal(make_run: MakeRun, width: int):
    run = make_run(epochs=3, params={"data.raw": "/a/very/long/path" * 9})
    names = ["a-name-of-an-experiment-that-is-long", "你好" * 20, "short"]
    comparison = compared(
        *((name, run, epoch) for name, epoch in zip(names, (1, 2, 3), strict=True))
    )
    for line in printed(comparison, width=width, colours=False).splitlines():
        wide = sum(2 if ord(char) > 0x2E80 else 1 for char in line)
        assert wide <= width


def test_hostile_answers_are_escaped(make_run: MakeRun):
    run = make_run(epochs=2)
    comparison = compared(("<i>\x1b[2J", run, 1), ("two", run, 2))
    text = printed(comparison, width=80, colours=False)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", text)
    source = render_page(comparison)
    page = Page(source)
    page.assert_self_contained()
    assert "<script>alert('x')</script>" in "".join(page.text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", source)


def test_lines_of_neighbours_differ_by_colour_and_stroke(make_run: MakeRun):
    runs = [(str(n), make_run(epochs=1), 1) for n in range(11)]
    page = render_page(compared(*runs))
    looks = re.findall(r'<polyline class="line-\d+ (stroke-\d)" style="stroke:([^"]+)"', page)
    chart = looks[: len(looks) // 2]
    assert len(set(chart)) == len(chart) == 9
    for (stroke, colour), (next_stroke, next_colour) in itertools.pairwise(chart):
        assert stroke != next_stroke
        assert colour != next_colour
    assert "The first 9 of 11 runs are drawn" in page


def test_same_comparison_gives_the_same_page(make_run: MakeRun):
    first, second = (
        compared(("a", make_run(epochs=2), 1), ("b", make_run(epochs=3), 3)) for _ in range(2)
    )
    assert render_page(first) == render_page(second)
