"""params.yaml: every problem in one error, the name, the value, the way out."""

import copy
import importlib
import itertools
import json
import shlex
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dvc.utils.hydra import apply_overrides
from dvc.utils.serialize import load_yaml

from tests.imports import ROOT
from tokenmill import git
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.core.params import ParamsError, Section, load, parse_yaml, read_yaml
from tokenmill.dvc_lock import Lock
from tokenmill.executors.params import ExecutorParams
from tokenmill.schema import (
    BEFORE_TRAINING,
    AllParams,
    RuntimeSection,
    check_all,
    problems_of_stages,
    refuse_for_stages,
    way_back,
    with_way_back,
)
from tokenmill.training.params import ModelSection, RuntimeParams, TrainParams

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the project's params.yaml with some keys changed (JSON is YAML); None of a key removes
    it."""

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


def refused(path: Path) -> ParamsError:
    with pytest.raises(ParamsError) as error:
        check_all(path)
    return error.value


def refused_by_a_stage(path: Path) -> list[str]:
    """The parameters with values that are allowed, and that a stage of the project would refuse."""
    return [name for name, _ in problems_of_stages(check_all(path), path.parent)]


def unreadable(path: Path) -> str:
    with pytest.raises(UserError) as error:
        check_all(path)
    return str(error.value)


def test_params_yaml_of_the_project_is_valid():
    assert set(AllParams.model_fields) == set(read_yaml(ROOT / "params.yaml"))
    check_all(ROOT / "params.yaml")


def test_every_problem_is_in_one_error(write: Write):
    path = write(
        model__n_layer=0, tokenizer__type="words", train__epochs="four", runtime__device="tpu"
    )
    error = refused(path)
    assert error.parameters == [
        "tokenizer.type",
        "model.n_layer",
        "train.epochs",
        "runtime.device",
    ]
    assert str(error).splitlines() == [
        f"{path} has 4 problems:",
        "  tokenizer.type ('words') must be 'bpe' or 'char'.",
        "  model.n_layer (0) must be greater than or equal to 1.",
        "  train.epochs ('four') must be an integer.",
        "  runtime.device ('tpu') must be 'auto', 'cpu', 'cuda' or 'mps'.",
    ]


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("clean.deduplicate", "Yes", "true or false"),
        ("train.epochs", 1.5, "an integer"),
        ("train.weight_decay", "much", "a number"),
        ("data.raw", "", "1 or more characters"),
        ("finetune.data", "", "1 or more characters"),
        ("data.raw", 7, "a text"),
        ("clean.columns", [], "1 or more entries"),
        ("sample", [1, 2], "names and values"),
        ("train.schedule", 3, "names and values"),
    ],
)
def test_what_a_value_must_be_is_said_in_words_of_yaml(
    write: Write, name: str, value: Any, wanted: str
):
    error = refused(write(**{name.replace(".", "__"): value}))
    assert error.parameters == [name]
    assert wanted in str(error)
    assert "Python" not in str(error)
    assert "should" not in str(error)


def test_an_unknown_language_is_refused_before_any_text_is_read(write: Write):
    assert refused_by_a_stage(write(clean__filters__languages=["en", "de"])) == []
    params = check_all(write(clean__filters__languages=["en", "xx"]))
    ((name, sentence),) = problems_of_stages(params, Path())
    assert name == "clean.filters.languages"
    assert "(xx)" in sentence


@pytest.mark.parametrize("prompt", [{"user": "ok?", "expect": "✓"}, {"text": "✓"}])
@pytest.mark.parametrize("is_beside", [True, False])
def test_a_prompt_of_which_nothing_is_left_is_refused_first(
    write: Write, tmp_path: Path, prompt: dict[str, str], is_beside: bool
):
    """Not only by `evaluate`, after the training."""
    raw = tmp_path / "texts"
    raw.mkdir()
    (raw / "a.txt").write_text("text")
    given = "auto" if is_beside else [prompt]
    if is_beside:
        (raw / "prompts.yaml").write_text(f"prompts: {json.dumps([prompt])}")
    params = check_all(write(data__raw=str(raw), evaluate__prompts=given))
    ((name, sentence),) = problems_of_stages(params, tmp_path)
    assert name == "evaluate.prompts"
    assert "clean.mode (balanced)" in sentence
    kept = write(data__raw=str(raw), evaluate__prompts=given, clean__mode="none")
    assert refused_by_a_stage(kept) == []


def test_all_that_stages_refuse_is_in_one_error(write: Write, tmp_path: Path):
    """Each would end a run of its own, hours later."""
    path = write(
        data__mixture={"books": 2},
        finetune__methods=["lora"],
        finetune__data=str(tmp_path / "nowhere"),
        clean__filters__languages=["xx"],
        evaluate__prompts=[{"text": "✓"}, {"text": "text"}, {"user": "✗"}],
        benchmarks__names=["mine"],
        runtime__parallel="fsdp",
    )
    with pytest.raises(ParamsError) as error:
        refuse_for_stages(check_all(path))
    assert error.value.parameters == [
        "data.mixture",
        "finetune.data",
        "finetune.methods",
        "runtime.parallel",
        "clean.filters.languages",
        "evaluate.prompts",
        "evaluate.prompts",
        "benchmarks.names",
    ]


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"parallel": "ddp", "optimizer": "muon", "precision": "float16"}, []),
        ({"parallel": "fsdp", "optimizer": "adamw", "precision": "auto"}, []),
        ({"parallel": "fsdp", "optimizer": "adamw", "precision": "float16"}, ["runtime.parallel"]),
        ({"parallel": "fsdp", "optimizer": "muon", "precision": "auto"}, ["runtime.parallel"]),
    ],
)
def test_what_a_sharded_model_cannot_have_is_refused_first(
    write: Write, changes: dict[str, str], refused: list[str]
):
    parallel = changes.pop("parallel")
    values = {f"train__{name}": value for name, value in changes.items()}
    assert refused_by_a_stage(write(runtime__parallel=parallel, **values)) == refused


def test_a_precision_that_auto_chose_is_refused_with_shards(write: Write):
    params = check_all(write(train__optimizer="adamw", runtime__parallel="fsdp"))
    params.train.refuse_sharding(params.runtime, precision="bfloat16")
    with pytest.raises(UserError, match=r"float16 \(train\.precision: auto\)"):
        params.train.refuse_sharding(params.runtime, precision="float16")


def test_problems_of_a_file_of_prompts_are_below_its_name(write: Write, tmp_path: Path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("text")
    (tmp_path / "texts/prompts.yaml").write_text("prompts: [{foo: 1}, {user: 2}]")
    path = write(data__raw=str(tmp_path / "texts"), clean__filters__languages=["xx"])
    with pytest.raises(ParamsError) as error:
        refuse_for_stages(check_all(path))
    lines = str(error.value).splitlines()
    depths = [len(line) - len(line.lstrip()) for line in lines]
    assert depths == [0, 2, 2, 4, 4]


def test_a_problem_in_a_file_of_prompts_alone_is_of_that_file(write: Write, tmp_path: Path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("text")
    file = tmp_path / "texts/prompts.yaml"
    file.write_text("prompts: [{foo: 1, user: a}]")
    with pytest.raises(ParamsError) as error:
        refuse_for_stages(check_all(write(data__raw=str(tmp_path / "texts"))))
    assert str(error.value).startswith(f"{file}: ")
    assert error.value.parameters == ["evaluate.prompts"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("model.n_layers", "model.n_layer"),
        ("train.schedule.warmup_step", "train.schedule.warmup_steps"),
        ("runtime.checkpoint.every_second", "runtime.checkpoint.every_seconds"),
        ("runtime.data_engin", "runtime.data_engine"),
        ("trian", "train"),
    ],
)
def test_unknown_key_gets_the_nearest_known_one(write: Write, name: str, near: str):
    path = write(**{name.replace(".", "__"): 7})
    error = refused(path)
    assert error.parameters == [name]
    assert str(error) == f"{path}: {name} (7) is not a parameter; did you mean {near}?"


def test_unknown_key_near_no_other_is_to_be_removed(write: Write):
    assert str(refused(write(model__zzz=7))).endswith(
        "model.zzz (7) is not a parameter; remove it."
    )


def test_missing_key_says_what_it_is(write: Write):
    path = write(model__n_layer=REMOVED)
    assert str(refused(path)) == (
        f"{path}: model.n_layer is missing; add it as in docs/parameters.md: Transformer blocks."
    )
    assert refused(write(train=REMOVED)).parameters == ["train"]


@pytest.mark.parametrize("weight", ["-0.1", "1000.5", ".inf", ".nan", "'2'", "true", "null", "[2]"])
def test_a_weight_is_a_number_within_bounds(tmp_path: Path, weight: str):
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    path = tmp_path / "params.yaml"
    path.write_text(text.replace("  mixture:\n", f"  mixture: {{web: 2, chats: {weight}}}\n"))
    assert refused(path).parameters == ["data.mixture.chats"]
    path.write_text(text.replace("  mixture:\n", "  mixture: {web: 0.5, chats: 1000, books: 0}\n"))
    assert check_all(path).data.mixture == {"web": 0.5, "chats": 1000, "books": 0}


def test_a_source_with_a_number_as_its_name_needs_quotes(tmp_path: Path):
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    path = tmp_path / "params.yaml"
    path.write_text(text.replace("  mixture:\n", "  mixture: {2024: 0.5}\n"))
    error = refused(path)
    assert error.parameters == ["data.mixture"]
    assert "2024" in str(error)
    path.write_text(text.replace("  mixture:\n", "  mixture: {'2024': 0.5}\n"))
    assert check_all(path).data.mixture == {"2024": 0.5}


def test_names_of_a_mixture_are_compared_with_the_text(write: Write, tmp_path: Path):
    """Before the text is cleaned, where it is there."""
    for name in ("chats/a.txt", "web/deep/b.txt", "c.md"):
        (tmp_path / "raw" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "raw" / name).write_text("text")
    raw = {"data__raw": str(tmp_path / "raw")}
    right = write(**raw, data__mixture={"chats": 2, "web": 0, "c.md": 1})
    assert refused_by_a_stage(right) == []
    for name in ("books", "web/deep", "a.txt", ""):
        params = check_all(write(**raw, data__mixture={name: 2}))
        ((parameter, sentence),) = problems_of_stages(params, tmp_path)
        assert parameter == "data.mixture"
        assert "are c.md, chats, web" in sentence
    params = check_all(write(**raw, data__mixture={"chats": 0, "web": 0, "c.md": 0}))
    ((parameter, sentence),) = problems_of_stages(params, tmp_path)
    assert parameter == "data.mixture"
    assert "weight 0" in sentence
    (tmp_path / "raw/books-val").mkdir()
    (tmp_path / "raw/books-val/a.txt").write_text("text")
    held_out = {"chats": 0, "web": 0, "c.md": 0, "books-val": 2}
    assert refused_by_a_stage(write(**raw, data__mixture=held_out)) == ["data.mixture"]


@pytest.mark.parametrize("weight", [1, 2])
def test_names_are_compared_with_what_dvc_makes_or_tracks(
    write: Write, tmp_path: Path, weight: float
):
    """A built-in text, of which there need be no file yet; and one that `dvc add` tracks, once DVC
    has fetched it."""
    for split, refused in (("auto", ["data.mixture"]), ("hash", [])):
        held_out = {"validation.jsonl": weight}
        path = write(data__mixture=held_out, tokenize__split=split)
        assert refused_by_a_stage(path) == refused, "it is no source of the training text"
    assert refused_by_a_stage(write(data__mixture={"train.jsonl": weight})) == []
    (tmp_path / "raw.dvc").touch()
    tracked = {"data__raw": str(tmp_path / "raw"), "data__mixture": {"train.json": weight}}
    assert refused_by_a_stage(write(**tracked)) == []
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/train.jsonl").write_text('{"text": "a"}')
    for values in (tracked, {"data__mixture": tracked["data__mixture"]}):
        ((parameter, sentence),) = problems_of_stages(check_all(write(**values)), tmp_path)
        assert parameter == "data.mixture"
        assert "data.mixture.train.json is no source" in sentence


@pytest.mark.parametrize("written", ["6e-4", "6.0e-4", "0.0006", "6E-04"])
def test_exponents_are_numbers_as_dvc_reads_them(tmp_path: Path, written: str):
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    before = f"learning_rate: {read_line(text, 'learning_rate')}"
    assert before in text
    path = tmp_path / "params.yaml"
    path.write_text(text.replace(before, f"learning_rate: {written}"), encoding="utf-8")
    assert check_all(path).train.learning_rate == 0.0006


@pytest.mark.parametrize("text", ["model:\t1", "model: {a: 1}\x85train: 2"])
def test_what_dvc_takes_for_a_space_or_a_line_is_one(tmp_path: Path, text: str):
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    assert read_yaml(path) == load_yaml(str(path))


def test_a_version_of_yaml_changes_no_value(tmp_path: Path):
    path = tmp_path / "params.yaml"
    path.write_text("%YAML 1.1\n---\nmodel:\n  n_layer: 010\ntrain: yes\n")
    assert read_yaml(path) == {"model": {"n_layer": 10}, "train": "yes"}
    assert read_yaml(path) == load_yaml(str(path)), "what DVC reads and records"


def read_line(text: str, key: str) -> str:
    return next(
        line.split(":", 1)[1].strip()
        for line in text.splitlines()
        if line.strip().startswith(f"{key}:")
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("train.epochs", True),
        ("train.epochs", 4.5),
        ("train.epochs", 10**6 + 1),
        ("train.gradient_clip", 1e16),
        ("train.weight_decay", 1e16),
        ("tokenizer.vocab_size", 10**9),
        ("train.learning_rate", "6e-4"),
        ("train.learning_rate", 0),
        ("train.learning_rate", True),
        ("train.seed", -1),
        ("train.seed", 2**32),
        ("model.dropout", 1.0),
        ("runtime.processes", "two"),
        ("runtime.micro_batch_size", True),
        ("runtime.micro_batch_size", 0),
        ("runtime.checkpoint.keep", 1),
        ("data.mixture", [1]),
        ("finetune.lora.rank", 0),
        ("finetune.lora.alpha", 0),
        ("finetune.lora.targets", []),
        ("finetune.lora.targets", "up"),
    ],
)
def test_wrong_value_is_refused_by_its_name(write: Write, name: str, value: object):
    error = refused(write(**{name.replace(".", "__"): value}))
    assert error.parameters == [name]
    assert f"{name} ({value!r}) must be " in str(error)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("train.learning_rate", 0, "must be 'auto' or a number greater than 0."),
        ("runtime.micro_batch_size", 0, "must be 'auto' or an integer greater than or equal to 1."),
    ],
)
def test_choice_or_number_says_both(write: Write, name: str, value: object, expected: str):
    assert str(refused(write(**{name.replace(".", "__"): value}))).endswith(expected)


@pytest.mark.parametrize("prompt", [{"expect": "x"}, {"user": "a", "text": "b"}])
def test_prompt_is_either_user_or_text(write: Write, prompt: dict[str, str]):
    error = refused(write(evaluate__prompts=[prompt]))
    assert error.parameters == ["evaluate.prompts.0"]
    assert "needs either `user` or `text`, and not both" in str(error)


def test_bpe_vocabulary_holds_every_byte(write: Write):
    error = refused(write(tokenizer__vocab_size=261, tokenizer__type="bpe"))
    assert error.parameters == ["tokenizer"]
    assert "tokenizer.vocab_size (261) must be at least 262" in str(error)
    check_all(write(tokenizer__vocab_size=256, tokenizer__type="char"))


@pytest.mark.parametrize(("heads", "nearest"), [(3, 2), (5, 4), (12, 8), (100, 128)])
def test_heads_must_divide_the_width(write: Write, heads: int, nearest: int):
    error = refused(write(model__n_head=heads, model__n_embd=128, model__architecture="gpt2"))
    assert error.parameters == ["model"]
    assert f"model.n_head ({heads}) must divide model.n_embd (128); try n_head={nearest}." in str(
        error
    )
    check_all(write(model__n_head=nearest, model__n_embd=128, model__architecture="gpt2"))


def test_rotary_positions_need_pairs_of_features(write: Write):
    odd = {"model__n_head": 4, "model__n_embd": 12}
    error = refused(write(**odd, model__architecture="modern"))
    assert error.parameters == ["model"]
    assert "model.n_embd / model.n_head (12 / 4 = 3) must be even" in str(error)
    check_all(write(**odd, model__architecture="gpt2"))


@pytest.mark.parametrize("heads", [1, 2, 43])
def test_the_way_out_of_an_odd_width_is_a_width(write: Write, heads: int):
    error = refused(write(model__n_head=heads, model__n_embd=129, model__architecture="modern"))
    assert "model.n_embd (129) must be even" in str(error)
    assert "try n_embd=130 or" in str(error)
    check_all(write(model__n_head=1, model__n_embd=130, model__architecture="modern"))


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\n"
        + "".join(
            f"{b}: &{b} [*{a}, *{a}]\n" for a, b in itertools.pairwise("abcdefghijklmnopqrstu")
        ),
        "model: &model [*model]",
        f"model: {'9' * 10_000}",
        "train: 2020-13-45",
        "- " * 200_000,
    ],
    ids=["laughs", "itself", "a long number", "an impossible date", "a depth that ends C"],
)
def test_yaml_that_cannot_be_held_is_refused(tmp_path: Path, text: str):
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(UserError, match=r"params\.yaml"):
        read_yaml(tmp_path / "params.yaml")


@pytest.mark.parametrize("opening", ["[\n", "{a: ", "- "])
def test_deep_yaml_does_not_fill_a_small_stack(opening: str):
    """C has no bound of its own, and a thread on macOS has a stack of 512 KiB."""
    before = threading.stack_size(1 << 19)
    try:
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(parse_yaml, (opening * 9_000).encode(), "params.yaml")
    finally:
        threading.stack_size(before)
    assert isinstance(reading.exception(), UserError)


def test_dvc_sets_lists_and_empties_them_again(tmp_path: Path):
    path = Path(shutil.copy(ROOT / "params.yaml", tmp_path))
    before = read_yaml(path)
    for name, value, none in (
        ("clean.mask", "[email, card]", "[]"),
        ("clean.filters.languages", "[en]", "null"),
        ("finetune.methods", "[lora]", "[]"),
        ("finetune.lora.targets", "[up, down]", "all"),
        ("evaluate.prompts", "[{text: a}]", "auto"),
        # ruamel.yaml 0.19: no YAML if a list with a comment becomes `[]`
        ("evaluate.prompts", "[]", "auto"),
        ("clean.columns", "[a, b]", "null"),
        ("data.mixture", "{chats: 2, web: 0.5}", "null"),
    ):
        apply_overrides(path, [f"{name}={value}"])
        assert read_yaml(path) != before
        apply_overrides(path, [f"{name}={none}"])
        assert read_yaml(path) == before
    apply_overrides(path, ["data.mixture={chats: 2, web: 0.5}"])
    apply_overrides(path, ["data.mixture.chats=3"])
    assert read_yaml(path)["data"]["mixture"] == {"chats": 3, "web": 0.5}
    apply_overrides(path, ["data.mixture=null", "data.mixture={books: 2}"])
    assert read_yaml(path)["data"]["mixture"] == {"books": 2}


def test_stage_reads_only_its_own_sections(write: Write):
    class View(Section):
        model: ModelSection

    path = write(train__epochs="four")
    assert load(View, path).model == ModelSection.model_validate(read_yaml(path)["model"])
    with pytest.raises(ParamsError) as error:
        load(View, write(model__n_layer=0))
    assert error.value.parameters == ["model.n_layer"]


def test_each_reader_of_runtime_reads_its_part(write: Write):
    class View(Section):
        runtime: ExecutorParams

    path = write(
        runtime__data_engine="ray", runtime__ray_address="head:6379", runtime__device="tpu"
    )
    assert load(View, path).runtime == ExecutorParams(
        data_engine="ray", ray_address="head:6379", store=None
    )


@pytest.mark.parametrize("name", ["runtime__store", "runtime__checkpoint__mirror"])
@pytest.mark.parametrize(
    ("value", "is_right"),
    [
        ("s3://bucket/prefix", True),
        ("/mnt/drive", True),
        ("~/drive", True),
        ("sftp://ada@host/srv", True),
        ("drive", False),
        ("~nobody-of-this-name/drive", False),
        ("/mnt/\0", False),
        ("sftp://ada:rosebud@host/srv", False),
        ("https://host/bucket?sig=rosebud", False),
        ("simplecache::s3://bucket/prefix", False),
    ],
)
def test_a_place_that_machines_share_holds_no_secret(
    write: Write, name: str, value: str, is_right: bool
):
    if is_right:
        check_all(write(**{name: value}))
        return
    with pytest.raises(ParamsError) as error:
        check_all(write(**{name: value}))
    assert error.value.parameters == [name.replace("__", ".")]
    assert "rosebud" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "is_right"),
    [
        ("s3://bucket", True),
        ("s3://bucket/prefix/", True),
        ("texts", True),
        ("texts\0", False),
        ("s3://", False),
        ("gs://bucket/prefix", False),
        ("hf://datasets/ada/books", False),
        ("s3://key:rosebud@bucket/prefix", False),
        ("s3://bucket/prefix?sig=rosebud", False),
        ("simplecache::s3://bucket/prefix", False),
    ],
)
def test_raw_text_is_a_path_or_in_s3(write: Write, value: str, is_right: bool):
    if is_right:
        check_all(write(data__raw=value))
        return
    with pytest.raises(ParamsError) as error:
        check_all(write(data__raw=value))
    assert error.value.parameters == ["data.raw"]
    assert "rosebud" not in str(error.value)


def test_a_path_with_nul_is_refused(write: Write):
    with pytest.raises(ParamsError) as error:
        check_all(write(finetune__data="/chats\0"))
    assert error.value.parameters == ["finetune.data"]


def test_sections_are_frozen(write: Write):
    params = check_all(write())
    with pytest.raises(ValueError, match="frozen"):
        params.train.epochs = 5


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "is missing in "),
        (b"model: [1, 2\ntrain: {", "is not valid YAML: "),
        (b"model: {}\nmodel: {}\n", "is not valid YAML: "),
        (b"model: !!bool maybe\n", "is not valid YAML: "),
        (b"model: !!int ''\n", "is not valid YAML: "),
        (b"model: !!float ''\n", "is not valid YAML: "),
        (
            b"model: {}\n<<<<<<< HEAD\ntrain: {}\n",
            "holds the marks of an unfinished merge (line 2)",
        ),
        (b"%YAML 1.3\n---\nmodel: {}\n", "is not valid YAML: "),
        (b"model: {0x" + 5000 * b"f" + b": 1}\n", "is not valid YAML: "),
        (b"- model\n- train\n", "must hold `model:`, `train:` "),
        (b"", "must hold `model:`, `train:` at the beginning of a line; it is empty."),
        (b"3", "must hold `model:`, `train:` at the beginning of a line; it is a single value."),
        ("größe: 1".encode("latin-1"), "is not UTF-8 text"),
    ],
)
def test_file_must_be_there_and_be_yaml(content: bytes | None, problem: str, tmp_path: Path):
    path = tmp_path / "params.yaml"
    if content is not None:
        path.write_bytes(content)
    assert unreadable(path).startswith(f"{path} {problem}")


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        (b"model:\n\tn_layer: 12\n", 2, "'\\t'"),
        (b"model:\n  n_layer: 12\n  n_head: 1\n  n_layer: 6\n", 4, '"n_layer"'),
        (b"model: {}\ntrain:\n  betas: [1\nmodel: {}\n", 4, "':'"),
        (b"model: 'modern\n", 2, "end of stream"),
        (b"model: {}\ntrain: \0\n", 2, "U+0000"),
        ("größe: 1\n".encode() * 5000 + b"train: \x0b\n", 5001, "U+000B"),
    ],
)
def test_what_is_no_yaml_is_named_with_its_line(
    content: bytes, line: int, what: str, tmp_path: Path
):
    path = tmp_path / "params.yaml"
    path.write_bytes(content)
    said = unreadable(path)
    assert f"(line {line}); " in said
    assert what in said
    assert "unicode string" not in said
    assert "http" not in said


@pytest.mark.parametrize("name", ["? - a: 1\n", "[{a: 1}]", "{a: 1}"])
def test_a_name_that_is_a_list_or_section_is_no_yaml(name: str, tmp_path: Path):
    path = tmp_path / "params.yaml"
    path.write_text(f"{name}: 1\n")
    assert unreadable(path).startswith(f"{path} is not valid YAML: ")


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
                "store",
                "token_placement",
            },
        ),
        (
            RuntimeParams.model_fields["checkpoint"].annotation,
            {"every_seconds", "every_steps", "keep", "keep_runs", "mirror"},
        ),
    ],
)
def test_runtime_holds_only_what_changes_speed(section: type[Section], keys: set[str]):
    """A new key here must not change what comes out: no stage depends on `runtime`."""
    assert set(section.model_fields) == keys


def test_every_parameter_is_described_and_has_no_default():
    def check(section: type[Section], name: str) -> None:
        descriptions = section.descriptions()
        for key, field in section.model_fields.items():
            annotation = field.annotation
            if isinstance(annotation, type) and issubclass(annotation, Section):
                check(annotation, f"{name}{key}.")
            else:
                assert descriptions[key], f"{name}{key}"
                assert field.is_required(), f"{name}{key}"

    check(AllParams, "")
    assert TrainParams.descriptions()["epochs"]


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "stages").glob("[a-z]*.py")))
def test_every_stage_reads_the_projects_params(name: str):
    stage = importlib.import_module(f"stages.{name}")
    if hasattr(stage, "Params"):
        assert load(stage.Params, ROOT / "params.yaml")


def test_model_to_start_from_has_these_sizes(write: Write, tmp_path: Path):
    sizes = {
        "architecture": "gpt2",
        "n_layer": 3,
        "n_head": 2,
        "n_embd": 8,
        "context_length": 16,
        "dropout": 0.0,
    }
    write_json(tmp_path / "start/config.json", {"tokenmill": sizes | {"vocab_size": 300}})
    own = {f"model__{name}": value for name, value in sizes.items()} | {
        "model__start_from": str(tmp_path / "start")
    }
    check_all(write(**own | {"model__dropout": 0.5}))
    error = refused(write(**own | {"model__n_layer": 4, "model__n_embd": 16}))
    assert error.parameters == ["model.n_layer", "model.n_embd"]
    assert refused(write(model__start_from="nowhere")).parameters == ["model.start_from"]


def test_an_old_speedrun_model_to_start_from_is_refused(write: Write, tmp_path: Path):
    """Saved before its attention was sharper, when config.json had no such field."""
    own = read_yaml(ROOT / "params.yaml")["model"] | {"architecture": "speedrun"}
    own.pop("start_from")
    content = {"tokenmill": own | {"vocab_size": 300}, "attention_scale": 1.5}
    path = write(model__architecture="speedrun", model__start_from=str(tmp_path / "start"))
    write_json(tmp_path / "start/config.json", content)
    check_all(path)
    del content["attention_scale"]
    write_json(tmp_path / "start/config.json", content)
    assert "attention_scale 1.0" in unreadable(path)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"tokenize__val_fraction": 0.4},
        {"sample__seed": 9},
        "more text",
        "no lock",
        "another start",
    ],
)
def test_longer_context_than_the_last_text_is_refused(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any
):
    """Unless something else changes too, by which the text may become longer. DVC may write
    dvc.lock anew at any time."""
    today = read_yaml(ROOT / "params.yaml")
    raw = tmp_path / today["data"]["raw"]
    raw.mkdir(parents=True)
    lock = read_yaml(ROOT / "dvc.lock")
    size = next(
        dep["size"] for dep in lock["stages"]["clean"]["deps"] if dep["path"].startswith("data/raw")
    )
    with (raw / "text.txt").open("wb") as file:
        file.truncate(size + (change == "more text"))
    # A parameter may be newer than the committed lock
    for stage, names in BEFORE_TRAINING.items():
        lock["stages"][stage]["params"]["params.yaml"] = {
            name: today["data"]["encoding"] if name == "data.encoding" else today[name]
            for name in names
        }
    if change == "another start":
        deps = lock["stages"]["tokenizer"]["deps"]
        (start,) = (dep for dep in deps if dep["path"] == today["model"]["start_from"])
        start["path"] = "models/start/gpt2"
    if change != "no lock":
        (tmp_path / "dvc.lock").write_text(json.dumps(lock))
    shutil.copytree(ROOT / "metrics", tmp_path / "metrics")
    path = write(model__context_length=10**6, **(change if isinstance(change, dict) else {}))
    read = Lock.read

    def read_and_change(root: Path) -> Lock:
        lock = read(root)
        (root / "dvc.lock").write_text("{}")
        return lock

    monkeypatch.setattr(Lock, "read", read_and_change)
    if change == {}:
        assert refused(path).parameters == ["model.context_length"]
    else:
        check_all(path)


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    """The project's params.yaml, committed in a repository of its own."""
    path = tmp_path / "params.yaml"
    shutil.copyfile(ROOT / "params.yaml", path)
    git.execute(tmp_path, "init", "-q", "--template=")
    commit(path)
    return path


def commit(path: Path) -> None:
    git.execute(path.parent, "add", path.name)
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    git.execute(path.parent, *who, "commit", "-q", "-m", "state")


def commands(sentence: str) -> list[str]:
    return sentence.split("`")[1::2]


def test_a_refusal_names_the_command_that_takes_its_value_back(committed: Path) -> None:
    apply_overrides(committed, ["model.n_layer=twelve"])
    with pytest.raises(UserError) as error, with_way_back(committed):
        check_all(committed)
    assert commands(str(error.value)) == [f"git checkout {committed}"]
    git.execute(committed.parent, "checkout", str(committed))
    with with_way_back(committed):
        check_all(committed)


@pytest.mark.parametrize("added", ["data.mixture={chats: 2, web: 0.5}", "+model.layers=3"])
def test_what_was_not_there_before_is_taken_back(committed: Path, added: str) -> None:
    apply_overrides(committed, [added])
    name = added.removeprefix("+").partition("=")[0]
    assert commands(way_back([name], committed)) == [f"git checkout {committed}"]


@pytest.mark.parametrize(
    "edit", [["train.seed=7"], ["finetune.data=null", "train.seed=7", "clean.mask=[email]"]]
)
def test_other_edits_stay_when_a_refused_value_is_taken_back(
    committed: Path, edit: list[str]
) -> None:
    before = read_yaml(committed)
    apply_overrides(committed, edit)
    edited = read_yaml(committed)
    apply_overrides(
        committed,
        ["model.n_layer=twelve", "data.raw=/nope", "model.architecture=gpt", "clean.max_chars=x"],
    )
    names = ["model.n_layer", "data.raw", "model.architecture", "clean.max_chars"]
    (command,) = commands(way_back(names, committed))
    assert command.startswith("dvc exp run -S ")
    apply_overrides(committed, shlex.split(command)[4::2])
    assert read_yaml(committed) == edited != before


@pytest.mark.parametrize(
    "prompts",
    [
        [],
        [{"user": 'Wer grüßt "so"?', "expect": "\\d+\\", "mark": True}, {"text": "it's, {a: [b]}"}],
        [{"user": "true", "expect": None}, {"user": "null = 1e3\n", "mark": 1e-05}],
    ],
)
def test_a_list_of_prompts_is_taken_back(committed: Path, prompts: list[dict[str, Any]]) -> None:
    content = read_yaml(committed)
    content["evaluate"]["prompts"] = prompts
    write_json(committed, content)
    commit(committed)
    apply_overrides(committed, ["evaluate.prompts=3", "train.seed=7"])
    (command,) = commands(way_back(["evaluate.prompts"], committed))
    apply_overrides(committed, shlex.split(command)[4::2])
    assert read_yaml(committed)["evaluate"]["prompts"] == prompts


def test_a_comment_of_the_user_stays_too(committed: Path) -> None:
    apply_overrides(committed, ["model.n_layer=twelve"])
    committed.write_text(committed.read_text() + "# mine\n")
    assert commands(way_back(["model.n_layer"], committed)) == ["dvc exp run -S model.n_layer=4"]


def test_no_way_back_to_the_same_value_or_to_nothing(committed: Path, write: Write) -> None:
    assert way_back(["model.n_layer"], committed) == ""
    apply_overrides(committed, ["+model.layers=3", "train.seed=7"])
    assert way_back(["model.layers"], committed) == ""
    shutil.rmtree(committed.parent / ".git")
    assert way_back(["model.n_layer"], write(model__n_layer="twelve")) == ""
