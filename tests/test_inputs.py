"""A stage notices what changed while it ran."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenmill.core.errors import UserError
from tokenmill.inputs import Inputs

PIPELINE = """
stages:
  train:
    cmd: python -m stages train
    params: [model, train.epochs]
    deps: ["${data.raw}", data/tokens, src/tokenmill/model]
  each:
    foreach: ${methods}
    do:
      cmd: python -m stages each
      deps: [models/lora]
"""
PARAMS = """
data: {raw: raw.txt}
model: {n_layer: 2, nested: {rate: 0.1}}
train: {epochs: 4, learning_rate: 0.1}
runtime: {device: cpu}
"""


@pytest.fixture
def project(here: Path) -> Path:
    files = {
        "dvc.yaml": PIPELINE,
        "params.yaml": PARAMS,
        "raw.txt": "text",
        "data/tokens/train.bin": "tokens",
        "src/tokenmill/model/gpt.py": "code",
        "models/lora/weights": "weights",
    }
    for name, content in files.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return here


def replace(file: str, old: str, new: str) -> Callable[[], object]:
    return lambda: Path(file).write_text(Path(file).read_text().replace(old, new))


def touch_byte_code() -> None:
    cache = Path("src/tokenmill/model/__pycache__")
    cache.mkdir()
    (cache / "gpt.pyc").write_text("byte code")


@pytest.mark.parametrize(
    "change",
    [
        lambda: None,
        replace("params.yaml", "device: cpu", "device: cuda"),
        replace("params.yaml", "learning_rate: 0.1", "learning_rate: 0.2"),
        replace("params.yaml", "train:", "# other words\ntrain:"),
        lambda: os.utime("src/tokenmill/model/gpt.py", (1, 1)),
        touch_byte_code,
        lambda: Path("models/lora/weights").write_text("other"),
    ],
)
def test_what_the_stage_does_not_read_may_change(project: Path, change: Callable[[], object]):
    inputs = Inputs("train")
    change()
    inputs.check_unchanged()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (replace("params.yaml", "epochs: 4", "epochs: 5"), ["train.epochs", "4", "5"]),
        (replace("params.yaml", "rate: 0.1}}", "rate: 0.2}}"), ["model.nested.rate"]),
        (replace("params.yaml", "n_layer: 2, ", ""), ["model.n_layer", "None"]),
        (replace("raw.txt", "text", "texts"), ["raw.txt"]),
        (lambda: os.utime("raw.txt", (1, 1)), ["raw.txt"]),
        (lambda: Path("raw.txt").unlink(), ["raw.txt"]),
        (lambda: Path("data/tokens/val.bin").write_text("more"), ["data/tokens"]),
        (replace("src/tokenmill/model/gpt.py", "code", "edoc"), ["src/tokenmill/model"]),
    ],
)
def test_what_the_stage_reads_must_stay(
    project: Path, change: Callable[[], object], names: list[str]
):
    inputs = Inputs("train")
    change()
    with pytest.raises(UserError) as refused:
        inputs.check_unchanged()
    assert all(name in str(refused.value) for name in names)


def test_a_stage_for_each_item_names_its_files(project: Path):
    inputs = Inputs("each")
    inputs.check_unchanged()
    Path("models/lora/weights").write_text("other")
    with pytest.raises(UserError, match="models/lora"):
        inputs.check_unchanged()


def test_without_a_pipeline_there_is_nothing_to_compare(project: Path):
    Path("dvc.yaml").unlink()
    inputs = Inputs("train")
    Path("params.yaml").write_text("{}")
    inputs.check_unchanged()
