"""Another machine: what a clone must fetch, what it must run, and that it can train on."""

import shutil

import pytest

from tests.pipeline.project import Project

pytestmark = pytest.mark.slow


def test_an_experiment_travels_by_its_name(finished: Project) -> None:
    """With the default remote by its whole path, as docs/sharing.md says."""
    whole = 'dvc remote modify --local beside url "$PWD/../tokenmill-remote"'
    finished.run("git", "init", "-q", "--bare", "../origin.git")
    finished.run("git", "remote", "add", "origin", "../origin.git")
    finished.run("sh", "-c", whole)
    finished.run("dvc", "exp", "run", "-n", "short", "-S", "train.epochs=1", "train")
    finished.run("dvc", "exp", "push", "origin", "short")
    clone = finished.clone("clone")
    clone.run("git", "remote", "set-url", "origin", "../origin.git")
    clone.run("sh", "-c", whole)
    clone.run("dvc", "exp", "pull", "origin", "short")
    clone.run("dvc", "exp", "apply", "short")
    assert clone.digest("models") == finished.digest("models")
    finished.run("dvc", "push", "-q", "--all-commits")
    assert (finished.root.parent / "tokenmill-remote").is_dir()


def test_more_epochs_continue_bit_for_bit_here_and_in_a_clone(finished: Project) -> None:
    """From the checkpoints here, from the model that a clone pulls, and from nothing."""
    outputs = ("models", "metrics/history.csv")
    finished.run("dvc", "push")
    clone = finished.clone("clone")
    clone.run("dvc", "pull", "tokenize")
    clone.set(train__epochs=3)
    output = clone.repro("train")
    assert "fetching the checkpoints of the previous models/gpt" in output
    assert "2 epochs done, 1 to go" in output
    finished.set(train__epochs=3)
    assert "starting from scratch" not in finished.repro("train")
    continued = finished.digest(*outputs)
    assert clone.digest(*outputs) == continued
    finished.forget_training()
    assert "starting from scratch" in finished.repro("train")
    assert finished.digest(*outputs) == continued


def test_another_repository_imports_a_released_model(finished: Project) -> None:
    finished.run("dvc", "push", "train")
    finished.run("gto", "register", "gpt", "--version", "v1.0.0")
    other = Project.new(finished.root.parent / "other")
    other.run("dvc", "artifacts", "get", str(finished.root), "gpt", "--rev", "v1.0.0", "-o", "got")
    other.run("dvc", "import", "-q", str(finished.root), "models/gpt", "--rev", "gpt@v1.0.0")
    folders = (other.root / "got", other.root / "gpt", finished.root / "models/gpt")
    assert len({Project(folder).digest(".") for folder in folders}) == 1
    assert "rev: gpt@v1.0.0" in (other.root / "gpt.dvc").read_text()


def test_a_merge_leaves_one_sides_lock_whole(finished: Project) -> None:
    lock = finished.root / "dvc.lock"
    before = lock.read_text()
    first = before.splitlines()[0]
    last = before.splitlines()[-1]
    for branch, line in (("theirs", first), ("ours", last)):
        finished.run("git", "switch", "-q", "-C", branch, "main")
        lock.write_text(
            before.replace(line, f"{line} # {branch}").replace("  train:", f"  train: # {branch}")
        )
        finished.commit()
    ours = lock.read_text()
    finished.run("git", "merge", "theirs", check=False)
    assert lock.read_text() == ours
    assert finished.run("git", "diff", "--name-only", "--diff-filter=U") == "dvc.lock\n"


def test_without_tokens_the_sentence_says_what_to_do(finished: Project) -> None:
    shutil.rmtree(finished.root / "data/tokens")
    output = finished.run("python", "-m", "stages", "train", check=False)
    assert "data/tokens/metadata.json is missing" in output
    assert "Traceback" not in output
