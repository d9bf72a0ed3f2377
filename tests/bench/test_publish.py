"""The benchmark of the published page runs, and compares logits with PyTorch's."""

import json
from pathlib import Path

from tests.bench.conftest import Bench
from tests.browser import IN_CHROMIUM
from tokenmill.publish.weights import KNOWN

pytestmark = IN_CHROMIUM


def test_the_published_page_is_measured(bench: Bench, tmp_path: Path):
    bench("publish", "--tiny", "--tokens", "6", "--json", tmp_path / "p.json")
    rows = json.loads((tmp_path / "p.json").read_text())
    assert [row["model"] for row in rows] == [f"{name}, tiny" for name in KNOWN]
    for row in rows:
        assert row["logits"] < 0.1
        assert min(row["tokens_per_s"]) > 0
        assert row["megabytes"] < 1
