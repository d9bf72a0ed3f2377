from pathlib import Path

import pytest

from tests.runs.project_of_runs import write_run


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A finished run without git."""
    write_run(tmp_path, epochs=3)
    (tmp_path / "dvc.lock").write_text("stages: {}\n")
    return tmp_path
