"""The stage `report` as DVC runs it: reports/index.html is self-contained, right, and the same
every time."""

import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stages import report as stage
from tests.imports import ROOT
from tests.reports.html_page import Page
from tests.reports.run_material import (
    FINGERPRINT,
    HOSTILE,
    PER_EPOCH,
    SOURCE,
    benchmarks,
    documents,
    evaluation,
    prepare,
    traces,
    write_groups,
    write_timing,
)
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.evaluation.results import EpochResult
from tokenmill.reports.page import integer
from tokenmill.training.history import RunState, ValidationRow


def in_a_process(folder: Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "stages", "report"],
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "GIT_CEILING_DIRECTORIES": str(folder.parent)}
        | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return (folder / "reports/index.html").read_text()


@pytest.fixture
def epochs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], str]:
    """The stage in this process; gives its page."""

    def run(folder: Path) -> str:
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent))
        monkeypatch.chdir(folder)
        stage.main()
        return (folder / "reports/index.html").read_text()

    return run


Epochs = Callable[[Path], str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = prepare(tmp_path_factory.mktemp("run"))
    write_timing(folder, epochs=3)
    in_a_process(folder, PYTHONHASHSEED="1")
    return folder


@pytest.fixture(scope="module")
def source(made: Path) -> str:
    return (made / "reports/index.html").read_text()


def cells(page: str) -> list[list[str]]:
    """The numbers in the table of epochs, one row per epoch."""
    bodies = re.findall(
        r"<tbody>\s*<tr>(.*?)</tr>", page[page.index('class="epochs"') :], re.DOTALL
    )
    found = [re.findall(r"<td data-name[^>]*>(.*?)</td>", body) for body in bodies]
    return [[cell.replace("\u202f", " ") for cell in row] for row in found if row]


def test_run_page_is_self_contained(source: str):
    page = Page(source)
    page.assert_self_contained()
    assert {"data.html", "samples.md"} == {
        target for target in page.targets if not target.startswith("#")
    }


def test_a_model_worse_than_frequencies_is_warned_of(tmp_path: Path, epochs: Epochs):
    folder = prepare(tmp_path)
    write_json(folder / "metrics/data.json", {"unigram_bits_per_byte": 0.5})
    assert "Warning:" in Page(epochs(folder)).words


def test_validations_within_epochs_are_drawn(tmp_path: Path, epochs: Epochs):
    folder = prepare(tmp_path)
    manifest = json.loads((folder / "models/gpt/manifest.json").read_text())
    manifest["train"]["validate_every_steps"] = 7
    write_json(folder / "models/gpt/manifest.json", manifest)
    state = RunState(step=3 * PER_EPOCH, validations=[ValidationRow(7, 0.35, 3.1875, 1.0)])
    saved = {
        "state": asdict(state),
        "resumable": {
            "epochs": 3,
            "schedule": {"horizon_epochs": None},
            "validate_every_steps": 7,
            "early_stopping": None,
            "target_loss": None,
        },
    }
    write_json(folder / f"models/gpt/resume/step-{3 * PER_EPOCH:09d}/state.json", saved)
    page = epochs(folder)
    assert "epoch 0.35: validation loss 3.1875" in page
    assert page.index("3.1875") < page.rindex("epoch 1: validation loss 3.5000")


@pytest.mark.parametrize("lines", [slice(3, 4), slice(1, None)], ids=["one row", "all rows"])
def test_an_infinite_gradient_norm_is_not_drawn(lines: slice, tmp_path: Path, epochs: Epochs):
    """Float16 skips the update of such a step and goes on."""
    steps = prepare(tmp_path) / "metrics/steps.csv"
    rows = steps.read_text().splitlines()
    rows[lines] = [re.sub(r"[^,]+$", "inf", row) for row in rows[lines]]
    steps.write_text("\n".join([*rows, ""]))
    assert ("at most 1.5." in epochs(tmp_path)) == (lines.stop is not None)


def test_a_run_that_came_to_its_target_says_so(tmp_path: Path, epochs: Epochs):
    folder = prepare(tmp_path)
    manifest = folder / "models/gpt/manifest.json"
    content = json.loads(manifest.read_text())
    content["train"] |= {"epochs": 9, "target_loss": 99.0}
    write_json(manifest, content)
    last = 3 * PER_EPOCH
    assert f"after step {last} of {3 * last}." in Page(epochs(folder)).words


def test_steps_that_end_too_early_are_refused(tmp_path: Path, epochs: Epochs):
    steps = prepare(tmp_path) / "metrics/steps.csv"
    steps.write_text("".join(steps.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match=r"steps\.csv"):
        epochs(tmp_path)


def test_hostile_text_is_escaped_on_the_run_page(source: str):
    text = "".join(Page(source).text)
    seen = "<script>alert('x')</script> & </blockquote><img src=http://e.example/x> ⟨U+202E⟩␀"
    for expected in (
        f"{seen}␍\n\t one",
        f"{seen}␍\n\t prompt",
        f"{seen}␍\n\t sampled 3",
        "x" * 3000,
        "🙂 e\u0301 ⟨U+200B⟩",
    ):
        assert expected in text
    assert "\u202e" not in source
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", source)
    assert HOSTILE not in source


def test_table_of_epochs_has_the_evaluations_numbers(source: str):
    def numbers(result: EpochResult) -> list[str]:
        losses = [f"{result.train_loss:.4f}", f"{result.val_loss:.4f}"]
        found = [f"{result.bits_per_byte:.4f}", f"{sum(result.expected)} of {len(result.expected)}"]
        return [*losses, f"{result.perplexity:,.2f}", *found]

    assert [row[:5] for row in cells(source)] == [numbers(result) for result in evaluation().epochs]


def test_times_and_costs_are_the_runs_own(source: str):
    # intervals of epoch 2: steps 25, 30, 35, 40, at 1000 + step tokens a second; it ended at 160 s,
    # epoch 1 at 40 s
    rate = (1030 + 1035) / 2
    assert cells(source)[1][5:] == [
        f"{2048 / rate:.0f} s",
        f"{round(rate):,}",
        "2 min",
        "1.20 USD",
    ]
    assert "together" in source
    assert re.findall(r"<td[^>]*>(.*?)</td>", source[source.index("<tfoot>") :])[:2] == [
        "6\u202fmin",
        "3.60 USD",
    ]


def test_tiny_costs_and_huge_perplexities_are_written(tmp_path: Path, epochs: Epochs):
    folder = prepare(tmp_path)
    content = evaluation().model_dump()
    content["epochs"][0]["perplexity"] = 1.9158e61
    write_json(folder / "reports/evaluation.json", content)
    write_timing(folder, epochs=3)
    timing = folder / f".resume/{FINGERPRINT}/timing.csv"
    timing.write_text(re.sub(r"[\d.]+,USD$", "0.001,USD", timing.read_text(), flags=re.MULTILINE))
    page = epochs(folder)
    assert cells(page)[0][2] == "1.92e+61"
    costs = [html.unescape(row[-1]) for row in cells(page)]
    assert costs == ["<0.01 USD", "0.00 USD", "0.00 USD"], "two epochs cost nothing"
    total = re.findall(r"<td[^>]*>(.*?)</td>", page[page.index("<tfoot>") :])[1]
    assert html.unescape(total) == "<0.01 USD"


def test_an_epoch_costs_in_its_own_currency(made: Path, tmp_path: Path, epochs: Epochs):
    """And money of two currencies has no sum."""
    folder = shutil.copytree(made, tmp_path / "moved")
    timing = next((folder / ".resume").rglob("timing.csv"))
    head, *rows = timing.read_text().splitlines()
    first = [row.replace("USD", "EUR") for row in rows if int(row.split(",")[0]) <= PER_EPOCH]
    timing.write_text("\n".join([head, *first, *rows[len(first) :], ""]))
    source = epochs(folder)
    assert [cell.split()[-1] for cell in re.findall(r"[\d.]+ [A-Z]{3}", source)] == [
        "EUR",
        "USD",
        "USD",
    ]


def test_changes_of_an_epoch_are_described(source: str):
    words = Page(source).words.replace("\u202f", " ")
    assert "validation loss −1.0000 (−28.6 %); now right: What is the capital of France?" in words
    assert "validation loss +0.2500 (+10.0 %); 3 of 4 answers changed" in words
    assert "2best" in words
    assert "Overfitting. After epoch 2" in words


def test_only_changed_words_of_answers_are_marked(source: str):
    first = source[source.index('id="prompt-1"') : source.index('id="prompt-2"')]
    assert (
        "The capital of <del>Spain</del> <ins>France</ins> is <del>Madrid</del> <ins>Paris</ins>."
        in first
    )
    assert first.count("unchanged</span>") == 1
    assert "The capital of France is Paris.</p>" in first
    assert "50.0\u202f% repeated" in source[source.index('id="prompt-4"') :]


def test_run_page_lists_parameters_and_hashes(source: str):
    words = Page(source).words
    for expected in ("train.schedule.decay_fraction", "model.n_layer"):
        assert expected in words
    assert "runtime." not in words.replace("runtime.cost", "")
    weights = [hashlib.sha256(f"weights {n}".encode()).hexdigest() for n in (1, 2, 3)]
    digests = [sha256(bytes.fromhex(digit * 64)).hexdigest() for digit in "ab"]
    for hash_ in (*digests, "c" * 64, FINGERPRINT, *weights):
        assert hash_ in words


def test_another_process_writes_the_same_run_report(made: Path, source: str, tmp_path: Path):
    again = tmp_path / "elsewhere"
    shutil.copytree(made, again)
    (again / "reports/index.html").unlink()
    assert (
        in_a_process(again, PYTHONHASHSEED="2", TZ="Asia/Tokyo", LC_ALL="C", SOURCE_DATE_EPOCH="1")
        == source
    )


def test_times_of_another_run_are_not_shown(
    made: Path, source: str, tmp_path: Path, epochs: Epochs
):
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(made, elsewhere, ignore=shutil.ignore_patterns(".resume"))
    write_timing(elsewhere, epochs=3, fingerprint="another")
    page = epochs(elsewhere)
    assert "time per step" not in page
    assert cells(page) == [row[:5] for row in cells(source)]


def test_unknown_times_and_prices_are_left_out(made: Path, tmp_path: Path, epochs: Epochs):
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(made, elsewhere, ignore=shutil.ignore_patterns(".resume"))
    write_timing(elsewhere, epochs=3, after=PER_EPOCH, money=False)
    page = epochs(elsewhere)
    assert [row[5:] for row in cells(page)][:2] == [["–", "–", "–"]] * 2
    assert cells(page)[2][7] == "3.3 min"
    assert "runtime.cost" in page


def test_recall_and_generalisation_are_two_numbers(made: Path, tmp_path: Path, epochs: Epochs):
    folder = shutil.copytree(made, tmp_path / "marked")
    content = evaluation().model_dump()
    for question, mark in zip(content["questions"], ("seen", "held_out", None, None), strict=True):
        question["mark"] = mark
    content["questions"][2]["truth"] = "<i>what follows</i>"
    write_json(folder / "reports/evaluation.json", content)
    source = epochs(folder)
    words = Page(source).words
    badges = re.findall(r'<span class="(badge [^"]+)">(\w+)</span>', source)
    assert {name: look for look, name in badges if name != "best"} == {
        "recall": "badge seen",
        "generalisation": "badge held-out",
    }
    assert "recall1 of 1" in words
    assert "generalisation0 of 1" in words
    assert [row[4:6] for row in cells(source)] == [
        ["0 of 1", "0 of 1"],
        ["1 of 1", "0 of 1"],
        ["1 of 1", "0 of 1"],
    ]
    assert "It answers 1 of 1 questions whose answers its text has" in words
    assert "in the held-out text: <i>what follows</i>" in words


def test_prompts_without_a_mark_count_too(made: Path, tmp_path: Path, epochs: Epochs):
    folder = shutil.copytree(made, tmp_path / "half")
    content = evaluation().model_dump()
    content["questions"][0]["mark"] = "seen"
    write_json(folder / "reports/evaluation.json", content)
    source = epochs(folder)
    words = Page(source).words
    assert "It gives 1 of 2 expected answers, after its first epoch 0 of 2." in words
    assert "nowhere in it" not in words
    assert [row[4:6] for row in cells(source)][-1] == ["1 of 1", "1 of 2"]


def test_answers_are_traced_to_the_training_text(source: str):
    words = Page(source).words
    assert "In the training text: 4 of 6 words, the rarest phrase at 2 places" in words
    assert '<mark title="2 places in 1 document">The capital of France</mark>' in source
    assert "The prompt stands in 3 documents, with the expected text" in words
    assert "1 of 10 documents" in words
    assert "The others take 1.6250 bits per byte" in words


def test_what_nobody_knows_of_a_prompt_is_not_said(tmp_path: Path, epochs: Epochs):
    """More documents have it than are read, and none of these has what is expected."""
    folder = prepare(tmp_path)
    found = traces()
    unknown = found.prompts[0].model_copy(update={"is_known": None})
    prompts = [unknown, *found.prompts[1:]]
    content = found.model_copy(update={"prompts": prompts}).model_dump()
    write_json(folder / "reports/answer_traces.json", {"traces": content})
    words = Page(epochs(folder)).words
    assert "in 3 documents; those that were read are without the expected text." in words
    assert "Of 1 prompt with an expected answer, 0 stand" in words


def groups(page: str) -> list[list[str]]:
    """The rows of the tables by source and by language."""
    part = page[page.index('id="losses"') : page.index('id="epochs"')]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', part)
    return [[Page(name).words, *re.findall(r"<td>(.*?)</td>", cells)] for name, cells in rows]


def test_losses_by_source_and_by_language(made: Path, tmp_path: Path, epochs: Epochs):
    """Where there are several of them, of the last epoch, the largest first."""
    folder = shutil.copytree(made, tmp_path / "groups")
    table = documents(3, ("a", "b"), ("en", "de"))
    table = table.with_columns(
        loss=table["loss"] * pl.Series([1 if name == "a" else 2 for name in table["source"]]),
        language=pl.Series([None if size == 600 else "en" for size in table["bytes"]]),
    )
    write_groups(folder, table)
    assert groups(epochs(folder)) == [
        ["a", "4", "1.4\u202fkB", "1.0000"],
        ["b", "2", "700\u202fB", "2.0000"],
    ], "one language, and what is not clear"
    table = table.with_columns(
        source=pl.lit("a"), language=pl.Series([["de", None, "fr"][n % 3] for n in range(18)])
    )
    write_groups(folder, table)
    found = groups(epochs(folder))
    assert [row[:2] for row in found] == [["fr", "2"], ["not clear", "2"], ["de", "2"]]


def test_one_source_and_one_language_are_not_shown(made: Path, tmp_path: Path, epochs: Epochs):
    folder = shutil.copytree(made, tmp_path / "one")
    for source in ("a", None):
        table = documents(3, ("a",)).with_columns(source=pl.lit(source, pl.String))
        write_groups(folder, table)
        assert groups(epochs(folder)) == []


def test_benchmarks_have_a_section(made: Path, tmp_path: Path, epochs: Epochs):
    assert "Benchmarks" not in Page((made / "reports/index.html").read_text()).words
    folder = shutil.copytree(made, tmp_path / "measured")
    write_json(folder / "reports/benchmarks.json", benchmarks().model_dump())
    source = epochs(folder)
    page = Page(source)
    page.assert_self_contained()
    rows = cells(source[source.index('id="benchmarks"') :])
    assert [[re.sub("<[^>]*>", "", cell) for cell in row] for row in rows] == [
        ["500", "37.5 % 18.8 % to 75.0 %", "25.0 %", "1.3333 0.67 to 2.67", "2"],
        ["500", "40.0 % 20.0 % to 80.0 %", "–", "1.3333 0.67 to 2.67", "unknown"],
    ]
    assert "without contaminated items 18.8 % (9.4 % to 37.5 %)" in page.words.replace(
        "\u202f", " "
    )
    assert "epoch 2: arc_easy 25.0 %" in source
    assert "CC BY-SA 4.0" in page.words
    assert page.words.count("7 items was cut") == page.words.count("3 items left out") == 1
    assert HOSTILE not in source


def test_only_benchmarks_that_are_told_apart_are_drawn(tmp_path: Path, epochs: Epochs):
    folder = prepare(tmp_path)
    found = benchmarks()
    many = [found.results[0].model_copy(update={"name": f"b{n}"}) for n in range(1, 14)]
    content = found.model_copy(update={"results": many}).model_dump()
    write_json(folder / "reports/benchmarks.json", content)
    page = epochs(folder)
    assert "The first 9 of 13 benchmarks are drawn." in page
    assert ("epoch 1: b9 " in page, "epoch 1: b10 " in page) == (True, False)
    looks = re.findall(r'<polyline class="(stroke-\d)" style="stroke:([^"]+)"', page)
    assert len(set(looks)) == len(looks) == 9
    assert "var(--series-2)" not in {colour for _, colour in looks}  # a bar's, too pale for a line


def test_benchmarks_of_other_epochs_are_refused(tmp_path: Path, epochs: Epochs):
    folder = prepare(tmp_path)
    found = benchmarks(2)
    many = [found.results[0].model_copy(update={"name": f"b{n}"}) for n in range(3)]
    content = found.model_copy(update={"results": many}).model_dump()
    write_json(folder / "reports/benchmarks.json", content)
    with pytest.raises(UserError, match=r"benchmarks\.json has 2 epochs") as error:
        epochs(folder)
    assert str(error.value).count("benchmarks.json") == 1


def test_a_mixture_is_shown_by_source(source: str, tmp_path: Path, epochs: Epochs):
    assert "How often training sees it" not in source
    folder = prepare(tmp_path)
    path = folder / "models/gpt/manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"mixture": {SOURCE: 2.5}}))
    page = epochs(folder)
    context = manifest["model"]["context_length"]
    tokens = json.loads((folder / "data/packed/metadata.json").read_text())["train"]["tokens"]
    seen = context * round(2.5 * ((tokens - 1) // context))
    assert f"<td>{integer(tokens)}</td><td>2.5</td><td>{integer(seen)}</td>" in page
    assert HOSTILE not in page
    path.write_text(json.dumps(manifest | {"mixture": {"b": 2.5}}))
    with pytest.raises(UserError, match=r"data\.mixture\.b"):
        epochs(folder)


def other_prompts(folder: Path, evaluation: dict[str, Any]) -> Path:
    """The folder with another evaluation, in which traces are of other prompts."""
    write_json(folder / "reports/evaluation.json", evaluation)
    return folder


def test_one_epoch_without_prompts_has_a_page(tmp_path: Path, epochs: Epochs):
    folder = prepare(tmp_path / "one", epochs=1)
    content = evaluation(1).model_dump()
    for question, answer in zip(content["questions"], content["epochs"][0]["answers"], strict=True):
        question["expect"] = None
        answer["found"] = None
    write_json(folder / "reports/evaluation.json", content)
    text = epochs(folder)
    page = Page(text)
    page.assert_self_contained()
    assert "best" not in page.words
    assert "right answers" not in page.words, "nothing is expected"
    assert "matrix" not in [value for name, value in page.attributes if name == "class"]
    assert "<small><br>" not in text, "a note of a first epoch, which there is not"
    assert "dvc metrics diff" not in text
    assert "By epoch" not in page.words, "a chart of one epoch would have a dot for a line"
    content["questions"] = []
    content["epochs"][0]["answers"] = []
    with pytest.raises(UserError, match=r"answer_traces\.json"):
        epochs(other_prompts(folder, content))
    write_json(folder / "reports/answer_traces.json", {"traces": None})
    write_json(folder / "reports/evaluation.json", content)
    empty = Page(epochs(folder))
    empty.assert_self_contained()
    assert "Same prompts" not in empty.words
