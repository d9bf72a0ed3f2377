"""The losses of validation documents: their sums are those of the whole, each is that of its own
tokens, and groups add up."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from tests.evaluation.test_evaluate import sections
from tests.evaluation.trained import make_tokenizer_file
from tests.tokens.clean_text import write_clean
from tests.tokens.packing import pack_here
from tests.training.tiny import merged, run
from tokenmill.core.errors import UserError
from tokenmill.evaluation import measured_documents as module
from tokenmill.evaluation.document_losses import GROUPS, Group, GroupLoss, read_documents
from tokenmill.evaluation.evaluate import evaluate
from tokenmill.evaluation.measured_documents import (
    MeasuredDocuments,
    by_group,
    write_documents,
    write_table,
)
from tokenmill.evaluation.results import Evaluation
from tokenmill.formats.chat import render_chat
from tokenmill.formats.measured import MeasuredText, measured_text
from tokenmill.formats.records import read_rows
from tokenmill.formats.token_file import SourceRun, read_metadata
from tokenmill.formats.token_row import open_tokens
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.huggingface import load_model
from tokenmill.tokens.params import TokenizeParams
from tokenmill.tokens.unpack import unpack

ENGLISH = "The cat sat on the mat and looked at the {} birds in the old garden."
GERMAN = "Die Katze saß auf der Matte und sah die {} Vögel im alten Garten an."
SOURCES = ["english/a.txt", "english/b.txt", "german/a.txt", "short.txt"]
CONTEXT = 32


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three sources in two languages, and two epochs of a model."""
    folder = tmp_path_factory.mktemp("losses")
    forms = (ENGLISH, f"{ENGLISH} Again.", GERMAN, "{}")
    texts = [form.format(number) for form in forms for number in range(40)]
    file = make_tokenizer_file(folder, "char", texts)
    sources = [source for source in SOURCES for _ in range(40)]
    clean = write_clean(folder / "clean", texts, sources=sources)
    split = TokenizeParams(split="hash", val_fraction=0.3)
    pack_here(clean, file, folder / "packed", split)
    unpack(folder / "packed", folder / "tokens")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(
            folder / "tokens",
            folder / "model",
            model=merged({}, {"context_length": CONTEXT, "n_embd": 32}),
            learning_rate=0.02,
            optimizer="adamw",
            epochs=2,
        )
    return folder


@pytest.fixture(scope="module")
def measured(made: Path) -> tuple[Evaluation, pl.DataFrame]:
    evaluation, documents = evaluate(
        models=made / "model",
        tokens=made / "tokens",
        tokenizer_file=made / "tokenizer.json",
        sections=sections(made / "raw", prompts=[], max_new_tokens=1),
    )
    return evaluation, documents.table()


def test_documents_sum_up_to_the_whole(measured: tuple[Evaluation, pl.DataFrame]) -> None:
    evaluation, documents = measured
    for result in evaluation.epochs:
        own = documents.filter(pl.col("epoch") == result.epoch)
        loss, tokens, size = own.select("loss", "tokens", "bytes").sum().row(0)
        assert loss / tokens == pytest.approx(result.val_loss, rel=1e-12)
        assert loss / math.log(2) / size == pytest.approx(result.bits_per_byte, rel=1e-12)


def test_the_loss_of_a_document_by_hand(
    made: Path, measured: tuple[Evaluation, pl.DataFrame]
) -> None:
    """Of one that begins in a sequence of the model and ends in another."""
    _, documents = measured
    last = documents.filter(pl.col("epoch") == 2)
    ids = np.append(0, np.asarray(open_tokens(made / "tokens", "val"))).astype(np.int64)
    ids[0] = ids[-1]
    stops = np.cumsum(last["tokens"].to_numpy())
    begins = stops - last["tokens"].to_numpy()
    number = int(np.flatnonzero(begins // CONTEXT != (stops - 1) // CONTEXT)[3])
    model = load_model(made / "model/epoch-2").eval()
    expected = 0.0
    for target in range(begins[number], stops[number]):
        start = target // CONTEXT * CONTEXT
        with torch.no_grad():
            logits = model(torch.from_numpy(ids[None, start : target + 1]))[0, -1].double()
        expected -= float(logits.log_softmax(-1)[ids[target + 1]])
    assert last["loss"][number] == pytest.approx(expected, rel=1e-5)


def test_groups_are_sources_and_languages(measured: tuple[Evaluation, pl.DataFrame]) -> None:
    """A folder is a source, and a number has no language."""
    _, documents = measured
    expected_names: dict[Group, set[str | None]] = {
        "source": {"english", "german", "short.txt"},
        "language": {"en", "de", None},
    }
    for group, names in expected_names.items():
        table = by_group(documents, group)
        assert len(table) == 2 * 3
        assert set(table[group].to_list()) == names
        order = [(epoch, -size) for epoch, size in table.select("epoch", "bytes").iter_rows()]
        assert order == sorted(order)
        for row in table.iter_rows(named=True):
            own = documents.filter(
                (pl.col("epoch") == row["epoch"]) & pl.col(group).eq_missing(row[group])
            )
            assert row["documents"] == len(own)
            size = sum(own["bytes"].to_list())
            assert row["bytes"] == size
            expected = sum(own["loss"].to_list()) / math.log(2) / size
            assert row["bits_per_byte"] == pytest.approx(expected)
    english = documents.filter(pl.col("source") == "english")
    assert set(english["language"].to_list()) == {"en"}


def test_the_table_comes_back(tmp_path: Path, measured: tuple[Evaluation, pl.DataFrame]) -> None:
    _, documents = measured
    hostile = documents.with_columns(source=pl.lit('a,"b"\n\u2028<b>'))
    write_documents(tmp_path / "a.csv", hostile)
    found = read_documents(tmp_path / "a.csv")
    assert found.drop("source", "loss").equals(documents.drop("source", "loss"))
    assert found["source"].unique().to_list() == ['a,"b"  <b>']
    assert found["loss"].to_list() == pytest.approx(documents["loss"].to_list(), rel=1e-5)
    untold = documents.with_columns(source=pl.lit(None, pl.String))
    write_documents(tmp_path / "a.csv", untold)
    assert read_documents(tmp_path / "a.csv").drop("loss").equals(untold.drop("loss"))


def test_groups_come_back(tmp_path: Path, measured: tuple[Evaluation, pl.DataFrame]) -> None:
    for group in GROUPS:
        table = by_group(measured[1], group)
        write_table(tmp_path / "a.csv", table)
        found = read_rows(tmp_path / "a.csv", GroupLoss)
        assert [row.name for row in found] == table[group].to_list()
        for name in ("epoch", "documents", "bytes"):
            assert [getattr(row, name) for row in found] == table[name].to_list()
        expected = pytest.approx(table["bits_per_byte"].to_list(), rel=1e-5)
        assert [row.bits_per_byte for row in found] == expected


def test_some_of_the_documents_are_measured(
    made: Path, measured: tuple[Evaluation, pl.DataFrame]
) -> None:
    """They keep number, source, language, tokens and bytes, and have the losses that are given."""
    text = measured_text(made / "tokens", "val", made / "tokenizer.json", at_most=600)
    sources = read_metadata(made / "tokens").sources("val")
    documents = MeasuredDocuments(text, read_tokenizer(made / "tokenizer.json"), sources)
    losses = np.arange(len(text.ids) - 1, dtype=np.float32)
    documents.add(losses)
    table = documents.table()
    whole = measured[1].filter(pl.col("epoch") == 1)
    assert 1 < len(table) < len(whole) // 2
    assert (table["document"] - 1).to_list() == text.numbers.tolist()
    rows = whole.filter(pl.col("document").is_in(table["document"].to_list()))
    assert table.drop("loss").equals(rows.drop("loss"))
    assert table["bytes"].sum() == text.bytes
    stops = table["tokens"].cum_sum().to_list()
    expected = [
        losses[stop - size : stop].sum() for stop, size in zip(stops, table["tokens"], strict=True)
    ]
    assert table["loss"].to_list() == pytest.approx(expected)


def test_a_conversation_has_a_language(tmp_path: Path) -> None:
    """It is that of the text between the marks of turns."""
    texts = ["Was hat die Katze im alten Garten gesehen?", GERMAN]
    chat = render_chat(zip(("user", "assistant"), texts, strict=True))
    tokenizer = read_tokenizer(make_tokenizer_file(tmp_path, "char", texts))
    ids = np.array([tokenizer.eot_id, *tokenizer.encode_document(chat), tokenizer.eot_id], "<i4")
    size = len("".join(texts).encode())
    sources = [SourceRun(source="a", documents=1, tokens=len(ids) - 1, bytes=size)]
    documents = MeasuredDocuments(MeasuredText(ids, size, np.array([0])), tokenizer, sources)
    documents.add(np.ones(len(ids) - 1, dtype=np.float32))
    (row,) = documents.table().iter_rows(named=True)
    assert (row["language"], row["bytes"], row["loss"]) == ("de", size, len(ids) - 1)


@pytest.mark.parametrize(("most", "epochs"), [(10**6, [1, 2]), (60, [2]), (1, [])])
def test_a_long_table_has_the_newest_epochs(
    most: int,
    epochs: list[int],
    tmp_path: Path,
    measured: tuple[Evaluation, pl.DataFrame],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, documents = measured
    assert 30 < len(documents) // 2 <= 60
    monkeypatch.setattr(module, "MOST_ROWS", most)
    write_documents(tmp_path / "a.csv", documents)
    found = read_documents(tmp_path / "a.csv")
    assert found["epoch"].unique(maintain_order=True).to_list() == epochs


def test_a_damaged_table_is_one_sentence(
    tmp_path: Path, measured: tuple[Evaluation, pl.DataFrame]
) -> None:
    write_table(tmp_path / "a.csv", measured[1].drop("loss"))
    with pytest.raises(UserError, match=r"a\.csv has no 0\.loss"):
        read_documents(tmp_path / "a.csv")
