"""The modules that a program imports, directly or through other modules of the project, and the
layers they form."""

import ast
import functools
import graphlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tokenmill"
PACKAGES = {"tokenmill": SOURCE, "stages": ROOT / "stages"}

CANNOT_CHANGE_A_RESULT = {
    "display",
    "progress",
    "costs",
    "hardware",
    "schema",
    "stage",
    "process",
    "executors",
    "inputs",
    "byte_code",
    "temporary",
    "wait_policy",
}
"""These draw, count, configure, refuse, or choose where work runs and copies lie. DVC need not run
a stage again when they change."""

PAGES = "reports"
"""What is in `words` changes a result through a page only; elsewhere it is printed or raised."""

LAYERS = (
    ("core", "temporary"),
    ("formats",),
    ("words", "languages", "normalize", "executors", "byte_code"),
    ("process", "wait_policy"),
    ("costs", "git", "hardware"),
    ("stage", "inputs", "dvc_lock"),
    ("display",),
    ("progress",),
    ("sample", "data", "tokens", "model"),
    ("training", "evaluation"),
    ("finetuning",),
    ("schema", "reports"),
    ("runs", "planning"),
    ("doctor", "publish"),
    ("demo",),
    ("cli",),
    ("__main__",),
)
"""From the lowest up: a folder imports from lower layers and from itself."""


@functools.cache
def stage_closure(stage: str) -> frozenset[Path]:
    """The files that can change what a stage writes: those that its script imports, directly or
    not, and itself."""
    todo = [ROOT / "stages" / f"{stage}.py"]
    found = set[Path]()
    while todo:
        path = todo.pop()
        if path in found or place(path) in CANNOT_CHANGE_A_RESULT:
            continue
        found.add(path)
        says = place(path) not in ("words", PAGES)
        todo += [file for file in imports(path) if not (says and place(file) == "words")]
        if path == SOURCE / "model" / "gpt.py":
            todo += architectures()
    return frozenset(found)


def stage_dependencies(stage: str) -> list[str]:
    """The code that a stage names in dvc.yaml: a folder of which it uses every module, or else the
    modules that it uses, and its script."""
    used = {path for path in stage_closure(stage) if path.name != "__init__.py"}
    named = set[str]()
    for path in used:
        folder = path.parent
        whole = folder not in (SOURCE, ROOT / "stages") and set(modules(folder)) <= used
        named.add((folder if whole else path).relative_to(ROOT).as_posix())
        if (folder / "templates").is_dir() and not whole:
            named.add((folder / "templates").relative_to(ROOT).as_posix())
    return sorted(named)


def architectures() -> list[Path]:
    """The modules that `model/gpt.py` imports by the name of an architecture."""
    return [path for path in modules(SOURCE / "model") if "\nMODEL = " in path.read_text("utf-8")]


def modules(folder: Path = SOURCE) -> list[Path]:
    """The modules below a folder; `__init__.py` holds only a docstring and is none."""
    return sorted(path for path in folder.rglob("*.py") if path.name != "__init__.py")


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
