"""The one dial: what is proposed for a text and a time, and that it keeps to both."""

import functools
import gzip
import io
import itertools
import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import polars as pl
import pytest

from tests.imports import ROOT
from tests.training.tiny import write_tokens
from tokenmill.cli.main import main
from tokenmill.core.errors import UserError
from tokenmill.core.params import PARAMS_FILE, read_yaml
from tokenmill.formats.chat import TURN_TOKENS
from tokenmill.hardware import HARDWARE, Hardware
from tokenmill.model import gpt as models
from tokenmill.model.config import ModelConfig
from tokenmill.planning import benchmark
from tokenmill.planning import fit as fitting
from tokenmill.planning.benchmark import TooLargeError
from tokenmill.planning.fit import (
    CHEAPEST,
    ENOUGH_STEPS,
    LADDER,
    LARGE,
    LARGEST,
    LARGEST_VOCABULARY,
    MOST_EPOCHS,
    MOST_EPOCHS_OF_LARGE,
    READ_BY_LARGER,
    Corpus,
    Fit,
    TokenizedText,
    context_for,
    epoch_seconds,
    fit,
    heads_for,
    most_epochs,
    parameters_per_token,
    predicted_loss,
    vocabulary_for,
    workload,
)
from tokenmill.planning.params_file import params_with, text_with
from tokenmill.planning.plan import gpu_timer, plan_training
from tokenmill.schema import AllParams, check_all
from tokenmill.tokens.bpe import train_reference
from tokenmill.training.schedule import Workload
from tokenmill.training.size import flops_per_token

WORDS = (
    "the",
    "old",
    "man",
    "and",
    "sea",
    "went",
    "up",
    "to",
    "a",
    "hill",
    "where",
    "many",
    "small",
    "boats",
    "lay",
)


@pytest.fixture(scope="module", autouse=True)
def outlines_are_kept() -> Iterator[None]:
    """A hundred proposals look at the same few dozen models."""
    with mock.patch.object(models, "_outline", functools.cache(models.empty_model)):
        yield


@pytest.fixture
def project(here: Path) -> Path:
    """A folder with params.yaml and a text of three files."""
    text = here / "text"
    text.mkdir()
    for number in range(3):
        lines = (" ".join(WORDS[(number + i * k) % 15] for k in range(1, 9)) for i in range(400))
        (text / f"{number}.txt").write_text("\n".join(lines))
    content = (ROOT / PARAMS_FILE).read_text().replace("raw: data/raw/sample", "raw: text")
    (here / PARAMS_FILE).write_text(content)
    return here


@pytest.fixture
def params(project: Path) -> AllParams:
    return check_all(project / PARAMS_FILE)


def corpus_of(params: AllParams, *, text_bytes: int) -> Corpus:
    """As many bytes of a text like that of the project."""
    read = Corpus.read(Path(), params)
    return Corpus(
        text_bytes=text_bytes,
        documents=text_bytes // 10_000,
        turn_tokens=0,
        median_bytes=10_000,
        sample=read.sample,
    )


def step_seconds(work: Workload) -> float:
    """A machine of 1e11 operations a second."""
    return work.tokens_per_step * flops_per_token(work.config) / 1e11


def test_a_corpus_is_read_in_its_encoding(params: AllParams, project: Path):
    text = "これは日本語の文です。\n" * 100
    (project / "text.txt").write_bytes(text.encode("iso2022_jp"))
    data = params.data.model_copy(update={"raw": "text.txt", "encoding": "iso2022_jp"})
    corpus = Corpus.read(project, params.model_copy(update={"data": data}))
    assert "".join(corpus.sample) == text


def test_a_corpus_is_known_whole_or_by_a_part(
    params: AllParams, project: Path, monkeypatch: pytest.MonkeyPatch
):
    size = sum(path.stat().st_size for path in (project / "text").iterdir())
    whole = Corpus.read(project, params)
    assert (whole.text_bytes, whole.documents) == (size, 3)
    monkeypatch.setattr(fitting, "SAMPLE_BYTES", size // 3)
    part = Corpus.read(project, params)
    assert len(part.sample) < 3
    assert (part.text_bytes, part.documents) == (pytest.approx(size, rel=0.1), 3)


def test_a_part_is_spread_over_the_text(
    params: AllParams, project: Path, monkeypatch: pytest.MonkeyPatch
):
    for letter in "abcdefgh":
        (project / f"text/{letter}.txt").write_text(letter * 1000)
    for number in range(3):
        (project / f"text/{number}.txt").unlink()
    monkeypatch.setattr(fitting, "SAMPLE_BYTES", 2000)
    assert "".join(text[0] for text in Corpus.read(project, params).sample) == "ae"


def test_a_text_without_records_is_refused_with_the_reason(tmp_path: Path, params: AllParams):
    chats = tmp_path / "chats.jsonl"
    chats.write_text("no JSON")
    data = params.data.model_copy(update={"raw": str(chats)})
    with pytest.raises(UserError, match="without JSON"):
        Corpus.read(tmp_path, params.model_copy(update={"data": data}))


@pytest.mark.parametrize("sample_bytes", [10**6, 10**4])
def test_marks_and_ends_of_documents_are_tokens(
    params: AllParams, project: Path, monkeypatch: pytest.MonkeyPatch, sample_bytes: int
):
    """400 conversations of two turns in four files, some of them long, each turn with two marks."""
    chats = project / "chats"
    chats.mkdir()
    answers = [f"Да, это город номер {number}." for number in range(99)] + ["Да. " * 1000]
    lines = [{"prompt": "Это город?", "completion": answer} for answer in answers]
    for name in "abcd":
        (chats / f"{name}.jsonl").write_text(
            "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        )
    data = params.data.model_copy(update={"raw": "chats"})
    monkeypatch.setattr(fitting, "SAMPLE_BYTES", sample_bytes)
    corpus = Corpus.read(project, params.model_copy(update={"data": data}))
    assert not any(mark in text for mark in TURN_TOKENS for text in corpus.sample)
    assert (corpus.documents, corpus.turn_tokens) == (400, 1600)
    assert corpus.median_bytes == len(f"Это город?{answers[10]}".encode())
    if len(corpus.sample) < 800:
        return
    text = TokenizedText.of(corpus, 512, val_fraction=0.1)
    tokenizer = train_reference([corpus.sample], 512)
    tokens = sum(len(tokenizer.encode(said).ids) for said in corpus.sample) + 400 + 1600
    assert text.train_tokens + text.val_tokens == pytest.approx(tokens, rel=0.06)
    assert text.val_tokens == pytest.approx(0.1 * tokens, rel=0.06)


def test_what_is_written_is_what_was_timed(params: AllParams):
    """Whatever params.yaml had before."""
    other = {
        "model.architecture": "gpt2",
        "model.n_embd": 32,
        "model.dropout": 0.1,
        "tokenizer.type": "char",
        "train.batch_size": 3,
        "train.gradient_accumulation_steps": 2,
        "train.optimizer": "adamw",
        "train.learning_rate": 0.5,
        "train.schedule.warmup_steps": 7,
        "train.schedule.horizon_epochs": 2,
    }
    PARAMS_FILE.write_text(text_with(other, PARAMS_FILE))
    params = check_all(PARAMS_FILE)
    corpus = corpus_of(params, text_bytes=1_000_000)
    proposal = fit(corpus, params, seconds=60, step_seconds=step_seconds)
    PARAMS_FILE.write_text(text_with({"model.start_from": "models/start/other"}, PARAMS_FILE))
    written = params_with(proposal.values, PARAMS_FILE)
    assert written.model.start is None
    assert (written.tokenizer.type, written.tokenizer.vocab_size) == (
        "bpe",
        proposal.text.vocabulary,
    )
    assert ModelConfig.of(written.model, proposal.text.vocabulary) == proposal.work.config
    assert (written.model.architecture, written.model.dropout) == ("modern", 0)
    assert written.train == proposal.work.train


@pytest.mark.parametrize("words", [1, 20, 60, 400])
def test_a_text_of_a_few_words_fits_or_is_refused(params: AllParams, project: Path, words: int):
    (project / "words.txt").write_text(" ".join(map(str, range(words))))
    data = params.data.model_copy(update={"raw": "words.txt"})
    params = params.model_copy(update={"data": data})
    corpus = Corpus.read(project, params)
    if words < 400:
        with pytest.raises(UserError, match=r"words\.txt.* 64"):
            fit(corpus, params, seconds=60, step_seconds=step_seconds)
    else:
        work = fit(corpus, params, seconds=60, step_seconds=step_seconds).work
        assert work.tokens > work.config.context_length
        assert work.train.batch_size == 4, "the smallest"
        assert work.train.schedule.warmup_steps <= work.steps / 10


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("ending", ["parquet", "parquet.gz"])
def test_a_part_of_a_parquet_file_is_enough(
    params: AllParams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, ending: str
):
    folder = tmp_path / "tables"
    folder.mkdir()
    table = io.BytesIO()
    pl.DataFrame({"text": ["a" * 100] * 20_000}).write_parquet(table)
    for number in range(files):
        data = table.getvalue()
        (folder / f"{number}.{ending}").write_bytes(
            gzip.compress(data) if ending.endswith("gz") else data
        )
    monkeypatch.setattr(fitting, "SAMPLE_BYTES", 1_000_000)
    data = params.data.model_copy(update={"raw": str(folder)})
    corpus = Corpus.read(tmp_path, params.model_copy(update={"data": data}))
    assert len(corpus.sample) < 11_000
    assert corpus.documents == pytest.approx(files * 20_000, rel=0.1)


@pytest.mark.parametrize("text_bytes", [1_000_000, 100_000_000])
@pytest.mark.parametrize("seconds", [60, 240, 3600])
def test_the_promised_time_is_kept_and_counts_all_steps(
    params: AllParams, text_bytes: int, seconds: int
):
    corpus = corpus_of(params, text_bytes=text_bytes)
    try:
        proposal = fit(corpus, params, seconds=seconds, step_seconds=step_seconds)
    except UserError:
        assert (text_bytes, seconds) == (100_000_000, 60)
        return
    work = proposal.work
    assert proposal.seconds <= seconds
    assert proposal.seconds >= work.steps * step_seconds(work)
    assert proposal.seconds == work.train.epochs * epoch_seconds(
        work, proposal.text, step_seconds(work)
    )
    assert work.train.batch_size == 4 or work.steps >= ENOUGH_STEPS / 2


def test_a_validation_token_takes_a_third_of_a_training_token(params: AllParams):
    text = TokenizedText(corpus_of(params, text_bytes=10**6), 512, 2.0, 400_000, 300_000)
    work = workload(params, text, *LADDER[0])
    training = work.steps_per_epoch
    batches = 300_000 / work.tokens_per_step
    for limit, validated in ((None, batches), (10**9, batches), (60_000, batches / 10)):
        train = work.train.model_copy(update={"validation_bytes": limit})
        limited = replace(work, train=train)
        assert epoch_seconds(limited, text, 2.0) == pytest.approx(2 * (training + validated / 3))


def test_more_time_never_promises_a_higher_loss(params: AllParams):
    corpus = corpus_of(params, text_bytes=2_000_000)
    losses = []
    sizes = []
    for seconds in (60, 240, 960, 3840):
        work = fit(corpus, params, seconds=seconds, step_seconds=step_seconds).work
        losses.append(predicted_loss(work))
        sizes.append(work.config.n_embd)
    assert all(later <= 1.011 * before for before, later in itertools.pairwise(losses))
    assert sizes == sorted(sizes)


def test_no_amount_of_time_lets_a_model_learn_a_text_by_heart(params: AllParams):
    corpus = corpus_of(params, text_bytes=1_000_000)
    short, long = (
        fit(corpus, params, seconds=seconds, step_seconds=step_seconds)
        for seconds in (3_600, 360_000)
    )
    assert long.work == short.work
    assert long.work.train.epochs == most_epochs(long.work)


@pytest.mark.parametrize("text_bytes", [100_000, 1_000_000, 10_000_000])
def test_no_model_is_too_large_for_its_text(params: AllParams, text_bytes: int):
    corpus = corpus_of(params, text_bytes=text_bytes)
    timed: list[Workload] = []

    def keeping(work: Workload) -> float:
        timed.append(work)
        return step_seconds(work)

    proposal = fit(corpus, params, seconds=360_000, step_seconds=keeping)
    assert parameters_per_token(proposal.work) <= LARGEST
    assert all(parameters_per_token(work) <= LARGEST for work in timed)
    assert "time" not in {name: why for name, _, why in proposal.reasons}["epochs"]
    is_large = parameters_per_token(proposal.work) > LARGE
    assert proposal.work.train.epochs == (MOST_EPOCHS_OF_LARGE if is_large else MOST_EPOCHS)


def test_the_next_larger_model_must_read_the_text_often(
    params: AllParams, monkeypatch: pytest.MonkeyPatch
):
    corpus = corpus_of(params, text_bytes=2_000_000)
    taken = set[bool]()
    for seconds in (60, 240, 480, 960):
        proposal = fit(corpus, params, seconds=seconds, step_seconds=step_seconds)
        with monkeypatch.context() as patch:
            patch.setattr(fitting, "READ_BY_LARGER", math.inf)
            by_laws = fit(corpus, params, seconds=seconds, step_seconds=step_seconds)
        assert proposal.text.vocabulary == by_laws.text.vocabulary
        steps = rung(proposal) - rung(by_laws)
        assert steps in (0, 1)
        if steps:
            assert proposal.work.train.epochs >= READ_BY_LARGER
        taken.add(bool(steps))
    assert taken == {False, True}


def test_models_that_learn_less_in_the_time_are_not_timed(
    params: AllParams, monkeypatch: pytest.MonkeyPatch
):
    """Here that takes seconds for each."""
    corpus = corpus_of(params, text_bytes=2_000_000)

    def tried() -> tuple[Fit, int]:
        shapes = set[int]()

        def timed(work: Workload) -> float:
            shapes.add(work.config.n_embd)
            return step_seconds(work)

        proposal = fit(corpus, params, seconds=480, step_seconds=timed)
        return proposal, len(shapes)

    proposal, few = tried()
    monkeypatch.setattr(fitting, "GIVE_UP", math.inf)
    same, many = tried()
    assert same.work == proposal.work
    assert few < many


def rung(proposal: Fit) -> int:
    config = proposal.work.config
    return LADDER.index((config.n_layer, config.n_embd))


def saving(share: float) -> Callable[..., TokenizedText]:
    """Tokenizers of which each saves this share of the tokens of one with half as many entries."""

    def tokenized(corpus: Corpus, vocabulary: int, **_: float) -> TokenizedText:
        bytes_per_token = (1 - share) ** -math.log2(vocabulary)
        return TokenizedText(corpus, vocabulary, bytes_per_token, 1_000_000, 50_000)

    return tokenized


def test_a_vocabulary_is_worth_its_work(params: AllParams, monkeypatch: pytest.MonkeyPatch):
    corpus = corpus_of(params, text_bytes=4_000_000)

    def proposed(share: float, seconds: float) -> int:
        monkeypatch.setattr(TokenizedText, "of", saving(share))
        work = fit(corpus, params, seconds=seconds, step_seconds=step_seconds).work
        return work.config.vocab_size

    shares = [0.0, 0.02, 0.05, 0.08, 0.11, 0.15, 0.3]
    found = [[proposed(share, seconds) for share in shares] for seconds in (300, 3000, 300_000)]
    assert all(row == sorted(row) for row in found), "what saves more tokens is larger"
    assert {row[0] for row in found} == {CHEAPEST}
    assert {row[-1] for row in found} == {16_384}, "at most twice the first"
    assert len({size for row in found for size in row}) == 5
    corpus = corpus_of(params, text_bytes=10**9)
    assert proposed(0.3, 10**7) == LARGEST_VOCABULARY


def test_a_smaller_vocabulary_lets_the_text_be_read_once(
    params: AllParams, monkeypatch: pytest.MonkeyPatch
):
    corpus = corpus_of(params, text_bytes=4_000_000)
    monkeypatch.setattr(TokenizedText, "of", saving(0.3))

    def proposed(seconds: float) -> int:
        """With a machine on which only the output layer takes time: a second for a million tokens x
        1024 entries."""
        work = fit(corpus, params, seconds=seconds, step_seconds=output_seconds).work
        return work.config.vocab_size

    def output_seconds(work: Workload) -> float:
        return work.tokens_per_step * work.config.vocab_size / 1024e6

    assert [proposed(seconds) for seconds in (100, 9, 5, 1.5)] == [16_384, 8192, 4096, 1024]
    with pytest.raises(UserError, match="1 s"):
        proposed(0.9)


@pytest.mark.parametrize("gpu", HARDWARE, ids=lambda gpu: gpu.name)
def test_plan_accepts_what_fit_proposes(
    params: AllParams, monkeypatch: pytest.MonkeyPatch, gpu: Hardware
):
    monkeypatch.setattr(TokenizedText, "of", like_english)
    corpus = corpus_of(params, text_bytes=10**11)
    for document, minutes in itertools.product((200, 10**6), (10**4, 10**6)):
        corpus = replace(corpus, median_bytes=document)
        proposal = fit(corpus, params, seconds=60 * minutes, step_seconds=gpu_timer(gpu))
        (row,) = plan_training(
            Path(),
            params_with(proposal.values, PARAMS_FILE),
            tokens=proposal.text.train_tokens,
            vocab_size=proposal.text.vocabulary,
            hardware=[gpu.name],
        ).rows
        assert row.sequences, (document, minutes)
        assert row.total_seconds <= 60 * minutes
        if proposal.too_large:
            assert gpu.name in proposal.too_large
            assert rung(proposal) < len(LADDER) - 1


def like_english(corpus: Corpus, vocabulary: int, *, val_fraction: float) -> TokenizedText:
    """The text in tokens of which twice as many entries save 7 %."""
    tokenized = saving(0.07)(corpus, vocabulary)
    tokens = round(corpus.text_bytes / tokenized.bytes_per_token)
    return replace(tokenized, train_tokens=tokens, val_tokens=round(val_fraction * tokens))


def test_the_largest_that_fits_memory_is_proposed(params: AllParams):
    corpus = corpus_of(params, text_bytes=4_000_000)
    whole = fit(corpus, params, seconds=3600, step_seconds=step_seconds)
    assert whole.too_large is None

    def narrower_than(width: int) -> Fit:
        def timed(work: Workload) -> float:
            if work.config.n_embd >= width:
                raise TooLargeError(work.config, "is too large")
            return step_seconds(work)

        return fit(corpus, params, seconds=3600, step_seconds=timed)

    limit = LADDER[rung(whole)]
    smaller = narrower_than(limit[1])
    assert rung(smaller) == rung(whole) - 1
    assert f"{limit[0]} layers, {limit[1]} wide" in (smaller.too_large or "")
    with pytest.raises(UserError, match=f"{LADDER[0][1]} wide"):
        narrower_than(0)


def test_too_little_time_is_refused(params: AllParams):
    with pytest.raises(UserError, match="smallest model"):
        fit(corpus_of(params, text_bytes=10**9), params, seconds=1, step_seconds=step_seconds)


def test_every_proposed_value_has_a_reason_and_is_valid(params: AllParams, project: Path):
    proposal = fit(
        corpus_of(params, text_bytes=1_000_000), params, seconds=60, step_seconds=step_seconds
    )
    names = ["vocabulary", "model", "context", "batch", "epochs", "rate"]
    assert [name for name, *_ in proposal.reasons] == names
    reasons = {name: why for name, _, why in proposal.reasons}
    text = proposal.text
    assert f" {text.train_tokens // text.vocabulary:,} times" in reasons["vocabulary"]
    assert f" {text.corpus.median_bytes / text.bytes_per_token:,.0f} or" in reasons["context"]
    before = (project / PARAMS_FILE).read_text()
    after = text_with(proposal.values, project / PARAMS_FILE)
    written = params_with(proposal.values, project / PARAMS_FILE)
    assert written.train.epochs == proposal.work.train.epochs
    assert written.train.peak == proposal.work.train.peak
    comments = [line.partition("#")[2] for line in before.splitlines()]
    assert [line.partition("#")[2] for line in after.splitlines()] == comments


@pytest.mark.parametrize(
    ("text_bytes", "seconds", "suits"), [(1_000_000, 60, False), (400_000_000, 1_000_000, True)]
)
def test_a_batch_is_said_to_suit_the_work_where_it_does(
    params: AllParams, text_bytes: int, seconds: int, suits: bool
):
    corpus = corpus_of(params, text_bytes=text_bytes)
    proposal = fit(corpus, params, seconds=seconds, step_seconds=step_seconds)
    work = proposal.work
    operations = work.tokens_per_epoch * work.train.epochs * flops_per_token(work.config)
    suiting = 0.292 * operations**0.3271
    assert (work.tokens_per_step > 0.7 * suiting) == suits
    (reason,) = (why for name, _, why in proposal.reasons if name == "batch")
    assert (f" {suiting:,.0f} " in reason) == (not suits)


def test_repeated_text_and_useless_parameters_are_worth_less(params: AllParams):
    def loss(*, tokens: int, epochs: int, width: int) -> float:
        shape = {"n_layer": 4, "n_head": 4, "n_embd": width, "vocab_size": 1024}
        config = ModelConfig.model_validate(params.model.model_dump() | shape)
        return predicted_loss(
            Workload(config, params.train.model_copy(update={"epochs": epochs}), tokens)
        )

    new = loss(tokens=8_000_000, epochs=1, width=64)
    repeated = loss(tokens=1_000_000, epochs=8, width=64)
    assert new < repeated < loss(tokens=1_000_000, epochs=1, width=64)
    forever = loss(tokens=1290, epochs=10**6, width=1024)  # ten sequences
    worth = 1.87 + 521 / (1280 * 6.31) ** 0.353 + 1488 / (1280 * 16.39) ** 0.353
    assert forever == pytest.approx(worth), "Muennighoff et al. 2023"
    gains = [
        loss(tokens=10**6, epochs=4, width=w) - loss(tokens=10**6, epochs=4, width=2 * w)
        for w in (16, 256)
    ]
    assert gains[0] > 2 * gains[1] >= 0


def test_vocabulary_and_context_follow_text_and_width():
    assert [vocabulary_for(size) for size in (10_000, 1_100_000, 10**10)] == [512, 2048, 32_768]
    assert context_for(128, document_tokens=10_000) == 128
    assert context_for(768, document_tokens=10_000) == 1024
    assert context_for(768, document_tokens=100) == 128
    assert context_for(64, document_tokens=3) == 64
    assert [heads_for(width) for width in (64, 256, 384, 768)] == [2, 8, 6, 12]


def test_the_command_writes_on_yes_and_names_a_missing_price(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    before = (project / PARAMS_FILE).read_text()
    main(["fit", "--minutes", "1", "--hardware", "T4"])
    assert "--yes writes it" in capsys.readouterr().out
    assert (project / PARAMS_FILE).read_text() == before
    with pytest.raises(SystemExit, match="--price-per-hour"):
        main(["fit", "--budget", "5", "--hardware", "T4"])
    main(["fit", "--budget", "5", "--hardware", "T4", "--price-per-hour", "2", "--yes"])
    assert read_yaml(project / PARAMS_FILE)["tokenizer"]["vocab_size"] < 1024


def test_the_price_of_this_machine_is_not_that_of_a_gpu(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    params = project / PARAMS_FILE
    content = params.read_text()
    assert content.count("price_per_hour:") == content.count("currency: USD") == 1
    content = content.replace("price_per_hour:", "price_per_hour: 3600")
    params.write_text(content.replace("currency: USD", "currency: EUR"))
    with pytest.raises(SystemExit, match="hour on T4"):
        main(["fit", "--budget", "5", "--hardware", "T4"])
    main(["fit", "--minutes", "1", "--hardware", "T4"])
    assert "EUR" not in capsys.readouterr().out
    main(["fit", "--minutes", "1", "--hardware", "T4", "--price-per-hour", "2"])
    assert "EUR" in capsys.readouterr().out


def test_the_plan_that_is_named_is_of_the_proposal(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    """Also where tokens of another text are."""
    write_tokens(project / "data/tokens", sequences=500)
    (project / "dvc.lock").write_text("stages: {}")
    main(["fit", "--minutes", "1", "--hardware", "T4", "--yes"])
    out = capsys.readouterr().out
    command = out[out.rindex("`tokenmill plan") :].split("`")[1]
    main([*command.split()[1:], "--json"])
    planned = json.loads(capsys.readouterr().out)
    assert planned["model"]["vocab_size"] == read_yaml(PARAMS_FILE)["tokenizer"]["vocab_size"]
    assert f"{planned['tokens']:,} tokens to train on" in out
    assert f"{planned['steps']:,} steps on T4" in out


def test_the_command_says_what_did_not_fit(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """On a card that holds the smallest model of this text, and no other."""
    for number in range(20):  # so that the next one is not too large for the text
        shutil.copy(project / "text" / "0.txt", project / "text" / f"again-{number}.txt")
    (card,) = (replace(gpu, memory_gb=0.006) for gpu in HARDWARE if gpu.name == "L4")
    monkeypatch.setattr("tokenmill.hardware.HARDWARE", [card])
    main(["fit", "--minutes", "1", "--hardware", "L4", "--yes"])
    out = capsys.readouterr().out
    assert f"{LADDER[1][1]} wide" in out
    assert read_yaml(project / PARAMS_FILE)["model"]["n_embd"] == LADDER[0][1]


def test_one_document_is_said_as_one(project: Path, capsys: pytest.CaptureFixture[str]):
    whole = "\n".join(path.read_text() for path in sorted((project / "text").iterdir()))
    (project / "one.txt").write_text(whole)
    main(["fit", "one.txt", "--minutes", "1", "--hardware", "T4"])
    assert " 1 document, " in capsys.readouterr().out


@pytest.mark.slow
def test_this_machine_is_timed(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(benchmark, "MEASURED_SECONDS", 0.05)  # of each size of model that is tried
    for name in ("0", "1", "2"):
        shutil.copy(project / "text" / f"{name}.txt", project / "text" / f"again-{name}.txt")
    # Busy cores take seconds for a pass of the smallest model, and the text bounds the others
    main(["fit", "--minutes", "60"])
    out = capsys.readouterr().out
    assert " steps here, " in out
    assert "params.yaml (fit)" in out


def test_a_home_of_nobody_is_no_text(here: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copyfile(ROOT / PARAMS_FILE, PARAMS_FILE)
    with pytest.raises(SystemExit, match=r"~nobody-of-this-name/x\) does not exist"):
        main(["fit", "~nobody-of-this-name/x", "--minutes", "3"])
