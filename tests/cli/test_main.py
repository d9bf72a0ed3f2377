"""`tokenmill`: the reference of every parameter, and errors as sentences."""

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fresh import imported_by
from tests.imports import ROOT
from tokenmill.cli.main import COMMANDS, build_parser, main
from tokenmill.cli.params import reference
from tokenmill.core.params import Section
from tokenmill.schema import AllParams
from tokenmill.stage import report_errors


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(ROOT)
    return ROOT


@pytest.fixture(scope="module")
def text() -> str:
    """The reference of every parameter, with the defaults of this checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return reference()


def parameters(section: type[Section], prefix: str) -> list[str]:
    names: list[str] = []
    for key, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            names += parameters(kind, f"{prefix}{key}.")
        else:
            names.append(f"{prefix}{key}")
    return names


def test_reference_has_every_parameter_once_with_its_meaning(text: str):
    names = parameters(AllParams, "")
    assert len(names) > 40
    for name in names:
        assert text.count(f"| `{name}` |") == 1, name
        cells = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |")).split(
            " | "
        )
        assert len(cells) >= 4, name
        assert all(cell.strip(" |") for cell in cells), name
    for key in ("user", "text", "expect"):
        assert f"`evaluate.prompts[].{key}`" in text


@pytest.mark.parametrize(
    "row",
    [
        "| `train.gradient_accumulation_steps` | `1` | integer ≥ 1 |",
        "| `train.learning_rate` | `auto` | `auto` or number |",
        "| `train.seed` | `0` | integer ≥ 0, ≤ 4294967295 |",
        "| `clean.deduplicate` | `true` |",
        "| `train.schedule.horizon_epochs` | `null` | integer ≥ 1, ≤ 1000000 or null |",
        "| `model.dropout` | `0.0` | number ≥ 0.0, < 1.0 |",
        "| `clean.text_file` | `file` | `file`, `paragraph`, `line` |",
    ],
)
def test_reference_tells_types_and_bounds(text: str, row: str):
    assert row in text


@pytest.mark.parametrize("other", [["model.n_layer"], ["--check", "docs/parameters.md"]])
def test_one_thing_is_asked_of_the_parameters_at_a_time(
    root: Path, tmp_path: Path, other: list[str]
):
    with pytest.raises(SystemExit) as error:
        main(["params", *other, "--write", str(tmp_path / "new.md")])
    assert error.value.code == 2


def test_stale_reference_fails_the_check(
    root: Path, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "docs" / "parameters.md"
    with pytest.raises(SystemExit) as missing:
        main(["params", "--check", str(file)])
    main(["params", "--write", str(file)])
    main(["params", "--check", str(file)])
    file.write_text(
        file.read_text(encoding="utf-8").replace("`modern`", "`new`", 1), encoding="utf-8"
    )
    with pytest.raises(SystemExit) as stale:
        main(["params", "--check", str(file)])
    assert (
        str(missing.value)
        == str(stale.value)
        == f"error: {file} is not the reference of this params.yaml; `tokenmill params --write "
        f"{file}` writes it."
    )
    file.write_bytes(b"\xff")
    with pytest.raises(SystemExit, match="not the reference"):
        main(["params", "--check", str(file)])
    capsys.readouterr()
    main(["params", "model.n_layer"])
    assert "1, ≤ 4096" in capsys.readouterr().out
    main(["params"])
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("publish --weights int4", "int4 is not a value of --weights"),
        ("fit --minutes x", "argument --minutes: 'x' is no number"),
        ("fit --minutes 0", "argument --minutes: 0 must be above 0 and at most 1e+15"),
        ("plan --tokens many", "argument --tokens: 'many' is no number"),
        ("generate --epoch x", "argument --epoch: 'x' is no whole number"),
        ("profile --steps 1.5", "argument --steps: '1.5' is no whole number"),
    ],
)
def test_a_wrong_value_is_refused_in_words(
    typed: str, problem: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as error:
        main(typed.split())
    assert error.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {problem}; ")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("model.n_layers", "model.n_layer"),
        ("models", "model"),
        ("train.schedules", "train.schedule"),
        ("evaluate.prompts[].txt", "evaluate.prompts[].text"),
    ],
)
def test_an_unknown_parameter_or_section_gets_the_nearest(root: Path, typed: str, meant: str):
    with pytest.raises(SystemExit) as error:
        main(["params", typed])
    assert str(error.value) == f"error: {typed} is not a parameter; did you mean {meant}?"


def test_a_mistake_ends_with_a_sentence_and_exit_code_1(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "tokenmill", "params"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: params.yaml is missing in ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["trace", "Z\udcfcrich"], "TEXT"),
        (["generate", "Z\udcfcrich"], "QUESTION"),
        (["compare", "HEAD", "Z\udcfcrich"], "REV"),
        (["export", "--rev", "Z\udcfcrich"], "--rev"),
        (["import", "--rev", "Z\udcfcrich"], "--rev"),
    ],
)
def test_arguments_that_are_not_utf8_are_refused(arguments: list[str], name: str, here: Path):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert str(stopped.value).startswith(f"error: {name} (Z⟨U+DCFC⟩rich) is not UTF-8 text; ")


def test_a_file_may_have_any_name(here: Path):
    with pytest.raises(SystemExit, match="holds no config"):
        main(["generate", "--model", "Z\udcfcrich", "a"])


def test_summary_before_the_pipeline_names_the_way_out(here: Path):
    with pytest.raises(SystemExit, match=r"error: metrics.clean\.json .*`dvc repro`"):
        main(["summary"])


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_in_help_are_valid_command_lines(name: str):
    epilog = (build_parser().commands()[name].epilog or "").replace("\\\n", "")
    head, *lines = epilog.splitlines()
    assert head == "examples:"
    examples = [
        re.split(r" {2,}|[>|&]", line.strip())[0]
        for line in lines
        if line.lstrip().startswith("tokenmill")
    ]
    assert name in {
        build_parser().parse_args(shlex.split(example)[1:]).command for example in examples
    }


def test_help_lists_commands_and_exit_codes():
    text = build_parser([]).format_help()
    for code in ("0 ", "1 ", "2 ", "130 "):
        assert f"\n  {code}" in text
    for name in COMMANDS:
        assert re.search(rf"\n    {name}\s", text)


@pytest.mark.parametrize(
    ("typed", "wrong", "meant"),
    [
        ("plam", "plam", "plan"),
        ("xyz", "xyz", "summary, runs, watch"),
        ("plan --presett phase1", "--presett", "--preset"),
        ("preset phas3", "phas3", "phase3"),
        ("summary now", "now", "`tokenmill summary --help`"),
        ("plan --devices 0", "--devices", "between 1 and 10,000"),
        ("completion", "SHELL", "`tokenmill completion --help`"),
    ],
)
def test_mistyped_command_line_names_the_nearest_word(
    typed: str, wrong: str, meant: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as error:
        main(typed.split())
    assert error.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert wrong in shown.err
    assert meant in shown.err


@pytest.mark.parametrize("arguments", ["params", "params model.n_layer"], ids=["say", "rich"])
def test_a_closed_pipe_ends_the_command_quietly(root: Path, arguments: str):
    tokenmill = f"{shlex.quote(sys.executable)} -m tokenmill"
    command = f"{tokenmill} {arguments} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("141\n", "")


HEAVY = {"torch", "dvc", "polars", "pydantic", "ruamel.yaml", "numpy", "pandas"}


@pytest.mark.parametrize("arguments", [("--help",), ("plan", "--help"), ("completion", "bash")])
def test_help_and_completion_import_nothing_heavy(arguments: tuple[str, ...]):
    assert not HEAVY & imported_by("-m", "tokenmill", *arguments)


def test_checking_parameters_imports_no_tables():
    assert not {"polars", "pandas", "torch"} & imported_by("-c", "import tokenmill.schema")


def test_only_the_command_that_was_typed_is_imported():
    code = """if True:
        import sys
        from tokenmill.cli.main import COMMANDS, build_parser
        build_parser(["doctor"])
        print([name for name in COMMANDS if f"tokenmill.cli.{name}" in sys.modules])
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    assert (
        subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        == "['doctor']\n"
    )


def test_control_characters_of_an_error_are_made_visible(here: Path):
    with pytest.raises(SystemExit) as end:
        main(["generate", "--model", "a\x1b]0;b\x07"])
    assert "␛]0;b␇" in str(end.value.code)
    assert "\x1b" not in str(end.value.code)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_output_fits_the_encoding_of_the_terminal(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    report_errors(lambda: print("✓ one … two"))
    assert written.getvalue() == b"? one ? two\n"


def test_no_memory_ends_in_a_sentence() -> None:
    def take_all() -> None:
        bytes(1 << 62)

    with pytest.raises(SystemExit) as end:
        report_errors(take_all)
    assert "out of memory" in str(end.value.code)
