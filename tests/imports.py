"""Which modules a program imports, directly or through other modules of the project."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tokenmill"
PACKAGES = {"tokenmill": SOURCE, "stages": ROOT / "stages"}

CANNOT_CHANGE_A_RESULT = {"display", "planning", "costs", "openmp", "schema", "stage"}
"""These draw, count, configure or refuse. DVC need not run a stage again when they change."""


def closure(*files: Path) -> set[Path]:
    """The files themselves and every file of the project that importing them executes."""
    todo, found = list(files), set[Path]()
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += imports(path)
    return found


def stage_closure(stage: str) -> set[Path]:
    """The files that can change what a stage writes."""
    todo, found = [ROOT / "stages" / f"{stage}.py"], set[Path]()
    while todo:
        path = todo.pop()
        if path not in found and place(path) not in CANNOT_CHANGE_A_RESULT:
            found.add(path)
            todo += imports(path)
    return found


def imports(path: Path) -> list[Path]:
    """The project's files that one file imports, in functions too, with the packages above them."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide what a stage depends on"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [file for name in names if name.split(".")[0] in PACKAGES for file in _files(name.split("."))]


def place(path: Path) -> str:
    """The folder of src/tokenmill in which a module lies, or the module's own name where it lies in none."""
    if not path.is_relative_to(SOURCE):
        return "stages"
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def _files(parts: list[str]) -> list[Path]:
    """The modules that importing a dotted name executes; its last part may be a name inside a module."""
    folder = PACKAGES[parts[0]]
    files = [folder / "__init__.py"]
    for part in parts[1:]:
        if (folder / f"{part}.py").exists():
            return [*files, folder / f"{part}.py"]
        if not (folder / part).is_dir():
            return files
        folder /= part
        files.append(folder / "__init__.py")
    return files
