"""Which modules a stage imports, and which templates and tables these read: what dvc.yaml must list, and no more."""

import ast
import re
from pathlib import Path

from jinja2 import Environment, meta

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"tokenmill": ROOT / "src" / "tokenmill", "stages": ROOT / "stages"}

CANNOT_CHANGE_A_RESULT = ("src/tokenmill/display/", "src/tokenmill/openmp.py", "src/tokenmill/schema.py")
"""These draw, wait, or refuse; DVC need not run a stage again when they change."""

CODE = ("      - src/", "      - stages/")
"""How a dependency on code begins in dvc.yaml."""


def closure(stage: str) -> list[str]:
    """Files under the root that running `python -m stages.STAGE` executes and that can change what comes out."""
    todo, found = [ROOT / "stages" / "__init__.py", ROOT / "stages" / f"{stage}.py"], set()
    while todo:
        path = todo.pop()
        name = path.relative_to(ROOT).as_posix()
        if name in found or name.startswith(CANNOT_CHANGE_A_RESULT):
            continue
        found.add(name)
        todo += imports(path) + templates(path) if path.suffix == ".py" else includes(path)
    return sorted(name for name in found if not is_only_a_docstring(ROOT / name))


def imports(path: Path) -> list[Path]:
    """The project's files that one file imports, with the packages above them."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide what a stage depends on"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [file for name in names if name.split(".")[0] in PACKAGES for file in _files(name.split("."))]


def templates(path: Path) -> list[Path]:
    """The templates beside a module that it names in a string, and the tables in a folder `tables` that it names."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    names = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    tables = [table for name in names if name == "tables" for table in path.with_name(name).glob("*.yaml")]
    return tables + [path.parent / name for name in names if name.endswith(".html") and (path.parent / name).is_file()]


def includes(path: Path) -> list[Path]:
    """What a template extends, includes or imports: beside it, or among the shared ones, as `page.render` looks."""
    named = meta.find_referenced_templates(Environment(autoescape=True).parse(path.read_text(encoding="utf-8")))
    shared = PACKAGES["tokenmill"] / "page"
    return [next(file for file in (path.with_name(name), shared / name) if file.is_file()) for name in named if name]


def _files(parts: list[str]) -> list[Path]:
    """The modules that importing a dotted name executes; its last part may be a thing inside a module."""
    files, folder = [], PACKAGES[parts[0]]
    files.append(folder / "__init__.py")
    for part in parts[1:]:
        if (folder / f"{part}.py").exists():
            return [*files, folder / f"{part}.py"]
        if not (folder / part).is_dir():
            return files
        folder /= part
        files.append(folder / "__init__.py")
    return files


def is_only_a_docstring(path: Path) -> bool:
    """Whether a file does nothing when it is imported."""
    if path.suffix != ".py":
        return False
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body)


def rewrite(pipeline: str) -> str:
    """dvc.yaml with every stage's list of code brought up to date, and nothing else touched."""
    lines, stage = [], ""
    for line in pipeline.splitlines():
        if heading := re.fullmatch(r"  (\w+):", line):
            stage = heading[1]
        if line.startswith(CODE):
            continue
        if lines and not line.startswith("      - ") and _last_key(lines) == "    deps:":
            lines += [f"      - {name}" for name in closure(stage)]
        lines.append(line)
    return "\n".join(lines) + "\n"


def _last_key(lines: list[str]) -> str:
    return next(line for line in reversed(lines) if not line.startswith("      - "))


if __name__ == "__main__":
    file = ROOT / "dvc.yaml"
    file.write_text(rewrite(file.read_text(encoding="utf-8")), encoding="utf-8")
