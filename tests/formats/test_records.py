"""What a stage wrote is read in one way: the right form comes back, and everything else is one
sentence."""

import ast
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.imports import SOURCE
from tokenmill.core.errors import UserError
from tokenmill.formats import records
from tokenmill.formats.records import parse_record, parse_rows, read_record, read_rows, rounded

ANEW = "`dvc repro -f train` makes it"


class Shape(BaseModel):
    epochs: int
    name: str


@dataclass
class Row:
    step: int
    loss: float
    money: float | None = None


def test_a_record_comes_back_in_its_form(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"epochs": 2, "name": "é"}', encoding="utf-8")
    assert read_record(tmp_path / "a.json", Shape, way_out=ANEW) == Shape(epochs=2, name="é")


class Strict(Shape, extra="forbid"):
    pass


@pytest.mark.parametrize(
    ("content", "field"), [(b'{"epochs": 1}', "name"), (b'{"epochs": 1, "name": "", "b": 2}', "b")]
)
def test_a_field_too_few_or_many_may_be_of_another_version(content: bytes, field: str):
    """Only what has every field, and another value in one, is surely damaged."""
    with pytest.raises(UserError, match=rf"{field}: another version") as refused:
        parse_record(content, Strict, source="a.json", way_out=ANEW)
    assert str(refused.value).endswith(f"; {ANEW}.")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"epochs": "x", "name": ""}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"epochs": 1e999, "name": ""}',
    ],
)
def test_a_record_of_another_form_is_one_sentence(tmp_path: Path, content: bytes):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as refused:
        read_record(path, Shape, way_out=ANEW)
    assert str(path) in str(refused.value)
    assert ANEW in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_or_huge_file_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match=r"missing.*makes it"):
        read_record(tmp_path / "a.json", Shape, way_out=ANEW)
    monkeypatch.setattr(records, "LARGEST_FILE", 9)
    (tmp_path / "a.json").write_bytes(b" " * 10)
    with pytest.raises(UserError, match="bytes"):
        read_record(tmp_path / "a.json", Shape, way_out=ANEW)


def test_metrics_have_six_significant_digits():
    assert [rounded(value) for value in (1.23456789, 1234567.0, 1e-9 / 3)] == [
        1.23457,
        1234570.0,
        3.33333e-10,
    ]


def test_rows_come_back_in_their_form(tmp_path: Path):
    (tmp_path / "a.csv").write_text("step,loss,more,money\n1,0.5,x,\n2,nan,y,3\n")
    first, second = read_rows(tmp_path / "a.csv", Row)
    assert first == Row(1, 0.5)
    assert (second.step, second.money) == (2, 3.0)


@pytest.mark.parametrize(
    "content",
    [
        "step\n1\n",
        "step,loss\n1\n",
        "step,loss\n1,2,3\n",
        "step,loss\nx,2\n",
        'step,loss\n"1,2\n',
        "1,2\n3,4\n",
    ],
)
def test_rows_of_another_form_are_one_sentence(content: str):
    with pytest.raises(UserError, match=r"a\.csv.*makes it"):
        parse_rows(content.encode(), Row, source="a.csv", way_out=ANEW)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_is_a_record_or_a_sentence(value: object):
    content = json.dumps(value).encode()
    try:
        parse_record(content, Shape, source="a", way_out=ANEW)
    except UserError:
        return
    assert set(json.loads(content)) >= {"epochs", "name"}


DOORS = {
    "formats/records.py": "JSON and tables",
    "formats/tokenizer.py": "tokenizer.json",
    "formats/shards.py": "parquet",
    "formats/token_row.py": "tokens, and the index of them",
    "runs/export.py": "what a tokenizer that was read says of itself",
    "publish/parts.py": "what a tokenizer that was read says of itself",
    "model/huggingface.py": "weights",
    "tokens/encoder.py": "what a tokenizer that was read says of itself",
}
"""The modules that parse what the pipeline wrote, and what."""

PARSERS = {
    "json.load",
    "json.loads",
    "orjson.loads",
    "pd.read_csv",
    "pd.read_json",
    "pl.read_parquet",
    "pl.scan_parquet",
    "pl.read_parquet_metadata",
    "pl.read_csv",
    "pickle.load",
    "torch.load",
    "np.load",
    "np.memmap",
    "np.fromfile",
    "safe_open",
    "safetensors.torch.load_file",
}


def parsed() -> set[tuple[str, str]]:
    """The calls of parsers in the library, without the readers of raw text in `data`."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        text = path.read_text(encoding="utf-8")
        if name.startswith("data/") or not any(parser in text for parser in PARSERS):
            continue
        calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        found |= {(name, call) for node in calls if (call := ast.unparse(node.func)) in PARSERS}
    return found


def test_nobody_parses_an_artefact_by_another_way():
    found = parsed()
    assert {name for name, _ in found} == set(DOORS)
    assert not {call for _, call in found} & {"pickle.load", "torch.load", "np.load"}
