"""A stage's dependencies in dvc.yaml are the folders from which it imports; and imports point
down."""

import ast
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.imports import (
    CANNOT_CHANGE_A_RESULT,
    ROOT,
    SOURCE,
    circle,
    modules,
    place,
    stage_closure,
    stage_dependencies,
    upward_imports,
)

PIPELINE = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
# `do`: of a stage that a list turns on
PIPELINE = {name: stage.get("do", stage) for name, stage in PIPELINE.items()}

RECORDED = {
    "data/tokens": {"data/tokenizer"},
    "models/gpt": {"data/tokens", "data/packed", "data/tokenizer"},
    "reports/data.html": {"metrics/data.json", "metrics/tokenizer.json", "metrics/tokens.json"},
}
"""Artefacts, and those whose hashes or content are in them: the tokenizer's, the fingerprint of the
run, metrics."""


@pytest.mark.parametrize("stage", PIPELINE)
def test_no_value_is_in_a_command_or_an_output(stage: str) -> None:
    """A shell reads commands, and DVC removes outputs."""
    kinds = ("cmd", "wdir", "outs", "metrics", "plots")
    assert "${" not in str([PIPELINE[stage].get(kind) for kind in kinds])


@pytest.mark.parametrize("stage", sorted(set(PIPELINE) - {"check", "report"}))
def test_stage_depends_on_the_code_it_uses(stage: str) -> None:
    listed = [dep for dep in PIPELINE[stage]["deps"] if dep.startswith(("src/", "stages/"))]
    expected = stage_dependencies(stage)
    lines = "\n".join(f"      - {path}" for path in expected)
    assert sorted(listed) == expected, f"dvc.yaml names as the code of `{stage}`:\n{lines}"


@pytest.mark.parametrize(
    "path", modules(), ids=lambda path: path.relative_to(SOURCE).with_suffix("").as_posix()
)
def test_a_module_reruns_only_stages_that_use_it(path: Path) -> None:
    """`report` alone depends on the whole library."""
    assert stages_run_by(path) - {"report"} == {
        stage
        for stage in PIPELINE
        if stage not in ("check", "report") and path in stage_closure(stage)
    }


def test_architecture_says_what_a_change_reruns() -> None:
    """The table of docs/architecture.md, row by row."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"^\| `(\S+)` \| ((?:`\w+`(?:, )?|nothing)+) \|$", page, re.MULTILINE))
    table = rerun_table()
    rows = [f"| `{name}` | {table[name]} |" for name in table if found.get(name) != table[name]]
    gone = ", ".join(found.keys() - table.keys())
    lines = "\n".join(rows)
    assert found == table, f"the table lacks these rows, and has too many ({gone}):\n{lines}"


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


def stages_run_by(path: Path) -> set[str]:
    """The stages that name a module, or a folder above it, in dvc.yaml."""
    name = path.relative_to(ROOT).as_posix()
    return {
        stage
        for stage, entry in PIPELINE.items()
        if any(name == dep or name.startswith(f"{dep}/") for dep in entry["deps"])
    }


def rerun_table() -> dict[str, str]:
    """The stages that a change reruns besides `report`, in the order of dvc.yaml.

    A folder has one row if they are the same for all of its modules; else each module has one.
    """
    table = dict[str, str]()
    for folder in sorted({path.parent for path in modules()} - {SOURCE}):
        name = folder.relative_to(SOURCE).as_posix()
        reruns = {path: _named(stages_run_by(path)) for path in modules(folder)}
        if len(set(reruns.values())) == 1:
            table[f"{name}/"] = reruns.popitem()[1]
        else:
            table |= {f"{name}/{path.name}": named for path, named in reruns.items()}
    return table | {
        path.name: _named(stages_run_by(path))
        for path in modules()
        if path.parent == SOURCE and path.name != "__main__.py"
    }


def _named(stages: set[str]) -> str:
    return (
        ", ".join(f"`{stage}`" for stage in PIPELINE if stage in stages - {"report"}) or "nothing"
    )
