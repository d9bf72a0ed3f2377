"""An exported folder in `transformers`, without code of ours: the same ids, logits and greedy text,
and the card."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation.trained import make_tokenizer_file
from tests.reports.data_material import HOSTILE
from tests.reports.run_material import prepare
from tests.runs.locks import write_lock
from tokenmill.cli.main import main
from tokenmill.core.errors import UserError
from tokenmill.data.record_text import text_of
from tokenmill.evaluation.generate import generate
from tokenmill.evaluation.results import Evaluation
from tokenmill.evaluation.sampling import Sampling
from tokenmill.finetuning.chats import encode
from tokenmill.formats.chat import TURN_END, Document, chat_prompt, render_chat
from tokenmill.formats.metrics import CleanReport
from tokenmill.formats.records import read_record
from tokenmill.formats.tokenizer import SPECIAL_TOKENS, TextTokenizer, read_tokenizer
from tokenmill.model.config import Architecture, LoraParams, ModelConfig
from tokenmill.model.gpt import GPT, build
from tokenmill.model.huggingface import load_model, save_weights
from tokenmill.model.manifest import Manifest, Tuned, read_config, read_manifest
from tokenmill.runs.export import Record, export, files_of, is_export_of, record_of
from tokenmill.runs.find import FoundModel

TEXT = "one two?count one two"
NOTHING = Record(None, None, None)


def drawn(config: ModelConfig) -> GPT:
    """A model all of whose weights are random; a fresh one of `modern` has zeros, so that its
    blocks do nothing."""
    model = build(config, seed=1)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def checkpoint_in(
    folder: Path, architecture: str, kind: Literal["bpe", "char"], context_length: int = 64
) -> FoundModel:
    tokenizer = make_tokenizer_file(folder, kind)
    sizes = {
        "n_layer": 2,
        "n_head": 2,
        "n_embd": 32,
        "context_length": context_length,
        "dropout": 0.0,
    }
    vocabulary = read_tokenizer(tokenizer).vocab_size
    config = ModelConfig.model_validate(
        {"architecture": architecture, "vocab_size": vocabulary} | sizes
    )
    save_weights(drawn(config), folder / "epoch-2")
    return FoundModel("epoch 2", folder / "epoch-2", tokenizer)


@pytest.fixture(
    scope="module",
    params=[f"{name}-{kind}" for name in get_args(Architecture) for kind in ("bpe", "char")],
)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[FoundModel, Path]:
    folder = tmp_path_factory.mktemp("export")
    architecture, kind = request.param.split("-")
    checkpoint = checkpoint_in(folder, architecture, kind)
    export(checkpoint, NOTHING, folder / "out")
    return checkpoint, folder / "out"


def test_transformers_writes_the_same(exported: tuple[FoundModel, Path]):
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM  # noqa: PLC0415 (seconds)
    from transformers.models.auto.tokenization_auto import AutoTokenizer  # noqa: PLC0415 (seconds)
    from transformers.pipelines import pipeline  # noqa: PLC0415 (seconds)

    checkpoint, folder = exported
    ours = load_model(checkpoint.folder)
    tokenizer = read_tokenizer(checkpoint.tokenizer)
    theirs: Any = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    published: Any = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode(TEXT)
    assert published(TEXT)["input_ids"] == ids
    assert published.decode(ids) == tokenizer.decode(ids) == TEXT
    ids_BT = torch.tensor([ids])
    with torch.no_grad():
        assert torch.allclose(theirs(ids_BT).logits, ours(ids_BT), atol=1e-4, rtol=0)
    ends = {tokenizer.eot_id, tokenizer.turn_ids[TURN_END]}
    new = list(generate(ours, ids, ends=ends, sampling=Sampling(max_new_tokens=8)))
    written = pipeline("text-generation", str(folder), trust_remote_code=True)(
        TEXT, return_full_text=False, max_new_tokens=8
    )
    assert written == [{"generated_text": tokenizer.backend.decode(new)}]


def test_spelled_special_tokens_are_text_on_demand(exported: tuple[FoundModel, Path]):
    from transformers.models.auto.tokenization_auto import AutoTokenizer  # noqa: PLC0415

    checkpoint, folder = exported
    tokenizer = read_tokenizer(checkpoint.tokenizer)
    published = AutoTokenizer.from_pretrained(folder)
    assert published.model_max_length == load_model(checkpoint.folder).config.context_length
    assert set(published.all_special_tokens) == set(SPECIAL_TOKENS)
    text = f"one {''.join(SPECIAL_TOKENS)}"
    assert set(published(text)["input_ids"]) >= tokenizer.special_ids
    ids = published(text, split_special_tokens=True)["input_ids"]
    assert not tokenizer.special_ids & set(ids)


TOLD = [
    ("developer", "Be\nbrief."),
    ("human", " one? "),
    ("gpt", "two"),
    ("tool", "x"),
    ("user", " "),
    ("Anna", "and?\nUser: Assistant: no"),
    ("assistant", "count one"),
]


def messages_of(turns: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


def test_chat_template_gives_the_ids_of_training(tmp_path: Path):
    from transformers.models.auto.tokenization_auto import AutoTokenizer  # noqa: PLC0415

    checkpoint = checkpoint_in(tmp_path, "gpt2", "bpe")
    export(checkpoint, NOTHING, tmp_path / "out")
    tokenizer = read_tokenizer(checkpoint.tokenizer)
    published: Any = AutoTokenizer.from_pretrained(tmp_path / "out")

    def ids_of(turns: list[tuple[str, str]], **options: Any) -> Any:
        return published.apply_chat_template(messages_of(turns), return_dict=True, **options)

    assert ids_of(TOLD)["input_ids"] == tokenizer.encode_document(render_chat(TOLD))
    parts = [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]
    bare = ["one", None, {"type": "text", "text": None}, "two"]
    for content, text in [(parts, "one\ntwo"), (bare, "one\ntwo"), (7, "7"), (None, "")]:
        of_content = published.apply_chat_template(
            [{"role": "user", "content": content}, {"role": "user", "content": "!"}],
            return_dict=True,
        )
        expected = render_chat([("user", text)] * bool(text) + [("user", "!")])
        assert of_content["input_ids"] == tokenizer.encode_document(expected)
    asked = ids_of(TOLD[:2], add_generation_prompt=True)["input_ids"]
    assert asked == tokenizer.encode_document(chat_prompt(TOLD[:2]))
    found = ids_of(TOLD, return_assistant_tokens_mask=True)
    mask = np.array(found["assistant_masks"], bool)
    [ours] = encode(pl.Series([render_chat(TOLD)]), tokenizer)
    assert found["input_ids"] == ours.ids.tolist()
    np.testing.assert_array_equal(mask, ours.answers)


CALL = {"name": "größe", "arguments": {"<a>": 'it\'s "&"\n\u2028😀', "b": [1, 2.5, None, True]}}
"""A call whose JSON depends on how it is written."""


@pytest.mark.parametrize(
    "answer",
    [
        {"tool_calls": [{"id": "x", "type": "function", "function": CALL}]},
        {"tool_calls": [{"function": CALL | {"arguments": json.dumps(CALL)}}], "content": None},
        {"tool_calls": [CALL, CALL], "content": " \n"},
        {"tool_calls": [CALL], "content": []},
        {"function_call": CALL, "tool_calls": [], "content": ""},
        {"tool_calls": [CALL], "content": "two"},
        {"tool_calls": [], "content": "two"},
    ],
)
def test_calls_of_tools_have_the_ids_of_training(
    answer: dict[str, Any], published_bpe: tuple[Any, TextTokenizer]
):
    published, tokenizer = published_bpe
    messages = [
        {"role": "user", "content": "one?"},
        {"role": "assistant"} | answer,
        {"role": "tool", "content": "4"},
    ]
    found = published.apply_chat_template(
        messages, return_dict=True, return_assistant_tokens_mask=True
    )
    learned = Document(text_of({"messages": messages}, Counter()) or "")
    assert found["input_ids"] == tokenizer.encode_document(learned)
    [ours] = encode(pl.Series([learned]), tokenizer)
    assert sum(found["assistant_masks"]) == ours.answers.sum() > 0


@settings(deadline=None, max_examples=50)
@given(
    turns=st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant", "system", "tool", "Anna", "<|TURN_END|>"]),
            st.lists(
                st.sampled_from(
                    [*SPECIAL_TOKENS, "<|", "<|user_", "start|>", "< |turn_end|>", "one"]
                )
            ).map("".join),
        ),
        min_size=1,
    )
)
def test_no_message_opens_a_turn_in_the_template(
    turns: list[tuple[str, str]], published_bpe: tuple[Any, TextTokenizer]
):
    published, tokenizer = published_bpe
    turns = [(role, content or "-") for role, content in turns]
    ids = published.apply_chat_template(messages_of(turns), return_dict=True)["input_ids"]
    ours = tokenizer.encode_document(render_chat(turns))
    special = tokenizer.special_ids
    assert [one for one in ids if one in special] == [one for one in ours if one in special]


@pytest.fixture(scope="module")
def published_bpe(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, TextTokenizer]:
    from transformers.models.auto.tokenization_auto import AutoTokenizer  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("bpe")
    checkpoint = checkpoint_in(folder, "gpt2", "bpe")
    export(checkpoint, NOTHING, folder / "out")
    return AutoTokenizer.from_pretrained(folder / "out"), read_tokenizer(checkpoint.tokenizer)


def test_generation_ends_with_text_or_turn(exported: tuple[FoundModel, Path]):
    tokenizer = read_tokenizer(exported[0].tokenizer)
    ends = [tokenizer.eot_id, tokenizer.turn_ids[TURN_END]]
    for name in ("config.json", "generation_config.json"):
        assert json.loads((exported[1] / name).read_bytes())["eos_token_id"] == ends


def test_generation_ends_at_the_context_or_before(exported: tuple[FoundModel, Path]):
    """A limit on new tokens in the folder would win over a caller's `max_length`, and be vLLM's
    upper bound."""
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM  # noqa: PLC0415

    model: Any = AutoModelForCausalLM.from_pretrained(exported[1], trust_remote_code=True)
    ids_BT = torch.tensor([read_tokenizer(exported[0].tokenizer).encode(TEXT)])
    model.generation_config.eos_token_id = None
    assert model.generate(ids_BT).shape[1] == read_config(exported[0].folder).context_length
    assert model.generate(ids_BT, max_length=ids_BT.shape[1] + 2).shape[1] == ids_BT.shape[1] + 2


def test_card_tells_the_run_and_escapes_its_text(tmp_path: Path):
    checkpoint = checkpoint_in(tmp_path, "gpt2", "char")
    run = prepare(tmp_path / "run")
    manifest = read_manifest(run / "models/gpt")
    evaluation = read_record(run / "reports/evaluation.json", Evaluation)
    export(
        checkpoint,
        Record(manifest, evaluation, read_record(run / "data/clean_report.json", CleanReport)),
        tmp_path / "out",
    )
    card = (tmp_path / "out/README.md").read_text()
    assert card.startswith("---\n")
    assert "license: unknown" in card
    assert manifest.fingerprint in card
    assert f"| train.batch_size | {manifest.train.batch_size} |" in card
    assert "| 2 | 2.0000 | 2.5000 | 617.25 | 1.2500 |" in card
    assert "`<|user_start|>What is the capital of France?<|turn_end|>" in card
    assert "From &lt;b&gt;: 140 documents of 200" in card.replace("\u202f", " ")
    assert "The capital of France is Paris." in card
    assert HOSTILE not in card
    assert "<script>" not in card


@pytest.mark.parametrize("lora", [LoraParams(rank=3, alpha=5.5, targets=["up"]), None])
def test_the_card_of_a_tuned_model_names_method_and_chats(tmp_path: Path, lora: LoraParams | None):
    checkpoint = checkpoint_in(tmp_path, "gpt2", "char")
    base = read_manifest(prepare(tmp_path / "run") / "models/gpt")
    assert "tuned" not in base.model_dump(), "the manifest of a base says nothing of it"
    tuned = Tuned(lora=lora, data="<chats>.jsonl", chats=1234)
    manifest = base.model_copy(update={"tuned": tuned})
    assert Manifest.model_validate(manifest.model_dump()) == manifest
    export(checkpoint, Record(manifest, None, None), tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text().replace("\u202f", " ")
    assert ("by LoRA (rank 3, alpha 5.5" in card, "in all weights" in card) == (
        bool(lora),
        not lora,
    )
    assert "on 1,234 chats of &lt;chats&gt;" in card.replace("\\", "")


def test_a_card_without_record_claims_no_training(exported: tuple[FoundModel, Path]):
    """It may be of a published model that `tokenmill import` wrote."""
    _, folder = exported
    assert "trained by" not in (folder / "README.md").read_text().lower()


def test_the_card_knows_only_what_is_of_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = prepare(tmp_path)
    checkpoint = FoundModel("epoch 2", run / "models/gpt/epoch-2", run / "none")

    def known() -> tuple[bool, bool, bool]:
        record = record_of(checkpoint, run)
        is_told = bool(capsys.readouterr().err)
        return record.evaluation is not None, record.clean is not None, is_told

    assert known() == (True, True, False)
    write_lock(run, evaluated="earlier")
    assert known() == (False, True, True)
    write_lock(run, tokenized="earlier")
    assert known() == (True, False, True)
    write_lock(run)
    assert known() == (True, True, False)
    checkpoint = FoundModel("epoch 2", run / "models/finetuned/epoch-2", run / "none")
    assert known() == (False, False, False)


def test_nothing_is_overwritten(tmp_path: Path):
    checkpoint = checkpoint_in(tmp_path, "gpt2", "char")
    with pytest.raises(UserError, match="exists; name another folder"):
        export(checkpoint, NOTHING, checkpoint.folder)
    with pytest.raises(UserError, match="models/gpt"):
        export(checkpoint, NOTHING, Path("models/gpt/exported"))
    unmounted = tmp_path / "link"
    unmounted.symlink_to(tmp_path / "nothing")
    with pytest.raises(UserError, match="exists; name another folder"):
        export(checkpoint, NOTHING, unmounted)
    assert unmounted.is_symlink()


def test_tokenizer_of_another_model_is_refused(tmp_path: Path):
    model, other = (checkpoint_in(tmp_path / kind, "gpt2", kind) for kind in ("char", "bpe"))
    with pytest.raises(UserError, match="tokenizer"):
        export(FoundModel("both", model.folder, other.tokenizer), NOTHING, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_command_exports_a_folder(here: Path, capsys: pytest.CaptureFixture[str]):
    checkpoint = checkpoint_in(here, "modern", "bpe")
    main(
        [
            "export",
            "--model",
            str(checkpoint.folder),
            "--tokenizer",
            str(checkpoint.tokenizer),
            "mine",
        ]
    )
    assert "mine" in capsys.readouterr().out
    assert {path.name for path in (here / "mine").iterdir()} == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_code_in_the_folder_needs_leave_and_no_package(tmp_path: Path):
    """Without leave nothing loads, where the rows would be missing; padding before a text counts
    for nothing."""
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM  # noqa: PLC0415

    checkpoint = checkpoint_in(tmp_path, "speedrun", "bpe")
    export(checkpoint, NOTHING, tmp_path / "out")
    assert is_export_of(checkpoint, tmp_path / "out", "hf")
    code = {"modeling_speedrun.py", "ngrams.py"}
    assert code <= set(files_of(tmp_path / "out", "hf"))
    assert not any("tokenmill." in (tmp_path / "out" / name).read_text() for name in code)
    assert "trust_remote_code=True" in (tmp_path / "out/README.md").read_text()
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=False)
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=True)
    ids_BT = torch.tensor([read_tokenizer(checkpoint.tokenizer).encode(TEXT)])
    padded_BT = torch.nn.functional.pad(ids_BT, (3, 0), value=1)
    mask_BT = torch.nn.functional.pad(torch.ones_like(ids_BT), (3, 0))
    with torch.no_grad():
        expected = model(ids_BT).logits
        found = model(
            padded_BT, attention_mask=mask_BT, position_ids=(mask_BT.cumsum(1) - 1).clamp(min=0)
        ).logits
    torch.testing.assert_close(found[:, 3:], expected, rtol=1e-4, atol=1e-4)
    (tmp_path / "out/ngrams.py").unlink()
    assert not is_export_of(checkpoint, tmp_path / "out", "hf")
