"""A stage's dependencies in dvc.yaml are the folders from which it imports; and imports point
down."""

import ast
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.imports import (
    CANNOT_CHANGE_A_RESULT,
    ROOT,
    SOURCE,
    circle,
    place,
    stage_closure,
    upward_imports,
)

PIPELINE = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
PIPELINE = {
    name: stage.get("do", stage) for name, stage in PIPELINE.items()
}  # `do`: of a stage that a list turns on

RECORDED = {
    "data/tokens": {"data/tokenizer"},
    "models/gpt": {"data/tokens", "data/packed", "data/tokenizer"},
    "reports/data.html": {"metrics/data.json", "metrics/tokenizer.json", "metrics/tokens.json"},
}
"""Artefacts, and those whose hashes or content are in them: the tokenizer's, the fingerprint of the
run, metrics."""


@pytest.mark.parametrize("stage", sorted(set(PIPELINE) - {"check", "report"}))
def test_stage_depends_on_the_folders_it_imports(stage: str) -> None:
    listed = {dep for dep in PIPELINE[stage]["deps"] if dep.startswith(("src/", "stages/"))}
    folders = {place(path) for path in stage_closure(stage)} - {"stages", "__init__"}
    assert listed == {f"src/tokenmill/{name}" for name in folders} | {f"stages/{stage}.py"}


def test_report_depends_on_the_whole_library() -> None:
    """It reads what every stage writes, and takes seconds."""
    assert {"src/tokenmill", "stages/report.py"} < set(PIPELINE["report"]["deps"])


def test_check_depends_on_no_code() -> None:
    """Its output is always the same, and every stage checks params.yaml again."""
    assert not [dep for dep in PIPELINE["check"]["deps"] if dep.startswith(("src/", "stages/"))]


@pytest.mark.parametrize("stage", PIPELINE)
def test_a_dependency_s_path_is_no_parameter(stage: str) -> None:
    named = set(PIPELINE[stage].get("params", []))
    assert not named & {dep.removeprefix("${").removesuffix("}") for dep in PIPELINE[stage]["deps"]}


@pytest.mark.parametrize("stage", PIPELINE)
def test_what_another_dependency_records_is_not_named(stage: str) -> None:
    """A stage that names a folder names nothing whose hash is in it."""
    named = set(PIPELINE[stage]["deps"])
    assert not any(name in named and named & recorded for name, recorded in RECORDED.items())


@pytest.mark.parametrize("stage", PIPELINE)
def test_no_stage_depends_on_runtime(stage: str) -> None:
    assert "runtime" not in PIPELINE[stage].get("params", [])


def test_dependencies_hold_no_leftovers() -> None:
    ignored = (ROOT / ".dvcignore").read_text().split()
    assert "__pycache__/" in ignored, "byte code would change a folder's hash"


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("__init__.py")), ids=lambda path: path.parent.name
)
def test_packages_do_nothing_when_imported(path: Path) -> None:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    assert all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body)


@pytest.mark.parametrize(
    "stage", ["sample", "clean", "tokenizer", "tokenize", "unpack", "data_report"]
)
def test_data_stages_need_no_torch(stage: str) -> None:
    """Cleaning and tokenizing run on a laptop without the libraries of training."""
    assert not {place(path) for path in stage_closure(stage)} & {"model", "training"}


def test_imports_point_down() -> None:
    assert not upward_imports()


def test_modules_import_in_no_circle() -> None:
    assert not circle()


def test_what_cannot_change_a_result_exists() -> None:
    assert {place(path) for path in SOURCE.rglob("*.py")} >= CANNOT_CHANGE_A_RESULT
