from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.data.material import parameters
from tokenmill.data.clean import clean
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats.metrics import CleanReport


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[list[str], CleanReport]]:
    """Clean a file or folder into the folder `out` of the function; give the documents and the
    report."""
    out = tmp_path_factory.mktemp("result") / "clean"

    def clean_it(raw: Path, **changes: Any) -> tuple[list[str], CleanReport]:
        report = clean(
            raw=raw, out=out, params=parameters(**changes), executor=ThreadExecutor(threads=2)
        )
        return pl.read_parquet(out / "*.parquet")["text"].to_list(), report

    clean_it.out = out  # pyright: ignore[reportFunctionMemberAccess]
    return clean_it
