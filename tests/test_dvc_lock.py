"""What dvc.lock says of the results beside a model."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.imports import ROOT
from tests.runs.locks import write_lock
from tokenmill import git
from tokenmill.core.errors import UserError
from tokenmill.core.files import write_json
from tokenmill.dvc_lock import TO_THE_MODEL, TO_THE_TEXT, Lock, listed


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ({}, (True, True, True)),
        ({"evaluated": "earlier"}, (False, True, True)),
        ({"tokenized": "earlier"}, (True, False, True)),
        ({"encoded_by": "earlier"}, (True, False, True)),
        ({"trained": "earlier"}, (True, False, True)),
        ({"base": "earlier"}, (True, True, False)),
        ({"asked": "earlier"}, (True, True, False)),
    ],
)
def test_a_result_of_an_earlier_output_is_known(
    earlier: dict[str, Any], expected: tuple[bool, ...], tmp_path: Path
):
    write_lock(tmp_path, **earlier)
    lock = Lock.read(tmp_path)
    is_finetuned = lock.is_finetuned("lora", tmp_path)
    assert (lock.is_evaluated, lock.is_of_text, is_finetuned) == expected


IMPLIED = {("tokenizer", "data/clean", "clean"), ("clean", "data/checked.txt", "check")}
"""What a stage before the model reads, and TO_THE_TEXT need not name: the clean text that
`tokenize` reads, too, and a file that is always the same."""


def test_the_way_to_the_text_is_that_of_the_pipeline():
    """A result that lies on it unnamed could be of another text, and counts as the same."""
    pipeline = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
    outs = [(name, out) for name, stage in pipeline.items() for out in stage.get("outs", [])]
    writers = {next(iter(out)) if isinstance(out, dict) else out: name for name, out in outs}
    todo, found = ["train"], set[tuple[str, str, str]]()
    while todo:
        reader = todo.pop()
        read = {(reader, dep, writers[dep]) for dep in pipeline[reader]["deps"] if dep in writers}
        todo += [writer for _, _, writer in read - found]
        found |= read
    assert found - IMPLIED == {(reader, out.as_posix(), by) for reader, out, by in TO_THE_TEXT}
    stages = {name for read in found for name in (read[0], read[2])}
    assert {name for name in stages if pipeline[name].get("params")} == set(TO_THE_MODEL)


def test_a_lock_without_stages_records_nothing(tmp_path: Path):
    """DVC takes it for one."""
    (tmp_path / "dvc.lock").write_text("schema: '2.0'\n")
    assert Lock.read(tmp_path) == Lock()


def test_a_merge_in_it_is_named_with_its_line():
    with pytest.raises(UserError, match=r"dvc\.lock .*\(line 3\)"):
        Lock.parse(b"stages:\n  sample:\n<<<<<<< HEAD\n    outs: []\n", "dvc.lock")


def test_a_listed_hash_leads_nowhere_else(tmp_path: Path):
    listing = tmp_path / "listing"
    md5 = "0" * 32
    write_json(listing, [{"relpath": "a", "md5": md5}, {"relpath": "b", "etag": "1"}])
    assert listed(listing) == {"a": md5}
    for other in ("/etc/passwd", f"../{md5}", f"{md5}\n"):
        write_json(listing, [{"relpath": "a", "md5": other}])
        with pytest.raises(UserError, match=r"listing is damaged .*--deep"):
            listed(listing)


@pytest.mark.parametrize("name", ["train", "eval"])
def test_metrics_of_another_method_are_known(name: str, tmp_path: Path):
    write_lock(tmp_path)
    lock = Lock.read(tmp_path)
    assert not lock.is_finetuned("full", tmp_path), "it is not evaluated yet"
    git.execute(tmp_path, "init", "-q")
    git.execute(tmp_path, "add", ".")
    git.execute(tmp_path, "-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "lora")
    file = tmp_path / f"metrics/finetuned/{name}.json"
    for change in (lambda: write_json(file, {"val_loss": 1.0}), file.unlink):
        change()
        assert not lock.is_finetuned("lora", tmp_path)
        assert lock.is_finetuned("lora", tmp_path, "HEAD")


@pytest.mark.parametrize(
    "stages",
    [
        None,
        "{}",
        "{evaluate: {deps: [{path: models/gpt, md5: a}]}}",
        "{train: {outs: [{path: models/gpt, md5: a}]}}",
        "{train: {outs: [{path: models/gpt, md5: a}]}, evaluate: {deps: [{path: models/gpt}]}}",
    ],
)
def test_what_is_not_recorded_counts_as_the_same(stages: str | None, tmp_path: Path):
    if stages:
        (tmp_path / "dvc.lock").write_text(f"stages: {stages}\n")
    assert Lock.read(tmp_path).is_evaluated
    assert Lock.read(tmp_path).is_of_text


def test_a_path_that_is_none_is_refused(tmp_path: Path):
    (tmp_path / "dvc.lock").write_text('stages: {clean: {deps: [{path: "a\\0b"}]}}\n')
    with pytest.raises(UserError, match=r"dvc\.lock is damaged \(stages\.clean\.deps\.0\.path"):
        Lock.read(tmp_path)
