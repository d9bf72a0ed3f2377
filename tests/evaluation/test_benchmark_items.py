"""Benchmarks: what a file of items may hold, which items are asked, and what is offered."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.imports import ROOT
from tokenmill.core.errors import UserError
from tokenmill.core.params import ParamsError, read_yaml, validate
from tokenmill.evaluation import benchmark_items
from tokenmill.evaluation.benchmark_items import (
    OFFERED,
    BenchmarksParams,
    headline,
    read_items,
)
from tokenmill.schema import AllParams, refuse_for_stages

RIGHT = {"context": "2 + 2 =", "choices": [" 4", " 5"], "gold": 0}


@pytest.fixture
def folder(here: Path) -> Path:
    (here / "data/benchmarks").mkdir(parents=True)
    return here / "data/benchmarks"


def test_a_user_s_own_file_is_read(folder: Path) -> None:
    own = [RIGHT, RIGHT | {"context": ["two", "three"], "gold": 1}, RIGHT | {"choices": [" 4"]}]
    text = "\n\n".join(json.dumps(item) for item in own)
    (folder / "mine.jsonl").write_text(text)
    first, second, third = read_items("mine")
    assert first.contexts == ["2 + 2 =", "2 + 2 ="]
    assert (first.right, second.right, third.right) == ("2 + 2 = 4", "three 5", "2 + 2 = 4")
    assert headline("mine") == "bytes"


@pytest.mark.parametrize(
    "change",
    [
        {"gold": None},
        {"gold": 2},
        {"gold": -1},
        {"gold": "0"},
        {"gold": True},
        {"choices": []},
        {"choices": [" 4", ""]},
        {"choices": " 4"},
        {"choices": [" 4"] * 33},
        {"context": ["only one"]},
        {"context": None},
        {"context": "x" * 100_001},
        {"label": 0},
    ],
)
def test_a_wrong_item_is_one_sentence_with_its_line(folder: Path, change: dict[str, Any]) -> None:
    wrong = {key: value for key, value in (RIGHT | change).items() if value is not None}
    (folder / "mine.jsonl").write_text(f"{json.dumps(RIGHT)}\n{json.dumps(wrong)}\n")
    with pytest.raises(UserError, match=r"mine\.jsonl, line 2,") as refused:
        read_items("mine")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\n", b"{", b"[1]\n", b"[" * 10_000])
def test_what_is_no_file_of_items_is_refused(folder: Path, content: bytes) -> None:
    (folder / "mine.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=r"mine\.jsonl"):
        read_items("mine")


@pytest.mark.parametrize(("bound", "value"), [("MOST_ITEMS", 3), ("LARGEST_FILE", 200)])
def test_a_file_is_bounded(
    folder: Path, bound: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mine.jsonl").write_text(f"{json.dumps(RIGHT)}\n" * 4)
    assert len(read_items("mine")) == 4
    monkeypatch.setattr(benchmark_items, bound, value)
    with pytest.raises(UserError, match=f"{value}"):
        read_items("mine")


def test_a_missing_file_names_what_brings_it(folder: Path) -> None:
    with pytest.raises(UserError, match="tokenmill fetch benchmarks:piqa"):
        read_items("piqa")
    with pytest.raises(UserError, match="arc_easy, arc_challenge"):
        read_items("mine")
    (folder / "mine.jsonl.dvc").touch()
    with pytest.raises(UserError, match=r"dvc pull data/benchmarks/mine\.jsonl"):
        read_items("mine")


def test_all_wrong_files_are_refused_before_training(folder: Path) -> None:
    """Unless DVC fetches them."""
    params = validate(AllParams, read_yaml(ROOT / "params.yaml"), Path("params.yaml"))
    chosen = params.benchmarks.model_copy(update={"names": ["mine", "piqa", "tracked"]})
    params = params.model_copy(update={"benchmarks": chosen})
    (folder / "tracked.jsonl.dvc").touch()
    (folder / "mine.jsonl").write_text("{}")
    with pytest.raises(ParamsError, match=r"2 problems:\n.*line 1,.*\n.*fetch benchmarks:piqa"):
        refuse_for_stages(params)
    for name in ("mine", "piqa"):
        (folder / f"{name}.jsonl").write_text(json.dumps(RIGHT))
    refuse_for_stages(params)


@pytest.mark.parametrize("names", [["../x"], ["a/b"], [""], ["A"], ["a.b"], ["a", "a"], "a", [1]])
def test_names_are_names(names: Any) -> None:
    """A name becomes a part of a path."""
    section = read_yaml(ROOT / "params.yaml")["benchmarks"]
    with pytest.raises(ParamsError, match="names"):
        validate(BenchmarksParams, section | {"names": names}, Path("params.yaml"))


def test_each_offered_benchmark_has_a_licence_and_its_source() -> None:
    assert all(one.licence and one.stated for one in OFFERED.values())
    assert [name for name, one in OFFERED.items() if not one.commercial] == ["sciq"]
