"""Presets: what each promises, and that params.yaml keeps everything else to the byte."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tokenmill.cli.main import main
from tokenmill.commands.preset import put
from tokenmill.commands.preset_table import workload
from tokenmill.core.errors import UserError
from tokenmill.model.build import parameter_count
from tokenmill.planning.presets import DEFAULT, names, put_into, read
from tokenmill.schema import check_all

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "params.yaml").read_text(encoding="utf-8")


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "params.yaml"
    path.write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return path


def put_yes(name: str) -> str:
    out = io.StringIO()
    put(name, yes=True, out=out)
    return out.getvalue()


def value_at(content: dict[str, Any], name: str) -> object:
    for key in name.split("."):
        content = content[key]
    return content


@pytest.mark.parametrize(
    ("name", "parameters", "steps"),
    [
        ("default", 1_048_576, 804),
        ("phase1", 410_112, 1_473),
        ("phase2", 16_908_288, 15_628),
        ("phase3", 134_601_216, 939_950),
        ("modern-124m", 162_129_408, 6_104),
        ("gpt2-medium", 406_286_336, 15_450),
    ],
)
def test_it_is_the_model_it_promises(params: Path, name: str, parameters: int, steps: int):
    work = workload(params.parent, read(name))
    assert parameter_count(work.config) == parameters
    assert work.steps == steps
    put_yes(name)
    written = check_all(params)
    assert written.train == work.train
    assert written.model.model_dump() == work.config.model_dump(exclude={"vocab_size"})
    assert name in names()


def test_the_list_has_all_presets_with_the_hours_that_plan_gives(params: Path, capsys: pytest.CaptureFixture[str]):
    main(["preset"])
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:-1]}
    assert list(rows) == names()
    assert rows["phase3"].split()[1:7] == ["134,601,216", "2.8e9", "x", "11", "49.0", "h"]


def test_default_is_what_params_yaml_comes_with_and_has_every_value_that_another_changes():
    content, default = YAML(typ="safe").load(TEXT), read(DEFAULT).values
    for name, value in default.items():
        assert YAML(typ="safe").load(value) == value_at(content, name), name
    changed = {name for other in names() for name in read(other).values}
    assert changed == set(default)
    for section in ("data", "evaluate", "runtime", "sample", "clean"):
        assert not any(name.startswith(f"{section}.") for name in default)


@pytest.mark.parametrize("name", names())
def test_everything_but_the_values_stays_to_the_byte_and_default_takes_it_back(params: Path, name: str):
    values = read(name).values
    put_yes(name)
    after = params.read_text(encoding="utf-8")
    content = YAML(typ="safe").load(after)
    assert all(value_at(content, key) == YAML(typ="safe").load(value) for key, value in values.items())
    changed = [(a, b) for a, b in zip(TEXT.splitlines(), after.splitlines(), strict=True) if a != b]
    for old, new in changed:
        key = old.split(":")[0]
        assert any(name.endswith(f".{key.strip()}") for name in values)
        assert new.startswith(f"{key}: ")
        assert old.partition("#")[2] == new.partition("#")[2], "the comment"
    assert put_yes(name) == f"params.yaml has the values of {name} already\n"
    assert params.read_text(encoding="utf-8") == after
    put_yes(DEFAULT)
    assert params.read_text(encoding="utf-8") == TEXT


def test_a_preset_leaves_nothing_of_the_one_before(params: Path):
    put_yes("phase3")
    straight = params.read_bytes()
    put_yes("phase1")
    put_yes("phase3")
    assert params.read_bytes() == straight


def test_the_users_own_text_and_style_stay(params: Path):
    mine = (
        TEXT.replace("data/raw/sample", "/my/text").replace("\n", "\r\n").replace("    type: wsd", "    type:   'wsd'")
    )
    mine = mine.replace("  n_layer: 4", "  n_layer: 4   # mine, not théirs")
    params.write_bytes(mine.encode())
    put_yes("phase3")
    after = params.read_bytes().decode()
    assert "raw: /my/text #" in after
    assert "  n_layer: 12   # mine, not théirs\r\n" in after
    assert "    type:   cosine #" in after
    assert after.count("\r\n") == TEXT.count("\n")


def test_a_flow_mapping_is_as_good_as_a_block(params: Path):
    block = TEXT[TEXT.index("  schedule:") : TEXT.index("  seed:", TEXT.index("train:"))]
    flow = "{type: wsd, warmup_steps: 20, decay_fraction: 0.2, final_fraction: 0.0, horizon_epochs: null}"
    params.write_text(TEXT.replace(block, f"  schedule: {flow}\n"), encoding="utf-8")
    put_yes("phase3")
    assert "{type: cosine, warmup_steps: 2000, decay_fraction: 0.2, final_fraction: 0.1, horizon_epochs: null}" in (
        params.read_text(encoding="utf-8")
    )


def test_without_yes_and_a_terminal_it_shows_the_difference_and_writes_nothing(
    params: Path, capsys: pytest.CaptureFixture[str]
):
    main(["preset", "phase1"])
    shown = capsys.readouterr().out
    assert "-  n_layer: 4\n+  n_layer: 2\n" in shown
    assert "\033[" not in shown
    assert shown.endswith("params.yaml is as it was; --yes writes it\n")
    assert params.read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize(("answer", "written"), [("y", True), ("n", False), ("", False)])
def test_at_a_terminal_it_asks_in_colour(params: Path, answer: str, written: bool):
    ours, theirs = pytest.importorskip("pty").openpty()
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm"}
    command = [sys.executable, "-m", "tokenmill", "preset", "phase1"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=params.parent, env=env) as process:
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
    ("broken", "message"),
    [
        ("  n_layer: 4\n", "params.yaml has no single value model.n_layer; add one"),
        ("  gradient_clip: 1.0\n", "params.yaml: train.gradient_clip is missing"),
    ],
)
def test_what_is_missing_is_said_and_nothing_written(params: Path, broken: str, message: str):
    without = TEXT.replace(broken, "")
    params.write_text(without, encoding="utf-8")
    with pytest.raises(UserError) as error:
        put_yes("phase3")
    assert message in str(error.value)
    assert params.read_text(encoding="utf-8") == without


def test_a_params_yaml_that_is_no_yaml_is_a_sentence(params: Path):
    params.write_text("model: [", encoding="utf-8")
    with pytest.raises(UserError, match=r"params.yaml is not valid YAML"):
        put_into(params, read("phase1"))
