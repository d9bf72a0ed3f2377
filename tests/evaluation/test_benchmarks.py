"""Every epoch on benchmarks: scores against a calculation of one text at a time, intervals against
a loop, contaminated items, and the stage itself."""

import csv
import json
import math
import random
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from stages import benchmark as stage
from tests.evaluation.trained import TEXTS, make_tokenizer_file, train_a_model
from tests.imports import ROOT
from tests.pipeline.project import change_params
from tests.training.tiny import CPU
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_text
from tokenmill.evaluation import benchmarks
from tokenmill.evaluation.benchmark_items import BenchmarksParams, Item
from tokenmill.evaluation.benchmark_results import (
    BenchmarkResult,
    BenchmarksFile,
    estimates,
)
from tokenmill.evaluation.benchmarks import (
    Questions,
    as_questions,
    log_probabilities,
    marks,
    run_benchmarks,
)
from tokenmill.formats.records import read_record
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.gpt import GPT
from tokenmill.tokens.index import build_index
from tokenmill.tokens.params import TokenizeParams


def drawn(model: GPT, count: int = 40) -> Questions:
    """Items of random tokens: of one to four choices, some with a context that was cut."""
    draw = random.Random(0)
    items, rows, lengths = list[Item](), list[list[int]](), list[int]()
    most = model.config.context_length
    for number in range(count):
        choices = ["x" * draw.randint(1, 9) for _ in range(1 + number % 4)]
        items.append(Item(context="", choices=choices, gold=draw.randrange(len(choices))))
        for _ in choices:
            length = draw.randint(1, most)
            before = draw.randint(1, most + 1 - length)
            rows.append([draw.randrange(model.config.vocab_size) for _ in range(length + before)])
            lengths.append(length)
    return Questions(items, rows, np.array(lengths), left_out=0, cut=0, unknown="")


def alone(model: GPT, ids: list[int], length: int) -> tuple[float, bool]:
    """The log-probability of the last tokens, one position after the other, and whether each is the
    likeliest."""
    total, is_greedy = 0.0, True
    for place in range(len(ids) - length, len(ids)):
        with torch.no_grad():
            logits = model(torch.tensor([ids[:place]]))[0, -1].double().tolist()
        top = max(logits)
        total += logits[ids[place]] - top - math.log(sum(math.exp(one - top) for one in logits))
        is_greedy &= logits.index(top) == ids[place]
    return total, is_greedy


def test_scores_are_those_of_one_text_at_a_time(
    model: GPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every architecture, whatever goes through it together."""
    questions = drawn(model)
    texts = zip(questions.rows, questions.lengths, strict=True)
    totals, likeliest = zip(*(alone(model, ids, int(length)) for ids, length in texts), strict=True)
    for logits in (1, 23 * 60, 1 << 23):
        monkeypatch.setattr(benchmarks, "LOGITS_AT_A_TIME", logits)
        sums, greedy = log_probabilities(model, questions, CPU)
        assert sums == pytest.approx(np.array(totals), rel=1e-4, abs=1e-4)
        assert tuple(greedy) == likeliest


def test_a_full_memory_halves_what_goes_together(
    model: GPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = drawn(model)
    whole = log_probabilities(model, questions, CPU)
    scored = benchmarks._scored
    sizes = list[int]()

    def narrow(model: GPT, questions: Questions, batch: np.ndarray, compute: Any) -> Any:
        sizes.append(len(batch))
        if len(batch) > 5:
            raise RuntimeError("CUDA out of memory")
        return scored(model, questions, batch, compute)

    monkeypatch.setattr(benchmarks, "_scored", narrow)
    halved = log_probabilities(model, questions, CPU)
    assert max(sizes) > 5
    np.testing.assert_allclose(halved[0], whole[0], rtol=1e-5)
    assert (halved[1] == whole[1]).all()


def test_an_answer_is_right_by_bytes_by_sum_or_by_greed() -> None:
    items = [
        Item(context="", choices=["a", "bbbb"], gold=0),
        Item(context="", choices=["a", "bbbb", "é"], gold=1),
        Item(context="", choices=["no"], gold=0),
        Item(context="", choices=["yes"], gold=0),
        Item(context="", choices=["a", "bb"], gold=1),
    ]
    sums = np.array([-2.0, -3.0, -2.0, -4.0, -1.5, -9.0, -0.75, -3.0, -2.0])
    greedy = np.array([True, False, True, False, False, False, True, False, False])
    questions = Questions(items, [[0]] * 9, np.ones(9), left_out=0, cut=0, unknown="")
    found = marks(questions, sums, greedy)
    assert found[:, 0].tolist() == [0, 0, 0, 1, 1], "-1.5 over two bytes is more than -4 over four"
    assert found[:, 1].tolist() == [1, 0, 0, 1, 1]
    bits = [2 / 1, 4 / 4, 9 / 2, 0.75 / 3, 2 / 2]
    assert found[:, 2] == pytest.approx([nats / math.log(2) for nats in bits])
    assert questions.chance == pytest.approx((1 / 2 + 1 / 3 + 0 + 0 + 1 / 2) / 5)
    last_words = Questions(items[2:4], [[0]] * 2, np.ones(2), left_out=0, cut=0, unknown="")
    assert last_words.chance is None


@pytest.mark.parametrize(
    ("name", "accuracy", "clean"), [("mine", 1 / 3, 0), ("winogrande", 2 / 3, 1)]
)
def test_the_accuracy_that_counts_is_by_bytes_or_by_sum(
    name: str, accuracy: float, clean: float
) -> None:
    items = [Item(context="", choices=["a", "b"], gold=0)] * 3
    questions = Questions(items, [[0]] * 6, np.ones(6), left_out=0, cut=0, unknown="")
    marked = np.array([[1, 0, 2.0], [0, 1, 4.0], [0, 1, 6.0]])

    def result_of(found: list[np.ndarray], *shared: bool) -> BenchmarkResult:
        tracer: Any = SimpleNamespace(shared=lambda *_: (np.array(shared), []))
        return benchmarks._result(name, questions, found, tracer, 8)

    result = result_of([marked, 10 * marked], True, False, False)
    for score, times in zip(result.epochs, (1, 10), strict=True):
        values = [score.by_bytes.value, score.by_sum.value, score.bits_per_byte.value]
        assert values == pytest.approx([times / 3, 2 * times / 3, 4 * times])
        assert score.clean is not None
        assert score.clean.value == clean * times
    assert result_of([marked], False, False, False).epochs[0].clean is None
    assert result_of([marked], True, True, True).epochs[0].clean is None
    metrics = BenchmarksFile(overlap_words=8, results=[result]).metrics(1)
    assert metrics[name]["accuracy"] == pytest.approx(accuracy, rel=1e-5)


def test_intervals_are_those_of_a_loop() -> None:
    draw = random.Random(1)
    values = [[float(draw.random() < 0.3), draw.gauss(5, 2)] for _ in range(80)]
    found = estimates(np.array(values))
    assert found == estimates(np.array(values))
    for column, estimate in enumerate(found):
        own = [row[column] for row in values]
        means = sorted(statistics.fmean(draw.choices(own, k=80)) for _ in range(4000))
        spread = statistics.stdev(own) / math.sqrt(80)
        assert estimate.value == pytest.approx(statistics.fmean(own))
        assert estimate.low == pytest.approx(means[100], abs=0.25 * spread)
        assert estimate.high == pytest.approx(means[3900], abs=0.25 * spread)


def test_one_item_has_an_interval_without_width() -> None:
    (only,) = estimates(np.array([[0.5]]))
    assert (only.low, only.value, only.high) == (0.5, 0.5, 0.5)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two epochs of a model of single characters, and an index of its text."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train_a_model(folder)
    (folder / "data/tokenizer").mkdir(parents=True)
    (folder / "tokenizer.json").rename(folder / "data/tokenizer/tokenizer.json")
    for name, target in (("tokens", "data/tokens"), ("model", "models/gpt")):
        (folder / target).parent.mkdir(exist_ok=True)
        (folder / name).rename(folder / target)
    build_index(
        clean=folder / "clean",
        tokens=folder / "data/tokens",
        tokenizer_file=folder / "data/tokenizer/tokenizer.json",
        out=folder / "data/index",
        split=TokenizeParams(split="tail", val_fraction=0.2),
        max_tokens=10**9,
    )
    write_text(folder / "params.yaml", (ROOT / "params.yaml").read_text())
    return folder


@pytest.fixture
def project(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def write_items(name: str, items: list[dict[str, Any]]) -> None:
    write_text(Path(f"data/benchmarks/{name}.jsonl"), "".join(f"{json.dumps(i)}\n" for i in items))


OWN = [
    {"context": "count?", "choices": ["one two", "two"], "gold": 0},
    {"context": "o" * 58, "choices": ["two", "one two", "count"], "gold": 2},
    {"context": "ZZone", "choices": [" two", "two"], "gold": 1},
    {"context": "one", "choices": [" ZZ", "two"], "gold": 1},
    {"context": "one", "choices": ["two" * 30, "two"], "gold": 1},
]
"""A whole one, one whose context is cut by a token, and one with unknown characters; the last two
cannot be asked."""


def run(**changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "models": Path("models/gpt"),
        "tokenizer_file": Path("data/tokenizer/tokenizer.json"),
        "device": "cpu",
        "tracer": None,
        "overlap_words": 2,
    }
    return run_benchmarks(BenchmarksParams(names=["mine"], items=99), **arguments | changes)


def test_what_does_not_fit_is_counted(project: Path) -> None:
    write_items("mine", OWN)
    (result,) = run().results
    assert (result.items, result.left_out, result.cut, result.unknown) == (3, 2, 1, "Z")
    assert result.chance == pytest.approx((1 / 2 + 1 / 3 + 1 / 2) / 3)
    assert result.contaminated is None
    assert [score.epoch for score in result.epochs] == [1, 2]
    tokenizer = read_tokenizer(project / "data/tokenizer/tokenizer.json")
    questions = as_questions(
        [Item.model_validate(item) for item in OWN], tokenizer, context_length=64
    )
    assert [len(ids) for ids in questions.rows] == [14, 10, 62, 65, 64, 8, 7]
    assert questions.rows[0][0] == tokenizer.eot_id
    assert tokenizer.decode(questions.rows[5][1:]) == "one two"


def test_another_tokenizer_is_refused(project: Path) -> None:
    write_items("mine", OWN)
    file = make_tokenizer_file(project / "other", "char", ["other characters"])
    with pytest.raises(UserError, match="other/tokenizer"):
        run(tokenizer_file=file)


def test_items_that_cannot_be_asked_are_refused(project: Path) -> None:
    write_items("mine", OWN[3:])
    with pytest.raises(UserError, match=r"mine.*none of 2 items.*context_length \(64\)"):
        run()


def test_the_stage_measures_every_epoch(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And finds the planted item: its words stand in the training text, in this order."""
    words = " ".join(TEXTS[0][1:-1].split())
    planted = {"context": "count?", "choices": ["one two", "two one"], "gold": 0}
    clean = {"context": "two count one?", "choices": ["two", "one"], "gold": 1}
    assert "one two" in words
    write_items("mine", [planted, clean, clean])
    write_items("word", [{"context": "count? one", "choices": [" two"], "gold": 0}])
    change_params(
        project / "params.yaml",
        {"benchmarks.names": ["mine", "word"], "trace.overlap_words": 2, "runtime.device": "cpu"},
    )
    stage.main()
    found = read_record(Path("reports/benchmarks.json"), BenchmarksFile)
    mine, word = found.results
    assert (mine.contaminated, word.contaminated) == (1, 1)
    assert mine.overlaps[0].passages[0].text == "one two"
    last = mine.epochs[-1]
    assert last.clean is not None
    right = 3 * last.by_bytes.value - 2 * last.clean.value
    assert right == pytest.approx(1.0) or right == pytest.approx(0.0)
    assert word.epochs[-1].clean is None
    assert word.chance is None
    metrics = json.loads(Path("metrics/benchmarks.json").read_text())
    assert metrics.keys() == {"mine", "word"}
    assert metrics["mine"]["accuracy"] == pytest.approx(last.by_bytes.value, rel=1e-5)
    with Path("metrics/benchmarks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["epoch"], row["benchmark"]) for row in rows] == [
        ("1", "mine"),
        ("2", "mine"),
        ("1", "word"),
        ("2", "word"),
    ]
    assert (rows[1]["items"], rows[1]["contaminated"], rows[3]["chance"]) == ("3", "1", "")
    assert float(rows[1]["bits_per_byte"]) == pytest.approx(last.bits_per_byte.value, rel=1e-5)
    assert "mine" in capsys.readouterr().out
    first = Path("reports/benchmarks.json").read_bytes()
    stage.main()
    assert Path("reports/benchmarks.json").read_bytes() == first


def test_without_benchmarks_the_stage_writes_empty_results(project: Path) -> None:
    change_params(project / "params.yaml", {"benchmarks.names": []})
    stage.main()
    assert read_record(Path("reports/benchmarks.json"), BenchmarksFile).results == []
    assert json.loads(Path("metrics/benchmarks.json").read_text()) == {}
    assert len(Path("metrics/benchmarks.csv").read_text().splitlines()) == 1
