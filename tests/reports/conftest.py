"""The stage's inputs and a browser, made once."""

from pathlib import Path

import pytest

from tests.browser import browser  # noqa: F401 (a fixture)
from tests.reports.data_material import prepare


@pytest.fixture(scope="session", params=["bpe", "char"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("data_report") / request.param, type_=request.param)
