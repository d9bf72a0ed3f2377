"""`tokenmill`: the reference of every parameter, and errors as sentences."""

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fresh import imported_by
from tokenmill.cli.arguments import Parser
from tokenmill.cli.main import main, parser
from tokenmill.commands import reference
from tokenmill.core.params import Section
from tokenmill.schema import AllParams

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(ROOT)
    return ROOT


def parameters(section: type[Section], prefix: str) -> list[str]:
    names: list[str] = []
    for key, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            names += parameters(kind, f"{prefix}{key}.")
        else:
            names.append(f"{prefix}{key}")
    return names


def test_the_reference_has_every_parameter_once_with_its_value_and_its_meaning(root: Path):
    text = reference.render()
    names = parameters(AllParams, "")
    assert len(names) > 40
    for name in names:
        assert text.count(f"| `{name}` |") == 1, name
        cells = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |")).split(" | ")
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
        "| `train.schedule.horizon_epochs` | `null` | integer or null ≥ 1 |",
        "| `model.dropout` | `0.0` | number ≥ 0.0, < 1.0 |",
        "| `model.architecture` | `modern` | `gpt2`, `modern` |",
    ],
)
def test_the_reference_tells_numbers_from_truth_values(root: Path, row: str):
    assert row in reference.render()


def test_what_is_written_passes_the_check_and_what_is_stale_does_not(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "docs" / "parameters.md"
    with pytest.raises(SystemExit) as missing:
        main(["params", "--check", str(file)])
    main(["params", "--write", str(file)])
    main(["params", "--check", str(file)])
    file.write_text(file.read_text(encoding="utf-8").replace("`modern`", "`new`", 1), encoding="utf-8")
    with pytest.raises(SystemExit) as stale:
        main(["params", "--check", str(file)])
    assert str(missing.value) == str(stale.value) == f"error: {file} is out of date; run `make format`."
    capsys.readouterr()
    main(["params"])
    assert capsys.readouterr().out == reference.render()


def test_a_mistake_is_a_sentence_on_stderr_and_exit_code_1(tmp_path: Path):
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


def test_a_summary_before_the_pipeline_has_run_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"error: metrics.clean\.json is missing; `dvc repro` makes it"):
        main(["summary"])


def leaves(whole: Parser) -> dict[str, Parser]:
    """Every command by its name."""
    (commands,) = (action for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    return dict(commands.choices)


@pytest.mark.parametrize("name", leaves(parser()))
def test_every_help_has_examples_that_are_command_lines(name: str):
    epilog = leaves(parser())[name].epilog or ""
    head, *lines = epilog.splitlines()
    assert head == "examples:"
    examples = [re.split(r" {2,}|[>|&]", line.strip())[0] for line in lines if line.lstrip().startswith("tokenmill")]
    assert name in {parser().parse_args(shlex.split(example)[1:]).command for example in examples}


def test_the_help_tells_the_exit_codes_and_every_command():
    text = parser().format_help()
    for code in ("0 ", "1 ", "2 ", "130 "):
        assert f"\n  {code}" in text
    for name in leaves(parser()):
        assert re.search(rf"\n    {name}\s", text)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("plam", "error: plam is not a command; did you mean plan? `tokenmill --help` says what there is.\n"),
        ("xyz", "error: xyz is not a command; there are summary, compare, "),
        ("plan --presett phase1", "error: --presett is not an argument of `tokenmill plan`; did you mean --preset? `t"),
        ("preset phas3", "error: phas3 is not a preset; did you mean phase3? `tokenmill preset --help` says what"),
        ("summary now", "error: now is not an argument of `tokenmill summary`; `tokenmill summary --help` says"),
        ("plan --devices 0", "error: argument --devices: 0 must be 1 or more; `tokenmill plan --help` says what"),
        ("completion", "error: the following arguments are required: SHELL; `tokenmill completion --help` says"),
    ],
)
def test_a_mistyped_command_line_is_one_sentence_with_the_nearest_word(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as error:
        main(typed.split())
    assert error.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(said)
    assert shown.err.count("\n") == 1


def test_a_pipe_that_closes_early_ends_the_command_quietly(root: Path):
    command = f"{sys.executable} -m tokenmill params | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("141\n", "")


def test_the_command_line_itself_waits_for_nothing_heavy():
    found = imported_by("-m", "tokenmill", "--help")
    assert "tokenmill.cli.demo" in found
    assert not {"torch", "dvc", "polars", "pydantic", "ruamel.yaml", "numpy"} & found
