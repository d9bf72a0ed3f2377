"""The folder that `tokenmill publish` writes: whole, of this run, self-contained."""

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.publish.site_project import QUESTION, SAMPLING, make_project
from tests.reports.data_material import HOSTILE
from tests.runs.locks import write_lock
from tests.runs.unfinished import begin
from tokenmill.cli.main import main
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.core.params import typed_mode
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import read_manifest
from tokenmill.publish import parts as parts_module
from tokenmill.publish import site as module
from tokenmill.publish.cleaning import cleaning_rules
from tokenmill.publish.site import publish
from tokenmill.publish.talk import NO_PROMPT, TALK
from tokenmill.publish.weights import pack, packed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("site") / "project")


@pytest.fixture(scope="module")
def page(made: Path) -> str:
    return published(made, made / "site")


def published(root: Path, target: Path) -> str:
    publish(root, target, SAMPLING)
    return (target / "index.html").read_text(encoding="utf-8")


def block(page: str, name: str) -> str:
    found = re.search(rf'<script type="text/plain" id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found, name
    return found[1]


def epochs_of(page: str) -> list[dict[str, Any]]:
    (model,) = json.loads(block(page, "talk-data"))["models"]
    return model["epochs"]


def described_by(page: str, epoch: dict[str, Any]) -> dict[str, Any]:
    return json.loads(block(page, epoch["part"]))


def test_page_is_the_report_with_scripts_of_its_own_only(made: Path, page: str):
    report = (made / "reports/index.html").read_text(encoding="utf-8")
    before, after = report.split(TALK)
    assert after.removesuffix("</body>\n</html>\n") in page
    assert before.partition("Content-Security-Policy")[2].partition("\n")[2] in page
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert len(scripts) == len(policy) == 1
    assert "default-src 'none'" in policy[0]
    assert policy[0].split("script-src ")[1] == f"'sha256-{digest}'"


def test_page_has_weights_tokenizer_and_answers(made: Path, page: str):
    data = json.loads(block(page, "talk-data"))
    assert "<" not in block(page, "talk-data")
    for epoch in epochs_of(page):
        described = described_by(page, epoch)
        tokenizer = json.loads(block(page, described["tokenizer"]))
        assert tokenizer["layout"] == json.loads(
            (made / "data/tokenizer/tokenizer.json").read_text("utf-8")
        )
        model = load_model(made / f"models/gpt/epoch-{epoch['number']}")
        parts = [base64.b64decode(block(page, name)) for name in described["parts"]]
        assert (described["about"], b"".join(parts)) == packed(model, "int8")
    assert [one["prompt"] for one in data["questions"]][:2] == [QUESTION, f"{HOSTILE} prompt"]
    assert data["questions"][0]["greedy"][epochs_of(page)[1]["part"]] == HOSTILE
    assert data["cleaning"] == json.loads(json.dumps(cleaning_rules(typed_mode(made))))


def test_what_the_report_links_to_comes_along_each_time(made: Path, tmp_path: Path):
    (made / "reports/data.html").write_text("data")
    for epochs in ([2, 1, 2], [1]):
        numbers = publish(made, tmp_path / "site", SAMPLING, epochs=epochs)
        assert numbers == sorted(set(epochs))
    (made / "reports/data.html").unlink()
    files = {path.name: path.read_bytes() for path in (tmp_path / "site").iterdir()}
    assert files.keys() == {"index.html", ".nojekyll", "data.html", "samples.md"}
    assert files["data.html"] == b"data"
    assert files["samples.md"] == (made / "reports/samples.md").read_bytes()


def test_weights_of_another_model_have_another_name(made: Path):
    """A browser may have kept those of the model before."""
    tokenizer = read_tokenizer(made / "data/tokenizer/tokenizer.json")
    models = [load_model(made / f"models/gpt/epoch-{n}") for n in (1, 2)]
    names = {pack(model, tokenizer, epoch=1, precision="int8").name for model in models}
    assert len(names) == 2


def test_large_weights_lie_beside_the_page(made: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "INLINE_BYTES", 10_000)
    monkeypatch.setattr(parts_module, "PART_BYTES", 9_000)
    target = made / "large"
    assert publish(made, target, SAMPLING, epochs=[2], precision="float16") == [2]
    assert sum(file.stat().st_size for file in target.rglob("*") if file.is_file()) < 400_000
    page = published(made, target)  # replaces the first
    assert "'self' file:" in page
    names = [name for epoch in epochs_of(page) for name in described_by(page, epoch)["parts"]]
    assert sorted(file.stem for file in (target / "weights").iterdir()) == sorted(names)
    calls = [(target / "weights" / f"{name}.js").read_text() for name in names]
    parts = [re.fullmatch(r'tokenmillPart\("(.*)","(.*)"\);\n', call) for call in calls]
    assert [part and part[1] for part in parts] == names
    whole = b"".join(base64.b64decode(part[2]) for part in parts if part)
    models = [load_model(made / f"models/gpt/epoch-{epoch}") for epoch in (1, 2)]
    assert whole == b"".join(packed(model, "int8")[1] for model in models)


def test_a_folder_with_something_else_is_kept(made: Path, tmp_path: Path):
    target = tmp_path / "site"
    publish(made, target, SAMPLING, epochs=[1])
    (target / "weights").mkdir()
    for name in ("README.md", "weights/mine.js", "epoch-1-0123456789ab-0.js"):
        (target / name).write_text("mine")
        with pytest.raises(UserError, match=name):
            publish(made, target, SAMPLING)
        assert (target / name).read_text() == "mine"
        (target / name).unlink()
    (target / "index.html").write_text("mine")
    with pytest.raises(UserError, match="--output"):
        publish(made, target, SAMPLING)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (TALK, "", "version"),
        ("</body>", "", "version"),
        ("Content-Security-Policy", "x", "version"),
    ],
)
def test_a_report_that_does_not_fit_is_refused(
    made: Path, tmp_path: Path, old: str, new: str, named: str
):
    file = made / "reports/index.html"
    report = file.read_text(encoding="utf-8")
    file.write_text(report.replace(old, new), encoding="utf-8")
    try:
        with pytest.raises(UserError, match=named):
            publish(made, tmp_path / "site", SAMPLING)
    finally:
        file.write_text(report, encoding="utf-8")
    assert not (tmp_path / "site").exists()


def test_a_damaged_report_is_refused(made: Path, tmp_path: Path):
    copy = shutil.copytree(made, tmp_path / "copy")
    for damage in (lambda file: file.write_bytes(b"\xff"), Path.unlink):
        damage(copy / "reports/index.html")
        with pytest.raises(UserError, match="missing or damaged"):
            publish(copy, tmp_path / "site", SAMPLING)


def test_report_and_evaluation_are_of_the_very_model(made: Path, tmp_path: Path):
    copy = shutil.copytree(made, tmp_path / "copy")
    write_lock(copy, evaluated="earlier")
    with pytest.raises(UserError, match=r"evaluation\.json .*another model.*`dvc repro`"):
        publish(copy, copy / "new", SAMPLING)
    manifest = read_manifest(copy / "models/gpt").model_dump()
    write_lock(copy, epochs=manifest["train"]["epochs"])
    manifest["weights"][1] = "0" * 64
    write_json(copy / "models/gpt/manifest.json", manifest)
    with pytest.raises(UserError, match=r"index\.html is of another run"):
        publish(copy, copy / "new", SAMPLING)


def test_a_training_under_way_is_told_of(tmp_path: Path):
    begin(tmp_path / "project")
    with pytest.raises(UserError, match="step 18 of 20"):
        publish(tmp_path / "project", tmp_path / "site", SAMPLING)
    assert not (tmp_path / "site").exists()


def test_command_says_what_it_wrote(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(made)
    main(["publish", "--output", "short", "--epoch", "2"])
    assert "1 epoch" in capsys.readouterr().out
    page = (made / "short/index.html").read_text("utf-8")
    assert [epoch["number"] for epoch in epochs_of(page)] == [2]
    data = json.loads(block(page, "talk-data"))
    assert data["sampling"]["max_new_tokens"] > 0
    with pytest.raises(SystemExit, match="epochs 1 to 2"):
        main(["publish", "--output", "none", "--epoch", "3"])
    assert not (made / "none").exists()
    with pytest.raises(SystemExit, match="models/gpt"):
        main(["publish", "--output", "models/gpt/site"])
    assert not (made / "models/gpt/site").exists()


def test_a_conversation_that_people_see_is_no_prompt(made: Path):
    assert NO_PROMPT.match("User: a\nAssistant:")
    assert not NO_PROMPT.match("ROMEO: a")
    file = made / "reports/evaluation.json"
    before = file.read_text(encoding="utf-8")
    content = json.loads(before)
    content["questions"][1] |= {"kind": "text", "prompt": "User: Hi!\nAssistant:"}
    write_json(file, content)
    try:
        page = published(made, made / "chat")
    finally:
        file.write_text(before, encoding="utf-8")
    prompts = [one["prompt"] for one in json.loads(block(page, "talk-data"))["questions"]]
    assert len(prompts) == len(content["questions"]) - 1
    assert "User: Hi!\nAssistant:" not in prompts
