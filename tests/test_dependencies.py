"""The import graph is the invalidation graph: dvc.yaml's dependencies are exactly what each stage imports."""

import pytest
from ruamel.yaml import YAML

from tests.imports import PACKAGES, ROOT, closure, imports, is_only_a_docstring

PIPELINE = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]


@pytest.mark.parametrize("stage", PIPELINE)
def test_dependencies_are_the_import_closure(stage: str) -> None:
    listed = [dep for dep in PIPELINE[stage]["deps"] if dep.startswith(("src/", "stages/"))]
    assert listed == closure(stage), "`make format` writes the list"


@pytest.mark.parametrize("stage", PIPELINE)
def test_no_stage_depends_on_runtime(stage: str) -> None:
    assert "runtime" not in PIPELINE[stage].get("params", [])


def test_packages_do_nothing_when_imported() -> None:
    for path in PACKAGES["tokenmill"].rglob("__init__.py"):
        assert is_only_a_docstring(path), path


def test_data_work_needs_no_torch() -> None:
    """Cleaning and tokenizing run on a laptop without the training's libraries."""
    for stage in ("sample", "clean", "tokenizer", "tokenize", "unpack", "describe"):
        assert not [name for name in closure(stage) if "/model/" in name or "/training/" in name]


def test_templates_are_dependencies_as_modules_are() -> None:
    templates = [name for name in closure("describe") if not name.endswith(".py")]
    shared = ["src/tokenmill/page/page.css", "src/tokenmill/page/page.html", "src/tokenmill/page/parts.html"]
    assert templates == ["src/tokenmill/describe/report.html", *shared]
    files = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGES["tokenmill"].rglob("*")
        if path.suffix in (".html", ".css") and path.parent.name != "demo"
    }
    used = {name for stage in PIPELINE for name in closure(stage)}
    by_commands = {"src/tokenmill/comparison/compare.html"}
    assert files - used == by_commands, "a template that nobody fills in"


def test_layers_point_down() -> None:
    order = ["", "presets", "engine", "page", "sample", "documents", "tokenization", "describe", "model", "training"]
    order += ["evaluation", "checkpoints", "comparison", "demo", "doctor"]
    for path in PACKAGES["tokenmill"].rglob("*.py"):
        name = path.relative_to(PACKAGES["tokenmill"])
        folder = name.parts[0] if len(name.parts) > 1 else ""
        if folder in ("display", "cli", "commands") or name.name in ("__main__.py", "schema.py", "stage.py"):
            continue
        for imported in imports(path):
            other = imported.relative_to(PACKAGES["tokenmill"])
            target = other.parts[0] if len(other.parts) > 1 else ""
            if target != "display":
                assert order.index(target) <= order.index(folder), f"{name} imports {other}"
