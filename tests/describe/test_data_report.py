"""The stage as DVC runs it: a page that is whole, harmless and the same every time; flat numbers; tables."""

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
from tests.describe.material import REPORT
from tests.imports import ROOT
from tests.page.whole import Page
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.reports.data_stats import read_clean_report

WRITTEN = [
    "metrics/data.json",
    "metrics/document_lengths.csv",
    "metrics/dropped.csv",
    "metrics/frequent_tokens.csv",
    "metrics/languages.csv",
    "reports/data.html",
]


def describe(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "stages.data_report"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def described(prepared: Path) -> Path:
    done = describe(prepared, PYTHONHASHSEED="1")
    assert done.returncode == 0, done.stderr
    return prepared


def test_the_page_is_whole_and_asks_nobody_for_anything(described: Path) -> None:
    page = Page((described / "reports/data.html").read_text())
    page.assert_harmless()
    assert all(target.startswith("#") for target in page.targets)


def test_hostile_text_is_shown_not_obeyed(described: Path) -> None:
    source = (described / "reports/data.html").read_text()
    text = "".join(Page(source).text)
    assert "<script>alert('x')</script> & </blockquote><img src=http://e.example/x> ⟨U+202E⟩␀␍\n\t" in text
    assert "the same <i>cleaned</i> text" in text
    assert "part-3<u>.jsonl" in text
    assert ".<i>pdf" in text
    assert "\u202e" not in source
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", source)


def test_examples_are_cut(described: Path) -> None:
    runs = re.findall(r"x{100,}(?: …)?", (described / "reports/data.html").read_text())
    assert runs == ["x" * 300 + " …"]


def test_what_the_page_says_is_what_was_counted(described: Path) -> None:
    text = " ".join(" ".join(Page((described / "reports/data.html").read_text()).text).split())
    numbers = json.loads((described / "metrics/data.json").read_text())
    tokens = json.loads((described / "metrics/tokens.json").read_text())
    total = f"{tokens['train_tokens'] + tokens['val_tokens']:,}".replace(",", " ")
    assert f"140 documents, {total} tokens" in text
    assert f"{tokens['bytes_per_token']:.2f} bytes" in text
    assert f"{numbers['tokens_per_word']:.2f} tokens for a word" in text
    assert f"at most {numbers['document_tokens_median']}" in text
    assert "near duplicate 30 15.0 %" in text
    assert "en 100 71.4 %" in text
    assert "Nothing was dropped as too short." in text
    assert "2 more files" in text
    assert "tokenize.split hash" in text


def test_the_metrics_are_flat_numbers(described: Path) -> None:
    numbers = json.loads((described / "metrics/data.json").read_text())
    assert all(type(value) in (int, float) for value in numbers.values())


def test_the_tables_hold_what_was_counted(described: Path) -> None:
    tables = {}
    for name in ("document_lengths", "dropped", "frequent_tokens", "languages"):
        with (described / f"metrics/{name}.csv").open(newline="") as file:
            tables[name] = list(csv.reader(file))
    assert tables["document_lengths"][:3] == [["log2_characters", "read", "kept"], ["0", "0", "0"], ["1", "3", "0"]]
    assert tables["dropped"][1:4] == [["near_duplicate", "30"], ["duplicate", "20"], ["gopher_words", "6"]]
    assert dict(tables["dropped"][1:]) == {name: str(count) for name, count in REPORT["dropped"].items()}
    assert tables["languages"] == [["language", "documents"], ["en", "100"], ["de", "30"], ["<hr>", "10"]]
    counts = [int(count) for _, count in tables["frequent_tokens"][1:]]
    assert len(counts) == 30
    assert counts == sorted(counts, reverse=True)


def test_another_process_writes_the_same_bytes(described: Path, tmp_path: Path) -> None:
    again = tmp_path / "elsewhere"
    shutil.copytree(described, again, ignore=shutil.ignore_patterns("reports"))
    (tmp_path / "matplotlibrc").write_text("font.size: 40\nsvg.fonttype: path\ngrid.linestyle: --\naxes.xmargin: 0.3\n")
    rc = str(tmp_path / "matplotlibrc")
    done = describe(again, PYTHONHASHSEED="2", MATPLOTLIBRC=rc, TZ="Asia/Tokyo", SOURCE_DATE_EPOCH="1")
    assert done.returncode == 0, done.stderr
    for name in WRITTEN:
        assert (again / name).read_bytes() == (described / name).read_bytes(), name


def test_nothing_dropped_and_no_language_asked(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = tmp_path / "quiet"
    shutil.copytree(prepared, quiet)
    nothing = {"dropped": {"empty": 0}, "examples": {}, "languages": {}, "sources": {}, "invalid_utf8": 0}
    write_json(quiet / "data/clean_report.json", REPORT | nothing | {"documents": {"read": 140, "kept": 140}})
    monkeypatch.chdir(quiet)
    stage.main()
    text = "".join(Page((quiet / "reports/data.html").read_text()).text)
    assert "Nothing: all documents were kept." in text
    assert "Languages" not in text
    assert (quiet / "metrics/languages.csv").read_text() == "language,documents\n"


def test_a_damaged_report_of_clean_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "clean_report.json"
    with pytest.raises(UserError, match="is missing; `dvc repro` makes it"):
        read_clean_report(path)
    write_json(path, REPORT | {"lengths": {"edges": [1, 2], "read": [1], "kept": [1, 1]}})
    with pytest.raises(UserError, match=r"clean_report\.json: lengths is wrong .*one length.*dvc repro -f clean"):
        read_clean_report(path)
