"""The stage as DVC runs it: a self-contained page, metrics and tables, with the same bytes every
time."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stages import data_report as stage
from tests.imports import ROOT
from tests.reports.data_material import REPORT
from tests.reports.html_page import Page
from tokenmill.core.files import write_json
from tokenmill.formats.token_file import read_metadata
from tokenmill.reports.page import integer

WRITTEN = [
    "metrics/data.json",
    "metrics/data/document_lengths.csv",
    "metrics/data/dropped.csv",
    "metrics/data/frequent_tokens.csv",
    "metrics/data/languages.csv",
    "metrics/data/sources.csv",
    "reports/data.html",
]


def run_stage(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "stages", "data_report"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def reported(prepared: Path) -> Path:
    done = run_stage(prepared, PYTHONHASHSEED="1")
    assert done.returncode == 0, done.stderr
    return prepared


def test_data_page_is_self_contained(reported: Path) -> None:
    page = Page((reported / "reports/data.html").read_text())
    page.assert_self_contained()
    assert all(target.startswith("#") for target in page.targets)


def test_hostile_text_is_escaped_on_the_data_page(reported: Path) -> None:
    source = (reported / "reports/data.html").read_text()
    text = "".join(Page(source).text)
    assert (
        "<script>alert('x')</script> & </blockquote><img src=http://e.example/x> ⟨U+202E⟩␀␍\n\t"
        in text
    )
    assert "the same <i>cleaned</i> text" in text
    assert "part-3<u>.jsonl" in text
    assert ".<i>pdf" in text
    assert "\u202e" not in source
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", source)


def test_examples_are_cut(reported: Path) -> None:
    runs = re.findall(r"x{100,}(?: …)?", Page((reported / "reports/data.html").read_text()).words)
    assert runs == ["x" * 300 + " …"]


def test_data_page_shows_what_was_counted(reported: Path) -> None:
    text = " ".join(" ".join(Page((reported / "reports/data.html").read_text()).text).split())
    numbers = json.loads((reported / "metrics/data.json").read_text())
    tokens = json.loads((reported / "metrics/tokens.json").read_text())
    total = f"{tokens['train_tokens'] + tokens['val_tokens']:,}"
    assert f"140 documents, {total} tokens" in text
    assert f"{tokens['bytes_per_token']:.2f} bytes" in text
    assert f"{numbers['tokens_per_word']:.2f} tokens for a word" in text
    assert f"at most {numbers['document_tokens_median']}" in text
    assert "near duplicate 30 15.0 %" in text
    assert "en 100 71.4 %" in text
    assert "140 documents, all that were kept" in text
    assert "empty<u>.txt" in text
    assert "The training text has 2 sources" in text
    # of the files beyond the first ten, two are listed
    assert re.search("378 more files ?401 of 440 documents kept", text)
    assert "Nothing was dropped as too short." in text
    for parameter in (
        "data.raw data/raw/<b>",
        "clean.mode strict",
        "takes 20 of 1,000 letters (2.0%)",
        "<i>.txt: cp1251",
        "tokenizer.type",
        "tokenize.split hash",
    ):
        assert parameter in text


def test_data_metrics_are_flat_numbers(reported: Path) -> None:
    numbers = json.loads((reported / "metrics/data.json").read_text())
    assert all(type(value) in (int, float) for value in numbers.values())


def test_tables_hold_what_was_counted(reported: Path) -> None:
    names = ("document_lengths", "dropped", "frequent_tokens", "languages", "sources")
    tables = {
        name: list(csv.reader((reported / f"metrics/data/{name}.csv").read_text().splitlines()))
        for name in names
    }
    assert tables["document_lengths"][:3] == [
        ["log2_characters", "read", "kept"],
        ["0", "0", "0"],
        ["1", "3", "0"],
    ]
    assert tables["dropped"][1:4] == [
        ["near_duplicate", "30"],
        ["duplicate", "20"],
        ["gopher_words", "6"],
    ]
    assert dict(tables["dropped"][1:]) == {
        name: str(count) for name, count in REPORT["dropped"].items()
    }
    assert tables["languages"] == [
        ["language", "documents"],
        ["en", "100"],
        ["de", "30"],
        ["<hr>", "10"],
    ]
    metadata = read_metadata(reported / "data/tokens")
    assert tables["sources"][0] == ["source", "documents", "tokens", "bytes"]
    assert [row[0] for row in tables["sources"][1:]] == ["<i>web", "z.txt"]
    for column, total in enumerate(("documents", "tokens", "bytes"), start=1):
        assert sum(int(row[column]) for row in tables["sources"][1:]) == getattr(
            metadata.train, total
        )
    counts = [int(count) for _, count in tables["frequent_tokens"][1:]]
    assert len(counts) == 30
    assert counts == sorted(counts, reverse=True)


def test_another_process_writes_the_same_data_report(reported: Path, tmp_path: Path) -> None:
    again = tmp_path / "elsewhere"
    shutil.copytree(reported, again, ignore=shutil.ignore_patterns("reports"))
    done = run_stage(again, PYTHONHASHSEED="2", TZ="Asia/Tokyo", SOURCE_DATE_EPOCH="1")
    assert done.returncode == 0, done.stderr
    for name in WRITTEN:
        assert (again / name).read_bytes() == (reported / name).read_bytes(), name


def test_a_mixture_is_shown_with_the_sources(
    reported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = tmp_path / "mixed"
    shutil.copytree(reported, mixed)
    params = mixed / "params.yaml"
    params.write_text(
        params.read_text().replace("  mixture:\n", "  mixture: {'<i>web': 2.5, z.txt: 0}\n")
    )
    monkeypatch.chdir(mixed)
    stage.main()
    page = (mixed / "reports/data.html").read_text()
    rows = list(csv.DictReader((mixed / "metrics/data/sources.csv").read_text().splitlines()))
    assert [row["source"] for row in rows] == ["<i>web", "z.txt"]
    for row, weight in zip(rows, (2.5, 0), strict=True):
        seen = integer(round(weight * int(row["tokens"])))
        assert f"<td>{weight:g}</td><td>{seen}</td></tr>" in page
    assert "tokens of an epoch" not in (reported / "reports/data.html").read_text()
    for table in WRITTEN[:-1]:
        assert (mixed / table).read_bytes() == (reported / table).read_bytes()


def test_nothing_dropped_and_no_language_sampled(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = tmp_path / "quiet"
    shutil.copytree(prepared, quiet)
    nothing = {
        "dropped": {"empty": 0},
        "examples": {},
        "languages": {},
        "sources": {},
        "invalid_utf8": 0,
    }
    write_json(
        quiet / "data/clean_report.json",
        REPORT | nothing | {"documents": {"read": 140, "kept": 140}},
    )
    monkeypatch.chdir(quiet)
    stage.main()
    text = "".join(Page((quiet / "reports/data.html").read_text()).text)
    assert "Nothing: all documents were kept." in text
    assert "Languages" not in text
    assert (quiet / "metrics/data/languages.csv").read_text() == "language,documents\n"
