"""Foreign text is printed through one door and shown in pages through another: no call goes round
`tokenmill.display`, and only a template makes HTML of a value."""

import ast
from collections.abc import Iterator

import pytest

from tests.imports import ROOT, SOURCE

DOOR = SOURCE / "display.py"

AROUND = {
    ("stages/__init__.py", ""): "before the library can be imported",
    ("stages/__main__.py", "main"): "before the library can be imported",
    ("src/tokenmill/cli/completion.py", "run"): "a script for the shell, of this program's words",
    ("src/tokenmill/cli/try.py", "passed_through"): "`dvc repro`, whose bar needs the terminal",
    ("src/tokenmill/progress.py", "__init__"): "what it prints there goes through the door",
    ("src/tokenmill/stage.py", "_replace_unknown_characters"): "prints nothing",
    ("src/tokenmill/reports/page.py", "environment"): "the door of pages",
    ("src/tokenmill/reports/page.py", "markdown"): "escapes its text by hand",
}
"""Functions that do by themselves what a door does, or need none, and why."""

ASKED = frozenset({"isatty", "fileno", "flush"})
"""What a stream may be asked anywhere."""

LOGGING = frozenset({"debug", "info", "warning", "exception", "critical"})


def around_the_doors(code: str) -> Iterator[tuple[int, str]]:
    """The line and the name of each call that prints or makes HTML of what did not pass a door."""
    for node, parent in _with_parents(ast.parse(code)):
        if isinstance(node, ast.Call) and _is_around(node):
            yield node.lineno, ast.unparse(node.func)
        if isinstance(node, ast.Attribute) and not _is_harmless(parent):
            name = ast.unparse(node)
            if name in ("sys.stdout", "sys.stderr", "sys.__stdout__"):
                yield node.lineno, name


def _with_parents(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            yield node, parent


def _is_around(call: ast.Call) -> bool:
    name = _name(call)
    given = {keyword.arg for keyword in call.keywords}
    if ast.unparse(call.func) in ("print", "input"):
        return not all(map(_is_safe, call.args))
    if name == "exit":  # a number is no text
        return not all(_is_safe(text) or isinstance(text, ast.Call) for text in call.args)
    if name == "Markup":
        return not all(isinstance(argument, ast.Constant) for argument in call.args)
    if ast.unparse(call.func) in ("subprocess.run", "subprocess.Popen"):
        return not ("capture_output" in given or {"stdout", "stderr"} <= given)
    if name in LOGGING:
        return "log" in ast.unparse(call.func)
    return name in {"Console", "warn", "system", "Environment"}


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _is_safe(text: ast.expr) -> bool:
    """Whether a text is this program's own, but for what went through `message`."""
    if isinstance(text, ast.JoinedStr):
        return all(map(_is_safe, text.values))
    if isinstance(text, ast.FormattedValue):
        return _is_safe(text.value)
    return isinstance(text, ast.Constant) or (
        isinstance(text, ast.Call) and _name(text) == "message"
    )


def _is_harmless(parent: ast.AST) -> bool:
    """Whether a stream that stands below `parent` is asked something, or given to a door."""
    if isinstance(parent, ast.Attribute):
        return parent.attr in ASKED
    if isinstance(parent, ast.Call):
        return _name(parent) == "console"
    return isinstance(parent, ast.keyword) and parent.arg in ("out", "file")


def _functions(tree: ast.AST, line: int) -> set[str]:
    """The names of the functions in which a line stands; the empty one is the module's."""
    return {""} | {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    }


def test_no_call_goes_round_the_doors():
    found = set[tuple[str, int, str]]()
    used = set[tuple[str, str]]()
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "stages").glob("*.py")]:
        name, code = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        for line, call in around_the_doors(code) if path != DOOR else ():
            exempt = {(name, each) for each in _functions(ast.parse(code), line)} & AROUND.keys()
            used |= exempt
            found |= set() if exempt else {(name, line, call)}
    assert not found
    assert used == AROUND.keys()


@pytest.mark.parametrize(
    "code",
    [
        "print(name)",
        "print(f'{name}: {message(value)}')",
        "print(f'{name!r}', file=sys.stderr)",
        "sys.stdout.write(name)",
        "table.to_csv(sys.stdout)",
        "out = sys.stderr",
        "sys.exit(f'error: {name}')",
        "sys.exit(name)",
        "self.exit(2, 'error: ' + name)",
        "input(name)",
        "Console().print(name)",
        "rich.console.Console(file=out)",
        "logging.getLogger('x').warning(name)",
        "warnings.warn(name)",
        "subprocess.run(['dvc'], check=False)",
        "subprocess.Popen(['dvc'], stdout=-1)",
        "Markup(f'<p>{name}</p>')",
        "Markup(name)",
        "jinja2.Environment()",
    ],
)
def test_what_goes_round_a_door_is_found(code: str):
    assert list(around_the_doors(code))
