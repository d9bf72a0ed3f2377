"""The whole pipeline under real DVC: what runs, what does not, and that it gives the same bytes
every time."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from tests.imports import CANNOT_CHANGE_A_RESULT, ROOT, modules, place
from tests.pipeline.project import KEPT_IN_GIT, STAGES, Project, ran

TIMES = re.compile(r'<td data-name="(?:time per step|tokens per s|time|cost)"[^>]*>[^<]*</td>')
"""The cells of the run report that differ from machine to machine."""


def test_first_repro_runs_every_stage_and_the_second_none(
    finished_template: Path, finished: Project
) -> None:
    assert ran((finished_template.parent / "first_repro").read_text()) == STAGES
    assert ran(finished.repro()) == []
    for path in (
        "data/tokens/train.bin",
        "data/tokens/val.bin",
        "data/tokens/metadata.json",
        "reports/samples.md",
    ):
        assert (finished.root / path).stat().st_size > 0
    summary = finished.typed("summary")
    assert "What is the capital of France?" in summary


def test_every_stage_gives_the_same_bytes_again(finished: Project) -> None:
    """In a new Python each, for those of the template were forked."""
    outputs = ("data", "models", "metrics/train.json", "metrics/eval.json", "metrics/history.csv")
    reports = (
        "reports/data.html",
        "reports/evaluation.json",
        "reports/validation_documents.csv",
        "reports/answer_traces.json",
    )
    before = finished.digest(*outputs, *reports)
    lock = lock_without_times(finished)
    page = without_times(finished)
    shutil.rmtree(finished.root / ".resume")
    (finished.root / "dvc.lock").unlink()  # else training would go on from the model that it names
    assert ran(finished.really_repro("--force")) == STAGES
    assert finished.digest(*outputs, *reports) == before
    assert lock_without_times(finished) == lock
    assert without_times(finished) == page


@pytest.mark.skipif(not shutil.which("make"), reason="make is not here")
def test_make_reports_where_dvc_skips_it(finished: Project) -> None:
    """As after an experiment of other epochs, or in a clone that comes to the committed bytes."""
    names = ("git", "for-each-ref", "--format=%(refname)", "refs/epoch-*")
    refs = finished.run(*names)
    finished.run("git", "update-ref", "-d", "refs/epoch-2")
    finished.run("git", "update-ref", "refs/epoch-99", "HEAD")
    page = (finished.root / "reports/index.html").read_bytes()
    finished.run("make", "VENV=.venv", "-o", ".venv/.ready", "repro")
    assert finished.run(*names) == refs
    assert (finished.root / "reports/index.html").read_bytes() == page


def without_times(project: Project) -> str:
    """The run report without what the machine took."""
    return TIMES.sub("", (project.root / "reports/index.html").read_text())


def lock_without_times(project: Project) -> object:
    """dvc.lock without the hash of the one output that holds times."""
    lock = YAML(typ="safe").load(project.root / "dvc.lock")
    outs = lock["stages"]["report"]["outs"]
    lock["stages"]["report"]["outs"] = [out for out in outs if out["path"] != "reports/index.html"]
    return lock


WRONG: list[tuple[dict[str, object], str]] = [
    (
        {"model__n_layer": -2, "clean__min_chars": 2},
        "model.n_layer (-2)",
    ),
    (
        {"model__context_length": 10**6},
        "model.context_length (1000000) does not fit the train split",
    ),
    ({"data__raw": "/a/folder/that/is/not/there"}, "data.raw (/a/folder/that/is/not/there)"),
    (
        {"runtime__token_placement": "compressed", "train__epochs": 3},
        "type `dvc repro -sf unpack`",
    ),
]


def test_a_wrong_parameter_is_one_sentence_and_removes_nothing(finished: Project) -> None:
    """In the work tree, and of an experiment, from which git takes it back."""
    params = finished.root / "params.yaml"
    right = params.read_text()
    before = finished.digest("data", "models", "metrics", "reports")
    for change, sentence in WRONG:
        finished.set(**change)
        said = finished.run("dvc", "repro", check=False)
        assert sentence in said
        assert "Traceback" not in said
        assert ran(said) == ["check"]
        params.write_text(right)
    finished.run("git", "checkout", "-q", "params.yaml")
    said = finished.run("dvc", "exp", "run", "-S", "model.n_head=3", check=False)
    assert "model.n_head (3) must divide model.n_embd (16)" in said
    assert "`git checkout params.yaml`" in said
    assert finished.digest("data", "models", "metrics", "reports") == before
    assert len(params.read_text()) == len(right), "git sees another size at once"
    finished.run("git", "checkout", "params.yaml")
    assert params.read_text() == right
    assert ran(finished.repro()) == []


def test_git_sees_neither_artefacts_nor_leftovers(finished: Project) -> None:
    tracked = set(finished.run("git", "ls-files").splitlines()) - KEPT_IN_GIT
    assert not [name for name in tracked if name.startswith(("data/", "models/", ".resume/"))]
    assert finished.run("git", "status", "--porcelain") == ""
    assert not list(finished.root.rglob("*.tmp"))


def test_the_cache_holds_no_unpacked_tokens(finished_template: Path) -> None:
    size = (finished_template / "data/tokens/train.bin").stat().st_size
    cached = [path for path in (finished_template / ".dvc/cache").rglob("*") if path.is_file()]
    assert cached
    assert size not in [path.stat().st_size for path in cached]


def test_a_parameter_reruns_only_what_depends_on_it(finished: Project) -> None:
    """And one of the section `runtime` nothing. A prompt is known in the training text as `clean`
    writes it, and the report shows it as it was typed."""
    prompt = "What is the\xa0capital of France?"
    finished.set(
        evaluate__prompts=[{"user": prompt, "expect": "The\xa0capital of France"}],
        runtime__checkpoint__every_steps=11,
        runtime__device="auto",
    )
    assert ran(finished.repro()) == ["check", "evaluate", "trace", "report"]
    metrics = json.loads((finished.root / "metrics/trace.json").read_text())
    assert metrics["expected_in_training"] == 1.0
    assert prompt in (finished.root / "reports/index.html").read_text()


def test_a_mixture_trains_again_on_the_same_tokens(finished: Project) -> None:
    before = finished.digest("data")
    finished.set(data__mixture={"train.jsonl": 0.5})
    said = finished.repro()
    names = ["check", "data_report", "train", "evaluate", "trace", "benchmark", "report"]
    assert ran(said) == names
    assert finished.digest("data") == before
    manifest = json.loads((finished.root / "models/gpt/manifest.json").read_text())
    assert manifest["mixture"] == {"train.jsonl": 0.5}
    finished.set(data__mixture={"train.json": 0.5})
    said = finished.run("dvc", "repro", check=False)
    assert "data.mixture.train.json is no source" in said
    assert "Traceback" not in said


def test_another_form_of_the_tokens_is_written_where_unpack_runs(finished: Project) -> None:
    """By the command that a refusal names, or because another value changed."""
    finished.set(runtime__token_placement="compressed", train__epochs=3)  # noqa: S106 (no password)
    finished.run("dvc", "repro", "-sf", "unpack")
    assert "train" in ran(finished.repro("data_report", "trace"))  # all who read them
    assert not (finished.root / "data/tokens/train.bin").exists()
    finished.set(runtime__token_placement="mmap", tokenizer__vocab_size=310)  # noqa: S106
    assert ran(finished.repro("unpack")) == ["check", "tokenizer", "tokenize", "unpack"]
    assert (finished.root / "data/tokens/train.bin").exists()


def test_other_words_rerun_nothing_but_the_pages(finished: Project) -> None:
    """What is printed, refused, counted or drawn was reworded; only pages show it."""
    for path in modules():
        if place(path) in CANNOT_CHANGE_A_RESULT | {"words", "runs", "cli", "doctor", "demo"}:
            with (finished.root / path.relative_to(ROOT)).open("a") as file:
                file.write("# other words\n")
    assert ran(finished.repro()) == ["data_report", "report"]


def test_epochs_can_be_compared(finished: Project) -> None:
    changes = json.loads(finished.run("dvc", "metrics", "diff", "--json", "epoch-1", "epoch-2"))
    losses = changes["metrics/train.json"]["val_loss"]
    history = np.genfromtxt(finished.root / "metrics/history.csv", delimiter=",", names=True)
    assert [losses["old"], losses["new"]] == list(history["val_loss"])
    assert losses["diff"] < 0
    assert changes["metrics/eval.json"]["perplexity"]["diff"] < 0
    assert finished.run("git", "tag") == ""
    assert json.loads(finished.run("dvc", "metrics", "diff", "--json", "epoch-2")) == {}


def test_plots_and_tables_of_dvc_work(finished: Project) -> None:
    assert "val_loss" in finished.run("dvc", "metrics", "show")
    finished.run("dvc", "plots", "show")
    page = (finished.root / "dvc_plots/index.html").read_text()
    for title in (
        "Loss by epoch",
        "Learning rate by step",
        "Tokens per second",
        "Documents dropped by reason",
        "not clear",  # the language of some text
    ):
        assert title in page
    finished.set(model__n_layer=2)
    assert "model.n_layer" in finished.run("dvc", "params", "diff")
