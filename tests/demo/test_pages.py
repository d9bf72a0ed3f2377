"""The page of the demo and its parts: every model that there is, each as it is on disk now."""

import base64
import json
import shutil
from pathlib import Path

import pytest

from tests.demo.demo_project import index_training_text, write_run
from tests.demo.served import (
    SAMPLING,
    content,
    data_of,
    epochs_of,
    pages_of,
    served_by_a_thread,
)
from tests.fresh import imported_by
from tests.publish.site_project import make_project as make_reported
from tests.reports.html_page import Page
from tests.runs.locks import write_lock
from tests.runs.unfinished import begin
from tokenmill.core.errors import UserError
from tokenmill.core.paths import TOKENIZER
from tokenmill.demo import pages as module
from tokenmill.demo.models import Models
from tokenmill.demo.pages import Pages
from tokenmill.evaluation.trace import Tracer
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.huggingface import WEIGHTS, load_model
from tokenmill.model.manifest import read_manifest
from tokenmill.publish.parts import tokenizer_name


def weights_of(pages: Pages, part: str) -> bytes:
    """The weights of an epoch, as a browser gets them."""
    described, problem = content(pages.part(part))
    assert described, problem
    texts = [content(pages.part(name))[0] for name in json.loads(described)["parts"]]
    return b"".join(base64.b64decode(text or "") for text in texts)


def test_small_models_come_as_they_are(project: Path):
    pages = pages_of(project)
    for name, part in epochs_of(pages.page()).items():
        model = load_model(project / "models/gpt" / name.replace(" ", "-"))
        exact = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
        assert weights_of(pages, part) == exact


def test_large_models_come_in_int8(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "EXACT_PARAMETERS", 100)
    pages = pages_of(project)
    described, _ = content(pages.part(epochs_of(pages.page())["epoch 1"]))
    assert {each["kind"] for each in json.loads(described or "")["about"]["tensors"]} == {"int8"}
    monkeypatch.setattr(module, "MOST_PARAMETERS", 100)
    assert "tokenmill generate" in content(pages.part(epochs_of(pages.page())["epoch 2"]))[1]


def test_each_model_has_its_own_tokenizer(project: Path):
    pages = pages_of(project, "other")
    page = pages.page()
    for name, file in (
        ("epoch 2", project / TOKENIZER),
        (str(project.parent / "other"), project.parent / "other/tokenizer.json"),
    ):
        described, _ = content(pages.part(epochs_of(page)[name]))
        tokenizer = json.loads(described or "")["tokenizer"]
        assert tokenizer == tokenizer_name(read_tokenizer(file).sha256)
        text, _ = content(pages.part(tokenizer))
        assert json.loads(text or "")["layout"] == json.loads(file.read_text("utf-8"))


@pytest.mark.parametrize(("missing", "says"), [(False, "is damaged"), (True, "is missing")])
def test_damaged_weights_are_a_sentence(copy: Path, missing: bool, says: str):
    pages = pages_of(copy)
    part = epochs_of(pages.page())["epoch 1"]
    file = copy / "models/gpt/epoch-1" / WEIGHTS
    whole = file.read_bytes()
    file.unlink() if missing else file.write_bytes(whole[:100])
    text, problem = content(pages.part(part))
    assert text is None
    assert says in problem
    file.write_bytes(whole)
    assert content(pages.part(part))[1] == ""


def test_another_run_in_the_same_place_is_read_again(copy: Path):
    pages = pages_of(copy)
    part = epochs_of(pages.page())["epoch 1"]
    before = json.loads(content(pages.part(part))[0] or "")["parts"]
    write_run(copy, epochs=3, seed=7)
    assert "load the page again" in content(pages.part(before[0]))[1]
    assert list(epochs_of(pages.page())) == ["epoch 1", "epoch 2", "epoch 3"]
    assert json.loads(content(pages.part(part))[0] or "")["parts"] != before


@pytest.mark.parametrize("name", ["", "{}-3", "about-9-1", "../../etc/passwd", "epoch-1-0"])
def test_only_parts_that_a_page_knows_are_looked_up(project: Path, name: str):
    pages = pages_of(project)
    known = epochs_of(pages.page())["epoch 2"]
    assert pages.part(known) is not None
    assert pages.part(name.format(known.removesuffix("-2"))) is None


def test_a_training_under_way_has_a_page_of_its_own(tmp_path: Path):
    root = tmp_path / "project"
    root.mkdir()
    begin(root)
    pages = pages_of(root)
    page = pages.page()
    assert data_of(page)["questions"] == [{"kind": "user", "prompt": "hello", "greedy": {}}]
    assert list(epochs_of(page)) == ["epoch 1"]
    assert weights_of(pages, epochs_of(page)["epoch 1"])


def test_a_run_that_has_gone_is_a_sentence(copy: Path):
    pages = pages_of(copy)
    with served_by_a_thread(pages) as served:
        assert epochs_of(served.get())
        shutil.rmtree(copy / "models/gpt")
        status, _, answer = served.ask("/")
    assert status == 503
    assert b"`dvc repro` trains one" in answer


def test_the_report_of_the_model_is_around(tmp_path: Path):
    root = make_reported(tmp_path / "project")
    page = pages_of(root).page()
    assert "run report" in page
    answers = data_of(page)["questions"][0]["greedy"]
    assert sorted(answers) == sorted(epochs_of(page).values())
    write_lock(root, evaluated="earlier")
    assert "run report" not in pages_of(root).page()
    manifest = read_manifest(root / "models/gpt")
    write_lock(root, epochs=manifest.train.epochs)
    assert "run report" in pages_of(root).page()
    report = root / "reports/index.html"
    weights = manifest.weights
    report.write_text(report.read_text("utf-8").replace(weights[1], weights[0]))
    page = pages_of(root).page()
    assert "run report" not in page
    assert data_of(page)["questions"][0]["prompt"] == "hello"


def test_an_answer_is_traced_to_the_training_text(copy: Path):
    pages = pages_of(copy)
    assert data_of(pages.page())["trace"] is None
    with pytest.raises(UserError, match="is missing"):
        pages.trace("the capital of France")
    index_training_text(copy)
    described, _ = content(pages.part(epochs_of(pages.page())["epoch 1"]))
    assert data_of(pages.page())["trace"] == json.loads(described or "")["tokenizer"]
    found = Page(pages.trace("It is the capital of France."))
    assert "5 of 6 words" in found.words
    assert found.words.count("is the capital of France.") == 2  # in the answer and in a passage
    assert "a.txt, document 1" in found.words
    assert found.tags == {"p", "mark", "ol", "li", "span", "bdi"}
    hostile = Page(pages.trace("<em> <img src=x onerror=alert(1)> is the capital of France."))
    assert hostile.words.count("<em>") == 1  # in the answer alone
    assert hostile.words.count("onerror=") == 2  # in the training text, too
    assert hostile.tags == found.tags


def test_no_password_in_an_error_reaches_the_page(project: Path, monkeypatch: pytest.MonkeyPatch):
    def out_of_reach(_: Path) -> Tracer:
        raise UserError("s3://key:secret@bucket is out of reach.")

    monkeypatch.setattr(Tracer, "of_project", out_of_reach)
    with served_by_a_thread(Pages(Models(project), SAMPLING, [])) as served:
        status, _, answer = served.ask("/trace", {}, b"text")
    assert (status, answer.decode()) == (503, "s3://key:•••@bucket is out of reach.")


PAGE = """if True:
    from pathlib import Path
    from tokenmill.cli.generate import default_sampling, evaluate_params
    from tokenmill.demo.models import Models
    from tokenmill.demo.pages import Pages
    sampling = default_sampling(evaluate_params())
    assert '"temperature": 0.8' in Pages(Models(Path()), sampling, []).page()
"""


def test_the_page_comes_without_pytorch(project: Path):
    assert "torch" not in imported_by("-c", PAGE, cwd=project)
