"""The shape of the code, measured: `python -m tests.structure` prints the figures."""

import ast
import contextlib
import functools
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from ruamel.yaml import YAML
from torch import Tensor

from tests.imports import ROOT, SOURCE, circle, upward_imports

MAX_FUNCTION_LINES = 50
MAX_NAME = 60
QUESTION = "What is the capital of France?"


def modules() -> list[Path]:
    """The modules of the library; `__init__.py` holds only a docstring and is not counted."""
    return sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")


def largest_folder() -> tuple[str, int]:
    """The folder of the library with the most modules, and their number."""
    folders = Counter(path.parent.relative_to(SOURCE).as_posix() for path in modules())
    return folders.most_common(1)[0]


class Function(NamedTuple):
    """A function of the project."""

    path: Path
    line: int
    name: str
    length: int
    """Lines without those of the docstring."""


@functools.cache
def functions() -> list[Function]:
    """Those of the library, stages, tests and benchmarks."""
    return [
        Function(path.relative_to(ROOT), node.lineno, node.name, _length(node))
        for folder in ("src", "stages", "tests", "bench")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    without = 0 if ast.get_docstring(node) is None else _lines(node.body[0])
    return _lines(node) - without


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


def long_functions() -> list[str]:
    """Functions over MAX_FUNCTION_LINES, and their length."""
    return [
        f"{each.path}:{each.line} {each.name} ({each.length})"
        for each in functions()
        if each.length > MAX_FUNCTION_LINES
    ]


def long_test_names() -> list[str]:
    """Tests whose name has more than MAX_NAME characters."""
    return [
        f"{each.path} {each.name} ({len(each.name)})"
        for each in functions()
        if each.path.parts[0] == "tests"
        and each.path.name.startswith("test_")
        and each.name.startswith("test_")
        and len(each.name) > MAX_NAME
    ]


def training_step_modules() -> list[str]:
    """The modules that Python loads for one training step, itself included."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, tokenmill.training.step; print(*sys.modules)"],
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    files = {
        path.relative_to(SOURCE.parent).with_suffix("").as_posix().replace("/", "."): path
        for path in modules()
    }
    return _names({files[name] for name in loaded.stdout.split() if name in files})


def step_walk() -> list[str]:
    """The functions through which the stage `train` comes to the update of a step, with their
    lines."""
    code = "from tests import structure; print(json.dumps(structure.calls_of_a_step()))"
    said = subprocess.run(
        [sys.executable, "-c", f"import json; {code}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(said.stdout.splitlines()[-1])


def calls_of_a_step() -> list[str]:
    """Train a tiny model as the stage does; the calls under way when the optimizer updates it."""
    from stages import train  # noqa: PLC0415 (seconds of PyTorch)
    from tests.training.tiny import write_tokens  # noqa: PLC0415
    from tokenmill.training.optimizer import Optimizer  # noqa: PLC0415

    step = Optimizer.step
    found: list[str] = []

    def look(self: Optimizer, loss: Tensor) -> Tensor:
        if not found:
            found.extend(_project_calls(sys._getframe(1)))
        return step(self, loss)

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("params.yaml").write_text(_tiny_params(), encoding="utf-8")
        Path("data").mkdir()
        write_tokens(Path("data/tokens"), sequences=8)
        Optimizer.step = look  # type: ignore[method-assign]
        train.main()
    return found


def _project_calls(frame: FrameType | None) -> list[str]:
    calls: list[str] = []
    while frame:
        code = frame.f_code
        path = Path(code.co_filename)
        if path.is_relative_to(SOURCE) or path.is_relative_to(ROOT / "stages"):
            lines = len(inspect.getsourcelines(code)[0])
            calls.append(f"{path.relative_to(ROOT)} {code.co_qualname} ({lines})")
        frame = frame.f_back
    return calls[::-1]


def _tiny_params() -> str:
    params = json.loads(json.dumps(YAML(typ="safe").load(ROOT / "params.yaml")))
    params["model"] |= {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 8}
    params["train"] |= {"epochs": 1, "batch_size": 4}
    params["runtime"] |= {"device": "cpu"}
    return json.dumps(params)


def answer_modules() -> list[str]:
    """The modules whose functions run while a model is found, loaded and answers one question,
    streamed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _save_model(folder)
        return _passed(lambda: _answer(folder))


def figures() -> Iterator[tuple[str, int, list[str]]]:
    """What is measured: what it counts, the number, and names of what was counted."""
    folder, files = largest_folder()
    yield "modules in the largest folder", files, [folder]
    for name, found in (
        (f"functions over {MAX_FUNCTION_LINES} lines", long_functions()),
        (f"names of tests over {MAX_NAME} characters", long_test_names()),
        ("imports that point upwards", upward_imports()),
        ("modules in an import circle", circle()),
        ("functions from the stage `train` to the update of a step", step_walk()),
        ("modules imported for one training step", training_step_modules()),
        ("modules that find, load and answer pass", answer_modules()),
    ):
        yield name, len(found), found


def _names(paths: set[Path]) -> list[str]:
    return sorted(
        path.relative_to(SOURCE).as_posix() for path in paths if path.name != "__init__.py"
    )


def _passed(work: Callable[[], object]) -> list[str]:
    """The modules whose functions run during `work`; what runs while a module is imported does not
    count."""
    found = set[Path]()

    def profile(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if (
            event == "call"
            and path not in found
            and path.is_relative_to(SOURCE)
            and not _is_importing(frame)
        ):
            found.add(path)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return _names(found)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a frame runs on behalf of a module's body."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and Path(code.co_filename).is_relative_to(SOURCE):
            return True
        frame = frame.f_back
    return False


def _answer(folder: Path) -> None:
    from tokenmill.evaluation.sampling import Sampling  # noqa: PLC0415 (seconds, with the others)
    from tokenmill.runs.find import find_model  # noqa: PLC0415
    from tokenmill.runs.writer import Writer  # noqa: PLC0415

    writer = Writer.load(find_model(Path(), model=folder), device="cpu")
    "".join(writer.stream(QUESTION, Sampling(max_new_tokens=8), chat=True))


def _save_model(folder: Path) -> None:
    """A small model with fresh weights and its tokenizer."""
    from tests.evaluation.trained import make_tokenizer_file  # noqa: PLC0415 (seconds of PyTorch)
    from tests.model.small import small_config  # noqa: PLC0415
    from tokenmill.formats.tokenizer import read_tokenizer  # noqa: PLC0415
    from tokenmill.model.gpt import build  # noqa: PLC0415
    from tokenmill.model.huggingface import save_weights  # noqa: PLC0415

    vocab_size = read_tokenizer(make_tokenizer_file(folder, "bpe")).vocab_size
    config = small_config("modern", context_length=64, vocab_size=vocab_size)
    save_weights(build(config, seed=0), folder)


if __name__ == "__main__":
    for title, number, counted in figures():
        print(f"{title:<45}  {number:>4}")
        if counted:
            print(f"    {', '.join(counted)}")
