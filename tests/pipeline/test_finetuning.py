"""Fine-tuning under real DVC: each method comes back from the cache, and no value reaches a command
or a path."""

import json
from pathlib import Path

import pytest

from tests.data.material import json_lines
from tests.pipeline.project import Project, ran
from tokenmill.formats.records import rounded
from tokenmill.runs.table import find_runs

pytestmark = pytest.mark.slow


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    """A file of short chats."""
    records = [{"instruction": f"{number}?", "response": f"{number}."} for number in range(99)]
    path = tmp_path / "chats.jsonl"
    path.write_bytes(json_lines(records))
    return path


def test_each_method_comes_back_from_the_cache(finished: Project, chats: Path) -> None:
    common = ("-S", f"finetune.data={chats}", "-S", "finetune.epochs=1")
    said = [
        finished.run(
            "dvc", "exp", "run", "-n", name, "-S", f"finetune.methods=[{method}]", *common, *only
        )
        for name, method, *only in (
            ("thin", "lora"),
            ("whole", "full", "evaluate_finetuned@full"),
            ("again", "lora", "evaluate_finetuned@lora"),
        )
    ]
    assert "base_text_loss" in finished.run("dvc", "metrics", "diff", "thin", "whole")
    assert {"finetune@lora", "evaluate_finetuned@lora"} <= set(ran(said[0]))
    assert {"finetune@full", "evaluate_finetuned@full"} <= set(ran(said[1]))
    assert not [name for name in ran(said[2]) if "finetune" in name]
    epoch = finished.root / "models/finetuned/epoch-1"
    assert (epoch / "adapter/adapter_model.safetensors").exists(), "not the weights of `lora`"
    metrics = json.loads((finished.root / "metrics/finetuned/eval.json").read_bytes())
    assert metrics["base_text_loss"] != metrics["base_text_loss_before"]
    assert {name: rounded(value) for name, value in metrics.items()} == metrics
    runs = find_runs(finished.root, commits=1).set_index("run")
    assert runs.loc["workspace", "base_text_loss"] == metrics["base_text_loss"]
    assert runs.loc["again", "chats_loss"] == runs.loc["thin", "chats_loss"] > 0
    assert finished.typed("runs").count("fine-tuned: loss") == 4, "each, and here"
    finished.run("git", "checkout", "params.yaml")
    assert not [name for name in ran(finished.repro()) if "finetune" in name]


def test_no_value_of_methods_reaches_a_command_or_a_path(finished: Project, chats: Path) -> None:
    victim = finished.root.parent / "victim"
    victim.mkdir()
    (victim / "kept.txt").write_text("kept")
    params = finished.root / "params.yaml"
    text = params.read_text()
    before = finished.digest("data/packed", "models", "reports")
    for methods in ('["lora; touch RAN"]', '["$(touch RAN)"]', '["../../victim"]', "[{lora: 1}]"):
        params.write_text(
            text.replace("  methods: []\n  data:", f"  methods: {methods}\n  data: {chats}")
        )
        for arguments in ([], ["-s", "finetune"]):
            assert "finetune.methods" in finished.run("dvc", "repro", *arguments, check=False)
    assert (victim / "kept.txt").read_text() == "kept"
    assert not list(finished.root.rglob("RAN"))
    assert finished.digest("data/packed", "models", "reports") == before


def test_chats_that_do_not_exist_are_refused_first(finished: Project) -> None:
    finished.set(finetune__methods=["lora"], finetune__data="/nope")
    said = finished.run("dvc", "repro", check=False)
    assert "finetune.data (/nope) does not exist" in said
    assert ran(said) == ["check"]
    assert "`git checkout params.yaml`" in said or "-S finetune.data=null" in said


def test_two_methods_at_a_time_are_refused(finished: Project, chats: Path) -> None:
    finished.set(finetune__methods=["full", "lora"], finetune__data=str(chats))
    said = finished.run("dvc", "repro", check=False)
    assert "finetune@full" in said
    assert "finetune@lora" in said
    assert not ran(said)
