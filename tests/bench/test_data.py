"""The benchmark of the data side: its corpus keeps its promises, and a small run gives all its
figures."""

import importlib.util
import itertools
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from bench.data import driver, growth, measure
from bench.data.corpus import FORMATS, WordLaw, documents, read_source, write_corpus
from bench.data.jobs import STAGES
from bench.program import exponents
from tests.bench.conftest import Bench
from tests.imports import ROOT
from tokenmill.sample.generator import conversations

TEXTS = [
    "\n".join(question + " " + answer for question, answer in one)
    + '\n\tA "quoted" back\\slash, \\n and naïve café'
    for one in conversations(seed=0, count=200)
]


def test_a_corpus_has_its_size_and_no_document_twice(tmp_path: Path) -> None:
    made = write_corpus(read_source(TEXTS, escaped=True), tmp_path / "c.jsonl", 3_000_000, "jsonl")
    texts = pl.read_ndjson(tmp_path / "c.jsonl")["text"]
    assert len(texts) == made.documents == texts.n_unique()
    assert made.file_bytes == (tmp_path / "c.jsonl").stat().st_size
    assert 0 <= made.file_bytes - 3_000_000 < 50_000
    assert 0.5 < made.text_bytes / made.documents / 2000 < 2


def test_a_poor_text_gives_no_document_twice() -> None:
    source = read_source(["again and " * 1000], escaped=True)
    some = list(itertools.islice(documents(source), 5000))
    assert len(set(some)) == len(some)


def words_of(texts: Iterable[str]) -> Counter[str]:
    return Counter(word.strip(".,;:!?") for text in texts for word in text.split()[2:])


def test_a_corpus_has_the_words_of_its_text(tmp_path: Path) -> None:
    """Frequent ones as often as there; rare ones may be made of two halves."""
    write_corpus(read_source(TEXTS, escaped=True), tmp_path / "c.jsonl", 1_000_000, "jsonl")
    made = words_of(pl.read_ndjson(tmp_path / "c.jsonl")["text"])  # without "No. 7."
    given = words_of("No. 7. " + text for text in TEXTS)
    for word, count in given.most_common(5):
        assert made[word] / made.total() == pytest.approx(count / given.total(), rel=0.3)
    halves = {half for word in given for half in (word[: len(word) // 2], word[len(word) // 2 :])}
    for word in set(made) - set(given):
        assert any({word[:cut], word[cut:]} <= halves for cut in range(2, len(word)))


def text_by_heaps(exponent: float, size: int) -> str:
    """Words without end, drawn by Zipf's law with the inverse of the exponent."""
    drawn = np.random.default_rng(1).zipf(1 / exponent, size=size)
    numbers = drawn * 6364136223846793005 % 26**8  # neighbours then share no letters
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return " ".join(
        "".join(letters[[number // 26**place % 26 for place in range(8)]]) for number in numbers
    )


@pytest.mark.parametrize("exponent", [0.4, 0.6])
def test_new_words_keep_coming_as_in_the_text(exponent: float) -> None:
    source = read_source([text_by_heaps(exponent, 100_000)], escaped=False)
    assert 1 / source.law.zipf == pytest.approx(exponent, abs=0.07)
    texts = (text.decode() for text in documents(source))
    seen, different = 0, []
    known: set[str] = set()
    for text in texts:
        words = text.split()[2:]
        known.update(words)
        seen += len(words)
        if seen >= 100_000 * 4 ** len(different):
            different.append(len(known))
        if len(different) == 3:
            break
    power = math.log(different[-1] / different[0], 16)
    assert power == pytest.approx(exponent, abs=0.12)
    given = len(set(text_by_heaps(exponent, 100_000).split()))
    assert different[0] == pytest.approx(given, rel=0.3)


@pytest.mark.parametrize("exponent", [0.3, 0.5, 0.8])
def test_the_law_gives_as_many_words_as_asked(exponent: float) -> None:
    law = WordLaw.of(exponent, types=2000, tokens=5000)
    draws = np.random.default_rng(0)
    assert len(set(law.draw(draws, 5000).tolist())) == pytest.approx(2000, rel=0.05)
    more = [len(np.unique(law.draw(draws, size))) for size in (200_000, 1_600_000)]
    assert math.log(more[1] / more[0], 8) == pytest.approx(exponent, abs=0.05)


def test_the_first_documents_do_not_depend_on_the_size() -> None:
    source = read_source(TEXTS, escaped=False)
    few, many = (list(itertools.islice(documents(source), count)) for count in (10, 200))
    assert many[:10] == few


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_the_same_every_time(tmp_path: Path, form: str) -> None:
    source = read_source(TEXTS, escaped=form != "txt")
    paths = [tmp_path / "first", tmp_path / "second"]
    made = [write_corpus(source, path, 200_000, form) for path in paths]
    assert made[0] == made[1]
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.slow
def test_a_small_run_gives_all_figures(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "bench.data",
        "--megabytes",
        "1",
        "--repeat",
        "1",
        "--stages-only",
    ]
    run = [
        *command,
        "--vocabulary",
        "1000",
        "--json",
        str(tmp_path / "f.json"),
        "--scratch",
        str(tmp_path),
    ]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "f.json").read_text())
    for name in ("clean", "tokenizer", "tokenize", "unpack"):
        assert figures["jobs"][name]["seconds"] > 0
        assert 20 < figures["jobs"][name]["peak_mib"] < 1000
    assert 0.02 < figures["packed"]["text"] < 0.5
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]


@pytest.mark.slow
@pytest.mark.usefixtures("forked_jobs")
def test_the_curve_has_a_row_for_each_stage_and_input(bench: Bench, tmp_path: Path) -> None:
    bench("data.growth", "--tiny", "--vocabulary", "600", "--json", tmp_path / "f.json")
    rows = json.loads((tmp_path / "f.json").read_text())
    inputs = [
        (curve, size)
        for curve, sizes in zip(growth.CURVES, growth.TINY, strict=True)
        for size in sizes
    ]
    assert [(row["curve"], row["size"], row["stage"]) for row in rows] == [
        (*one, stage) for one in inputs for stage in (*STAGES, "all")
    ]
    for row in rows:
        assert row["seconds"] > 0
        assert row["processor seconds"] > 0
        assert row["peak MiB"] > 20
    assert rows[0]["text MB"] == pytest.approx(1, rel=0.2)
    assert rows[-1]["text MB"] == pytest.approx(0.002 * growth.TINY[1][0], rel=0.9)


def test_the_exponent_of_a_curve_is_a_slope() -> None:
    def row(curve: str, size: int, seconds: float) -> dict[str, object]:
        return {"curve": curve, "stage": "all", "size": size, "seconds": seconds}

    rows = [row("square", size, 3 * size**2) for size in (1, 10, 40)]
    rows += [row("even", size, size / 7) for size in (2, 30)]
    rows += [row("once", 5, 1.0), {"curve": "even", "stage": "all", "left out": "killed"}]
    found = exponents(rows, ["curve", "stage"], size="size", took="seconds")
    assert found == pytest.approx({("square", "all"): 2, ("even", "all"): 1})


@pytest.mark.skipif(
    importlib.util.find_spec("tiktoken") is not None, reason="tiktoken is installed"
)
def test_a_missing_peer_is_reported(tmp_path: Path) -> None:
    assert measure.run("tiktoken", tmp_path).facts == {"missing": "tiktoken"}


def test_simulated_nodes_are_driven(bench: Bench, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(driver, "CHUNKS", 6)
    monkeypatch.setattr(driver, "CHUNK_SECONDS", 0.0)
    for name in ("raw.txt", "the same.txt"):
        (tmp_path / name).write_text("\n".join(TEXTS), encoding="utf-8")
    *_, last = bench("data.driver", tmp_path).splitlines()
    assert last.split()[1] == str(driver.NODES[-1])
