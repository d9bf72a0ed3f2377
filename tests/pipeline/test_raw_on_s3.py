"""Raw text in S3, shards in a store there, on a Ray cluster: from the raw text to the answers of a
trained model, with the bytes of a run on this machine."""

from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.pipeline.project import Project

pytest.importorskip("dvc_s3", reason="pip install dvc-s3")

pytestmark = pytest.mark.slow


def test_a_run_from_raw_text_in_s3(
    project: Project, finished_template: Path, bucket: str, cluster: Any
) -> None:
    local = Project(finished_template)
    fs = fsspec.filesystem("s3")
    raw = f"{bucket}/chats"
    for file in (local.root / "data/raw/sample").iterdir():
        fs.put_file(str(file), f"{raw}/{file.name}")
    project.set(
        data__raw=raw,
        runtime__data_engine="ray",
        runtime__ray_address=cluster.address,
        runtime__store=f"{bucket}/shards",
    )
    project.repro("evaluate")
    assert not (project.root / "data/raw/sample").exists()
    assert (project.root / "data/clean/store.json").exists()
    for path in ("data/tokens", "models/gpt", "metrics/eval.json", "reports/evaluation.json"):
        assert project.digest(path) == local.digest(path), path
    assert "Running stage" not in project.repro("evaluate")

    fs.pipe(f"{raw}/more.txt", b"One more text, of which nothing was known before.\n")
    said = project.repro("clean")
    assert "Running stage 'clean'" in said
