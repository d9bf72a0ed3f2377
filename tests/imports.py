"""The modules that a program imports, directly or through other modules of the project, and the
layers they form."""

import ast
import functools
import graphlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tokenmill"
PACKAGES = {"tokenmill": SOURCE, "stages": ROOT / "stages"}

CANNOT_CHANGE_A_RESULT = {"display", "planning", "costs", "schema", "stage"}
"""These draw, count, configure or refuse. DVC need not run a stage again when they change."""

LAYERS = (
    ("core",),
    ("costs", "git", "stage"),
    ("display",),
    ("sample", "data", "tokens", "model"),
    ("training", "evaluation"),
    ("finetuning",),
    ("schema", "reports"),
    ("runs", "planning"),
    ("demo", "doctor"),
    ("cli",),
    ("__main__",),
)
"""From the lowest up: a folder imports from lower layers and from itself."""


def stage_closure(stage: str) -> set[Path]:
    """The files that can change what a stage writes: those that its script imports, directly or
    not, and itself."""
    todo = [ROOT / "stages" / f"{stage}.py"]
    found = set[Path]()
    while todo:
        path = todo.pop()
        if path not in found and place(path) not in CANNOT_CHANGE_A_RESULT:
            found.add(path)
            todo += imports(path)
    return found


@functools.cache
def imports(path: Path) -> tuple[Path, ...]:
    """The project's files that one file imports, in functions too, with the packages above them."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide what a stage depends on"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(
        file for name in names if name.split(".")[0] in PACKAGES for file in _files(name.split("."))
    )


def upward_imports() -> list[str]:
    """Imports from a higher layer, or from another folder of the same layer."""
    level = {name: number for number, names in enumerate(LAYERS) for name in names} | {
        "__init__": -1
    }
    return [
        f"{path.relative_to(SOURCE)} imports {imported.relative_to(SOURCE)}"
        for path in sorted(SOURCE.rglob("*.py"))
        for imported in imports(path)
        if level[place(imported)] >= level[place(path)] and place(imported) != place(path)
    ]


def circle() -> list[str]:
    """Modules each of which imports the next one, and the last one the first; empty if there is no
    circle."""
    graph = {path: set(imports(path)) - {path} for path in SOURCE.rglob("*.py")}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [path.relative_to(SOURCE).as_posix() for path in error.args[1]]
    return []


def place(path: Path) -> str:
    """The folder of src/tokenmill in which a module lies, or the module's own name where it lies in
    none."""
    if not path.is_relative_to(SOURCE):
        return "stages"
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def _files(parts: list[str]) -> list[Path]:
    """The modules that importing a dotted name executes; its last part may be a name inside a
    module."""
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
