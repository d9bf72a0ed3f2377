"""params.yaml: every problem in one error, the name, the value, the way out."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenmill.core.errors import UserError
from tokenmill.core.executor import EngineParams
from tokenmill.core.params import Section, load, read_yaml
from tokenmill.model.config import ModelParams
from tokenmill.schema import AllParams, RuntimeSection, check_all
from tokenmill.training.params import RuntimeParams, TrainParams

ROOT = Path(__file__).resolve().parents[1]
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the project's params.yaml with some keys changed (JSON is YAML); None of a key removes it."""

    def write_changed(**changes: Any) -> Path:
        content = copy.deepcopy(read_yaml(ROOT / "params.yaml"))
        for name, value in changes.items():
            *parents, key = name.split("__")
            section = content
            for parent in parents:
                section = section[parent]
            if value is REMOVED:
                del section[key]
            else:
                section[key] = value
        path = tmp_path / "params.yaml"
        path.write_text(json.dumps(content))
        return path

    return write_changed


REMOVED = object()


def complaint(path: Path) -> str:
    with pytest.raises(UserError) as error:
        check_all(path)
    return str(error.value)


def test_the_projects_own_file_is_valid():
    assert set(AllParams.model_fields) == set(read_yaml(ROOT / "params.yaml"))
    check_all(ROOT / "params.yaml")


def test_every_problem_is_in_one_error(write: Write):
    path = write(model__n_layer=0, model__architecture="gpt3", train__epochs="four", runtime__device="tpu")
    lines = complaint(path).splitlines()
    assert lines[0] == f"{path} has 4 problems:"
    assert lines[1:] == [
        "  model.architecture ('gpt3') must be 'gpt2' or 'modern'.",
        "  model.n_layer (0) must be greater than or equal to 1.",
        "  train.epochs ('four') must be a valid integer.",
        "  runtime.device ('tpu') must be 'auto', 'cpu', 'cuda' or 'mps'.",
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("model__n_layers", "model.n_layers (7) is not a parameter; did you mean model.n_layer?"),
        (
            "train__schedule__warmup_step",
            "train.schedule.warmup_step (7) is not a parameter; did you mean train.schedule.warmup_steps?",
        ),
        (
            "runtime__checkpoint__every_second",
            "runtime.checkpoint.every_second (7) is not a parameter; did you mean runtime.checkpoint.every_seconds?",
        ),
        ("trian", "trian (7) is not a parameter; did you mean train?"),
        ("model__zzz", "model.zzz (7) is not a parameter; remove it."),
    ],
)
def test_an_unknown_key_gets_the_nearest_known_one(write: Write, name: str, hint: str):
    path = write(**{name: 7})
    assert complaint(path) == f"{path}: {hint}"


def test_a_missing_key_says_what_it_is(write: Write):
    path = write(model__n_layer=REMOVED)
    assert complaint(path) == f"{path}: model.n_layer is missing; add it: Transformer blocks."
    assert "train is missing; add it" in complaint(write(train=REMOVED))


@pytest.mark.parametrize("written", ["6e-4", "6.0e-4", "0.0006", "6E-04"])
def test_an_exponent_is_a_number_as_dvc_reads_it(tmp_path: Path, written: str):
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    before = f"learning_rate: {read_line(text, 'learning_rate')}"
    assert before in text
    path = tmp_path / "params.yaml"
    path.write_text(text.replace(before, f"learning_rate: {written}"), encoding="utf-8")
    assert check_all(path).train.learning_rate == 0.0006


def read_line(text: str, key: str) -> str:
    return next(line.split(":", 1)[1].strip() for line in text.splitlines() if line.strip().startswith(f"{key}:"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"train__epochs": True}, "train.epochs (True) must be a valid integer."),
        ({"train__epochs": 4.5}, "train.epochs (4.5) must be a valid integer."),
        ({"train__learning_rate": "6e-4"}, "train.learning_rate ('6e-4') must be 'auto' or a number greater than 0."),
        ({"train__learning_rate": 0}, "train.learning_rate (0) must be 'auto' or a number greater than 0."),
        ({"train__learning_rate": True}, "train.learning_rate (True) must be 'auto' or a number greater than 0."),
        ({"train__seed": -1}, "train.seed (-1) must be greater than or equal to 0."),
        ({"train__seed": 2**32}, "train.seed (4294967296) must be less than or equal to 4294967295."),
        ({"model__dropout": 1.0}, "model.dropout (1.0) must be less than 1."),
        (
            {"runtime__micro_batch_size": 0},
            "runtime.micro_batch_size (0) must be 'auto' or an integer greater than or equal to 1.",
        ),
        ({"runtime__processes": "two"}, "runtime.processes ('two') must be 'auto' or an integer"),
        ({"runtime__micro_batch_size": True}, "runtime.micro_batch_size (True) must be 'auto' or an integer"),
        ({"runtime__checkpoint__keep": 1}, "runtime.checkpoint.keep (1) must be greater than or equal to 2."),
        ({"evaluate__prompts": [{"expect": "x"}]}, "each entry of evaluate.prompts needs either `user` or `text`"),
        ({"evaluate__prompts": [{"user": "a", "text": "b"}]}, "needs either `user` or `text`, and not both."),
        ({"tokenizer__vocab_size": 256, "tokenizer__type": "bpe"}, "tokenizer.vocab_size (256) must be at least 257"),
    ],
)
def test_a_wrong_value_is_named_with_what_it_may_be(write: Write, changes: dict[str, Any], expected: str):
    message = complaint(write(**changes))
    assert expected in message
    assert "problems" not in message


@pytest.mark.parametrize(("heads", "nearest"), [(3, 2), (5, 4), (12, 8), (100, 128)])
def test_heads_must_divide_the_width_and_the_nearest_that_do_are_told(write: Write, heads: int, nearest: int):
    message = complaint(write(model__n_head=heads, model__n_embd=128, model__architecture="gpt2"))
    assert f"model.n_head ({heads}) must divide model.n_embd (128); try n_head={nearest}." in message
    assert 128 % nearest == 0


def test_rotary_positions_need_pairs_of_features(write: Write):
    odd = {"model__n_head": 4, "model__n_embd": 12}
    message = complaint(write(**odd, model__architecture="modern"))
    assert "model.n_embd / model.n_head (12 / 4 = 3) must be even" in message
    check_all(write(**odd, model__architecture="gpt2"))


def test_a_stage_reads_only_its_own_sections(write: Write):
    class View(Section):
        model: ModelParams

    path = write(train__epochs="four")
    assert load(View, path).model == ModelParams.model_validate(read_yaml(path)["model"])
    with pytest.raises(UserError, match=r"model\.n_layer"):
        load(View, write(model__n_layer=0))


def test_each_reader_of_runtime_sees_its_part(write: Write):
    class View(Section):
        runtime: EngineParams

    path = write(runtime__data_engine="ray", runtime__ray_address="head:6379", runtime__device="tpu")
    assert load(View, path).runtime == EngineParams(data_engine="ray", ray_address="head:6379")
    message = complaint(write(runtime__data_engin="ray"))
    assert "runtime.data_engin ('ray') is not a parameter; did you mean runtime.data_engine?" in message


def test_a_section_is_frozen(write: Write):
    params = check_all(write())
    with pytest.raises(ValueError, match="frozen"):
        params.train.epochs = 5


def test_the_file_must_be_there_and_be_yaml(tmp_path: Path):
    path = tmp_path / "params.yaml"
    assert complaint(path).startswith(f"{path} is missing in ")
    path.write_text("model: [1, 2\ntrain: {")
    assert complaint(path).startswith(f"{path} is not valid YAML: ")
    path.write_text("model: {}\nmodel: {}\n")
    assert "duplicate key" in complaint(path)
    path.write_text("- model\n- train\n")
    assert complaint(path) == f"{path} must hold sections (`model:`, `train:`, …), not list."
    path.write_text("")
    assert "must hold sections" in complaint(path)
    path.write_bytes("größe: 1".encode("latin-1"))
    assert complaint(path).startswith(f"{path} is not UTF-8 text")


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        (
            RuntimeSection,
            {
                "checkpoint",
                "compile",
                "cost",
                "data_engine",
                "device",
                "max_minutes",
                "micro_batch_size",
                "parallel",
                "processes",
                "ray_address",
                "token_placement",
            },
        ),
        (
            RuntimeParams.model_fields["checkpoint"].annotation,
            {"every_seconds", "every_steps", "keep", "keep_runs", "mirror"},
        ),
    ],
)
def test_runtime_holds_what_changes_how_fast_and_nothing_else(section: type[Section], keys: set[str]):
    """A new key here must not change what comes out: no stage depends on `runtime`."""
    assert set(section.model_fields) == keys


def test_no_parameter_is_without_a_description_or_with_a_default():
    def check(section: type[Section], name: str) -> None:
        for key, field in section.model_fields.items():
            annotation = field.annotation
            if isinstance(annotation, type) and issubclass(annotation, Section):
                check(annotation, f"{name}{key}.")
            else:
                assert field.description, f"{name}{key}"
                assert field.is_required(), f"{name}{key}"

    check(AllParams, "")
    assert TrainParams.model_fields["epochs"].description
