"""`tokenmill plan` prints what the calculator says."""

import re
import shutil
from pathlib import Path

import pytest

from tests.imports import ROOT
from tests.training.tiny import write_tokens
from tokenmill.cli.main import main
from tokenmill.planning.benchmark import Speed


@pytest.fixture
def project(here: Path) -> Path:
    shutil.copy(ROOT / "params.yaml", here)
    return here


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(["plan", *arguments])
    return capsys.readouterr().out


def test_every_fact_of_a_preset_is_printed(project: Path, capsys: pytest.CaptureFixture[str]):
    text = plan(
        capsys,
        "--preset",
        "phase3",
        "--hardware",
        "A100",
        "--step-seconds",
        "0.1",
        "--price-per-hour",
        "2",
    )
    names = [line.split()[0] for line in text.splitlines() if re.match(r"\w", line)]
    assert names == [
        "model",
        "text",
        "step",
        "work",
        "memory",
        "bfloat16",
        "float32",
        "on",
        "A100",
        "at",
        "a",
    ]
    row = next(line for line in text.splitlines() if line.startswith("A100"))
    assert row.split() == ["A100", "0.187", "s", "174,867", "48.9", "h", "97.85", "USD", "fits"]
    for number in ("134,601,216", "2,800,000,000", "229", "939,950", "75%"):
        assert number in text, number


def test_an_error_ends_with_exit_code_1(project: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match=r"^error: .*--tokens"):
        plan(capsys)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--utilisation", "0"],
        ["--utilisation", "2"],
        ["--devices", "0"],
        ["--devices", "10000000000000"],
        ["--tokens", "-3"],
        ["--tokens", "x"],
        ["--tokens", "0.5"],
        ["--tokens", "inf"],
        ["--step-seconds", "1e-300"],
        ["--price-per-hour", "1e300"],
    ],
)
def test_numbers_must_make_sense(
    project: Path, capsys: pytest.CaptureFixture[str], wrong: list[str]
):
    with pytest.raises(SystemExit) as error:
        plan(capsys, *wrong)
    assert error.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_tokens_for_no_sequence_are_refused(project: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match=r"model\.context_length \(\d+\) .* 5 tokens"):
        plan(capsys, "--tokens", "5")


def test_plans_in_the_document_are_those_printed(project: Path, capsys: pytest.CaptureFixture[str]):
    document = (ROOT / "docs" / "plan-against-reality.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\n\$ tokenmill (plan .*)\n((?:.*\n)*?)```", document)
    assert len(blocks) == 2
    for command, shown in blocks:
        assert plan(capsys, *command.split()[1:]).splitlines() == shown.splitlines()


def test_a_step_has_no_more_tokens_than_an_epoch(project: Path, capsys: pytest.CaptureFixture[str]):
    sizes = ["--tokens", "10000", "--hardware", "A100"]
    large, whole = (plan(capsys, *sizes, "-S", f"train.batch_size={n}") for n in (512, 78))
    assert "9,984 tokens, 1 steps an epoch, 4 in all" in large
    for each in (large, whole):
        assert "operations a token, 2.51e+11 in all" in each


def test_here_alone_has_a_price_and_no_share_of_a_peak(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    timed = Speed(0.5, "CPU", "5 steps")
    monkeypatch.setattr("tokenmill.planning.plan.measure", lambda *_: timed)
    more = ["--tokens", "10000", "--step-seconds", "0.1", "--price-per-hour", "3600"]
    alone = plan(capsys, "--hardware", "here", *more)
    assert re.search(r"e12 operations a second; \d+ s in all", alone)
    assert " 19.50 USD" in alone.replace("  ", " "), "of 39 steps"
    (here,) = re.findall("(?m)^here .*", plan(capsys, "--hardware", "Here", "T4", *more))
    assert "USD" not in here, "it is the price of a T4"


@pytest.mark.parametrize(
    ("tokens", "epochs", "said"),
    [
        (400_000, 4, "a model of about 80k parameters"),
        (400_000, 40, "a model of about 80k parameters"),
        (1_048_576, 100, "little text"),
        (8_000_000, 1, "train longer"),
        (20_000_000, 1, "near the 20"),
        (200_000_000, 1, "a small model that is used much"),
    ],
)
def test_text_is_weighed_against_the_model(
    project: Path, capsys: pytest.CaptureFixture[str], tokens: int, epochs: int, said: str
):
    """The default model has 1,048,576 parameters with 1,024 entries; they suit 20 tokens each."""
    sizes = ["--tokens", str(tokens), "--vocab-size", "1024", "-S", f"train.epochs={epochs}"]
    text = plan(capsys, *sizes, "--hardware", "A100")
    assert "1,048,576 parameters" in text
    assert said in " ".join(text.split())


def test_tokens_of_another_text_are_called_so(project: Path, capsys: pytest.CaptureFixture[str]):
    write_tokens(project / "data/tokens", sequences=500)
    shutil.copytree(ROOT / "metrics", project / "metrics")
    assert "another text" not in plan(capsys, "--hardware", "T4")
    (project / "dvc.lock").write_text("stages: {}")
    assert "another text or tokenizer; `dvc repro unpack`" in plan(capsys, "--hardware", "T4")


def test_text_that_is_never_seen_is_no_text(project: Path, capsys: pytest.CaptureFixture[str]):
    """Half of it: half the model is recommended."""
    write_tokens(project / "data/tokens", sequences=500, sources=("a", "b"))
    found = [
        re.search(r"model of about (\d+)", plan(capsys, "-S", "train.epochs=8", "-S", mixture))
        for mixture in ("data.mixture=", "data.mixture={b: 0}")
    ]
    whole, half = (int(match[1]) for match in found if match)
    assert half == pytest.approx(whole / 2, rel=0.1)
