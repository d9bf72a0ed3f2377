"""What stages report is read back whole or refused."""

import json
from pathlib import Path

import pytest

from tests.reports.data_material import REPORT
from tokenmill.core.errors import UserError
from tokenmill.formats.metrics import CleanReport
from tokenmill.formats.records import read_record


def test_clean_report_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "clean_report.json"
    path.write_text(json.dumps(REPORT))
    assert read_record(path, CleanReport).model_dump(by_alias=True) == REPORT


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "clean_report.json"),
        (REPORT | {"lengths": {"edges": [1, 2], "read": [1], "kept": [1, 1]}}, "lengths"),
        (REPORT | {"documents": {"read": "many", "kept": 1}}, "documents.read"),
        (REPORT | {"params": {}}, "data.raw"),
        (REPORT | {"params": {"data": {"raw": "data/raw"}, "clean": {"mode": 3}}}, "clean.mode"),
    ],
)
def test_damaged_clean_report_names_the_field(
    tmp_path: Path, content: dict[str, object] | None, named: str
) -> None:
    path = tmp_path / "clean_report.json"
    if content is not None:
        path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=named) as error:
        read_record(path, CleanReport)
    assert str(path) in str(error.value)
