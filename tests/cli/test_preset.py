"""Presets: what each one promises, and that params.yaml keeps everything else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.utils.hydra import apply_overrides
from ruamel.yaml import YAML

from tests.imports import ROOT
from tokenmill.cli.main import main
from tokenmill.core.params import dotted
from tokenmill.planning.params_file import params_with, text_with
from tokenmill.planning.plan import plan_training
from tokenmill.planning.presets import DEFAULT, FOLDER, PRESETS, read_preset
from tokenmill.schema import check_all

TEXT = (ROOT / "params.yaml").read_text(encoding="utf-8")


def put(name: str) -> None:
    main(["preset", name, "--yes"])


def test_the_plan_that_is_named_is_of_the_preset(capsys: pytest.CaptureFixture[str], params: Path):
    put("phase1")
    assert "`tokenmill plan --preset phase1`" in capsys.readouterr().out


def changed_lines(before: str, after: str) -> list[tuple[str, str]]:
    return [(a, b) for a, b in zip(before.splitlines(), after.splitlines(), strict=True) if a != b]


@pytest.mark.parametrize(
    ("name", "parameters", "steps"),
    [
        ("default", 1_048_576, 1_368),
        ("phase1", 411_392, 1_473),
        ("phase2", 16_908_288, 15_628),
        ("phase3", 134_601_216, 939_950),
        ("modern-124m", 162_129_408, 6_104),
        ("gpt2-medium", 406_286_336, 15_450),
    ],
)
def test_a_preset_is_the_model_it_promises(params: Path, name: str, parameters: int, steps: int):
    preset = read_preset(name)
    given = {"tokens": preset.tokens, "vocab_size": preset.vocab_size, "hardware": ["A100"]}
    plan = plan_training(params.parent, params_with(preset.values, params), **given)
    assert plan.parameters == parameters
    assert plan.work.steps == steps
    put(name)
    written = check_all(params)
    assert written.train == plan.work.train
    assert written.model.model_dump() == plan.work.config.model_dump(exclude={"vocab_size"})


def test_every_file_of_a_preset_is_offered():
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == sorted(PRESETS)


def test_the_list_has_all_presets_with_their_hours(
    params: Path, capsys: pytest.CaptureFixture[str]
):
    main(["preset"])
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:-1]}
    assert list(rows) == list(PRESETS)
    assert rows["phase3"].split()[1:7] == ["134,601,216", "2.8e9", "x", "11", "48.9", "h"]


def test_default_is_what_params_yaml_comes_with():
    content = YAML(typ="safe").load(TEXT)
    default = read_preset(DEFAULT).values
    whole = YAML(typ="safe").load(FOLDER / "default.yaml")["params"]
    assert whole == {name: content[name] for name in ("tokenizer", "tokenize", "model", "train")}
    assert {name for other in PRESETS for name in read_preset(other).values} == set(default)


def test_no_edit_of_the_sections_of_a_preset_stays(params: Path):
    edits = {"model.dropout": 0.5, "train.gradient_accumulation_steps": 64, "train.beta2": 0.99}
    params.write_text(text_with(edits, params))
    steps = params_with(read_preset("phase3").values, params).train.gradient_accumulation_steps
    assert steps == 1
    put(DEFAULT)
    assert params.read_text() == TEXT


@pytest.mark.parametrize("name", PRESETS)
def test_all_but_the_values_stays_and_default_restores_it(params: Path, name: str):
    values = read_preset(name).values
    put(name)
    after = params.read_text(encoding="utf-8")
    content = YAML(typ="safe").load(after)
    here = dict(dotted(content))
    assert {key: here[key] for key in values} == values
    for old, new in changed_lines(TEXT, after):
        key = old.split(":")[0]
        assert any(name.endswith(f".{key.strip()}") for name in values)
        assert new.startswith(f"{key}: ")
        assert old.partition("#")[2] == new.partition("#")[2], "the comment"
    put(DEFAULT)
    assert params.read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize("name", PRESETS)
def test_an_experiment_then_changes_one_line(params: Path, name: str):
    """`dvc exp run -S` writes the file by `apply_overrides`."""
    put(name)
    before = params.read_text(encoding="utf-8")
    apply_overrides(params, ["model.n_layer=99"])
    assert changed_lines(before, params.read_text(encoding="utf-8")) == [
        (f"  n_layer: {read_preset(name).values['model.n_layer']}", "  n_layer: 99")
    ]


def test_text_and_style_of_the_user_stay(params: Path):
    mine = TEXT
    for old, new in (
        ("data/raw/sample", "/my/text"),
        ("  n_layer: 4", "  n_layer: 4   # mine, not théirs"),
        ("  prompts: auto", "  prompts:\n  - user: 'What is 2? " + "word " * 40 + "'"),
    ):
        assert mine.count(old) == 1, old
        mine = mine.replace(old, new)
    params.write_text(mine, encoding="utf-8")
    put("phase3")
    after = params.read_text(encoding="utf-8")
    assert "  n_layer: 12   # mine, not théirs\n" in after
    values = [f".{name.rpartition('.')[2]}" for name in read_preset("phase3").values]
    assert all(f".{old.split(':')[0].strip()}" in values for old, _ in changed_lines(mine, after))


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_a_link_to_params_yaml_stays_one(params: Path):
    params.rename(params.with_name("shared.yaml"))
    params.symlink_to("shared.yaml")
    put("phase1")
    assert params.is_symlink()
    assert "n_layer: 2" in params.with_name("shared.yaml").read_text(encoding="utf-8")


def test_without_yes_and_a_terminal_nothing_is_written(
    params: Path, capsys: pytest.CaptureFixture[str]
):
    main(["preset", "phase1"])
    shown = capsys.readouterr().out
    assert "-  n_layer: 4\n+  n_layer: 2\n" in shown
    assert "\033[" not in shown
    assert "--yes" in shown
    assert params.read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize(("answer", "written"), [("y", True), ("n", False), ("", False)])
def test_at_a_terminal_it_asks_in_colour(params: Path, answer: str, written: bool):
    ours, theirs = pytest.importorskip("pty").openpty()
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {
        "PYTHONPATH": str(ROOT / "src"),
        "TERM": "xterm",
    }
    command = [sys.executable, "-m", "tokenmill", "preset", "phase1"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=params.parent, env=env
    ) as process:
        os.close(theirs)
        shown = b""
        while b"[y/N] " not in shown:
            shown += os.read(ours, 4096)
        os.write(ours, answer.encode() + b"\n")
        assert process.wait() == 0
    os.close(ours)
    assert b"\033[32m+  n_layer: 2\033[0m" in shown
    assert (params.read_text(encoding="utf-8") != TEXT) is written


@pytest.mark.parametrize(
    ("broken", "named"),
    [("  n_layer: 4\n", "model.n_layer"), ("  gradient_clip: 1.0\n", "train.gradient_clip")],
)
def test_a_missing_parameter_is_named_and_nothing_written(params: Path, broken: str, named: str):
    without = TEXT.replace(broken, "")
    params.write_text(without, encoding="utf-8")
    with pytest.raises(SystemExit, match=named):
        put("phase3")
    assert params.read_text(encoding="utf-8") == without


@pytest.mark.parametrize("tab", ["  n_layer:\t4", "  n_layer: 4\t", "  n_layer: 4\t# mine"])
def test_a_tab_is_refused_with_its_line_and_nothing_written(params: Path, tab: str):
    """`dvc repro` reads such a file, `dvc exp run -S` does not."""
    mine = TEXT.replace("  n_layer: 4", tab)
    params.write_text(mine, encoding="utf-8")
    line = next(number for number, each in enumerate(mine.splitlines(), 1) if "\t" in each)
    with pytest.raises(SystemExit, match=rf"params\.yaml .*\(line {line}\)"):
        put("phase3")
    assert params.read_text(encoding="utf-8") == mine
