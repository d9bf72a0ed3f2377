"""A second place for checkpoints: whole or not there, never in the way, and another machine
continues from it."""

import contextlib
import hashlib
import itertools
import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.imports import ROOT
from tests.training.fork_server import ForkServer
from tests.training.test_checkpoint import RESUMABLE, filled, found, row, trained
from tests.training.tiny import digest, run
from tests.waiting import wait_for
from tokenmill.core.errors import UserError
from tokenmill.model.manifest import WEIGHTS
from tokenmill.training.checkpoints import mirror as mirror_module
from tokenmill.training.checkpoints.mirror import Mirror, mirrored
from tokenmill.training.checkpoints.store import Checkpoint, CheckpointStore
from tokenmill.training.history import RunState


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "drive"
    folder.mkdir()
    return folder


def newest(checkpoints: Iterable[Checkpoint]) -> Checkpoint | None:
    """What a run chooses that can continue from any checkpoint."""
    return next(iter(checkpoints), None)


def mirror_to(store: CheckpointStore, url: Path | str) -> list[str]:
    """Copy what `store` has, and wait for it; give what was said."""
    said: list[str] = []
    with mirrored(store, str(url), newest, said.append):
        pass
    return said


def fetched(url: Path | str, folder: Path) -> tuple[list[int], list[str]]:
    """The checkpoints that another machine finds, and what it is told."""
    said: list[str] = []
    store = CheckpointStore(folder / "run")
    Mirror(str(url), store, said.append).fetch_better(newest)
    return found(store)[0], said


@pytest.fixture(params=["folder", "memory", "s3"])
def place(request: pytest.FixtureRequest, elsewhere: Path) -> str:
    if request.param == "s3":
        return f"{request.getfixturevalue('bucket')}/{request.node.name}"
    return str(elsewhere) if request.param == "folder" else f"memory://{request.node.name}"


def test_what_another_machine_fetches_is_what_was_saved(tmp_path: Path, place: str):
    store = filled(tmp_path / "here" / "run", 9, 25)
    assert mirror_to(store, place) == []
    steps, said = fetched(place, tmp_path / "there")
    assert steps == [25]
    assert said == [f"fetching the checkpoint of step 25 from the mirror {place}"]
    there = digest(tmp_path / "there" / "run")
    here = digest(tmp_path / "here" / "run")
    assert there == {
        name: sha256 for name, sha256 in here.items() if not name.startswith("step-000000009")
    }


def test_checkpoints_removed_here_are_removed_there(tmp_path: Path, place: str):
    store = CheckpointStore(tmp_path / "here" / "run")
    for steps in ((5,), (5, 10), (5, 10, 15)):
        filled(store.folder, *steps)
        mirror_to(store, place)
    assert fetched(place, tmp_path / "all")[0] == [15, 10, 5]
    store.prune(RunState(step=15), newest=1, also={5})
    mirror_to(store, place)
    assert fetched(place, tmp_path / "pruned")[0] == [15, 5]
    shutil.rmtree(store.folder)
    filled(store.folder, 7)  # a machine that could not read the mirror and began again
    mirror = Mirror(place, store, print)
    mirror.start()
    mirror.close()
    assert fetched(place, tmp_path / "begun again")[0] == [15, 7]


def test_weights_that_no_checkpoint_names_are_removed(tmp_path: Path, elsewhere: Path):
    mirror = Mirror(str(elsewhere), filled(tmp_path / "here" / "run", 10, 20), print)
    other = elsewhere / "run" / "weights" / ("0" * 64)
    not_weights = other.with_name("notes")
    for step, is_kept in ((20, False), (10, True)):
        other.mkdir(parents=True, exist_ok=True)
        not_weights.mkdir(exist_ok=True)
        mirror.copy(step)
        assert (other.exists(), not_weights.exists()) == (is_kept, True)


def test_the_newer_of_the_two_places_wins(tmp_path: Path, elsewhere: Path):
    mirror_to(filled(tmp_path / "a" / "run", 20), elsewhere)
    filled(tmp_path / "older" / "run", 10)
    assert fetched(elsewhere, tmp_path / "older")[0] == [20, 10]
    filled(tmp_path / "newer" / "run", 30)
    assert fetched(elsewhere, tmp_path / "newer") == ([30], [])


def test_only_checkpoints_that_a_choice_needs_are_hashed(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
):
    store = filled(tmp_path / "here" / "run", 10, 20, 30)
    mirror_to(store, elsewhere)
    hashed = mock.Mock(side_effect=store.checkpoint)
    monkeypatch.setattr(store, "checkpoint", hashed)
    Mirror(str(elsewhere), store, print).fetch_better(newest)
    assert [call.args for call in hashed.call_args_list] == [(30,)]
    shutil.rmtree(store.checkpoint_folder(30))
    hashed.reset_mock()
    Mirror(str(elsewhere), store, print).fetch_better(newest)
    assert [call.args for call in hashed.call_args_list] == [(20,), (10,)], "each once"
    assert found(store)[0] == [30, 20, 10], "and those here stay"


def test_an_earlier_checkpoint_of_another_run_stays_there(tmp_path: Path, elsewhere: Path):
    """Its epoch would replace the one that the newest checkpoint needs."""
    mirror_to(filled(tmp_path / "a" / "run", 20), elsewhere)
    Mirror(str(elsewhere), filled(tmp_path / "b" / "run", 15, seed=1), print).copy(15)
    assert (elsewhere / "run/step-000000015").exists()
    assert fetched(elsewhere, tmp_path / "there")[0] == [20]


def test_a_damaged_checkpoint_here_is_healed_from_there(tmp_path: Path, elsewhere: Path):
    store = filled(tmp_path / "a" / "run", 10, 20)
    mirror_to(store, elsewhere)
    (store.checkpoint_folder(20) / "state.json").write_text("{}")
    assert found(store)[0] == [10]
    assert fetched(elsewhere, tmp_path / "a")[0] == [20, 10]


def test_another_checkpoint_of_a_step_replaces_the_one_there(tmp_path: Path, place: str):
    mirror_to(filled(tmp_path / "a" / "run", 20), place)
    other = filled(tmp_path / "b" / "run", 5, 20)
    (other.checkpoint_folder(5) / "state.json").replace(other.checkpoint_folder(20) / "state.json")
    manifest = other.checkpoint_folder(5) / "manifest.json"
    # As saved by a run over other epochs
    manifest.replace(other.checkpoint_folder(20) / "manifest.json")
    mirror_to(other, place)
    fetched(place, tmp_path / "there")
    folder = CheckpointStore(tmp_path / "there" / "run").checkpoint_folder(20)
    assert digest(folder) == digest(other.checkpoint_folder(20))


def test_weights_stay_there_while_a_checkpoint_names_them(tmp_path: Path, elsewhere: Path):
    """A longer run has others at the end of the same epoch."""
    store = filled(tmp_path / "here" / "run", 10)
    mirror_to(store, elsewhere)
    model, optimizer = trained(seed=1)
    weights = [store.save_epoch(epoch, model)[WEIGHTS] for epoch in (1, 2)]
    state = RunState(step=25, epochs=[row(1), row(2)], epoch_weights=weights)
    store.save(state, model, optimizer.state(), RESUMABLE)
    mirror_to(store, elsewhere)
    there = {path.name for path in (elsewhere / "run/weights").iterdir()}
    assert there == {sha256 for _, sha256 in store.named_weights()}
    assert len(there) == 2


class KilledError(BaseException):
    """As abrupt as a kill."""


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_wherever_a_copy_ends_a_whole_checkpoint_is_there(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    """Copying the second checkpoint is cut after each of its writes and removals in turn."""
    store = filled(tmp_path / "here" / "run", 10)
    newer = CheckpointStore(tmp_path / "newer" / "run")
    model, optimizer = trained(seed=1)
    weights = [newer.save_epoch(1, trained()[0])[WEIGHTS], newer.save_epoch(2, model)[WEIGHTS]]
    state = RunState(step=25, epochs=[row(1), row(2)], epoch_weights=weights)
    newer.save(state, model, optimizer.state(), RESUMABLE)
    ends: list[list[int]] = []
    for allowed in itertools.count():
        url = (
            str(elsewhere / str(allowed))
            if kind == "folder"
            else f"memory://{tmp_path.name}-{allowed}"
        )
        if kind == "folder":
            Path(url).mkdir()
        mirror_to(store, url)
        left = iter(range(allowed))

        def limited(do: Callable[..., Any], left: Iterator[int] = left) -> Callable[..., Any]:
            def do_or_die(*arguments: Any, **keywords: Any) -> Any:
                if next(left, None) is None:
                    raise KilledError
                return do(*arguments, **keywords)

            return do_or_die

        mirror = Mirror(url, newer, print)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(mirror._fs, "put_file", limited(mirror._fs.put_file))
                patch.setattr(mirror._fs, "rm_file", limited(mirror._fs.rm_file))
                mirror.copy(25)
        except KilledError:
            ends.append(fetched(url, tmp_path / f"there {allowed}")[0])
            mirror_to(newer, url)  # the same again, whole this time
            fetched(url, tmp_path / f"again {allowed}")
            assert digest(tmp_path / f"again {allowed}" / "run" / "epochs") == digest(newer.epochs)
        else:
            break
    assert len(ends) >= 8
    assert all(steps and steps[0] in (10, 25) for steps in ends)
    assert ends[0] == [10]
    assert ends[-1][0] == 25


COPIER = """
import resource, signal, sys
from pathlib import Path
from tokenmill.training.checkpoints.mirror import mirrored
from tokenmill.training.checkpoints.store import CheckpointStore
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
with mirrored(CheckpointStore(Path(sys.argv[1])), sys.argv[2], lambda _: None, print):
    pass
"""
"""The kernel kills it where a file grows beyond 1 MiB."""


def test_a_copy_killed_midway_leaves_the_checkpoint_before(tmp_path: Path, elsewhere: Path):
    store = filled(tmp_path / "here" / "run", 10)
    mirror_to(store, elsewhere)
    filled(store.folder, 20)
    large = store.checkpoint_folder(20) / "optimizer.safetensors"
    with large.open("ab") as file:
        file.truncate(1 << 22)
    copier = subprocess.run(
        [sys.executable, "-c", COPIER, str(store.folder), str(elsewhere)],
        env={"PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert copier.returncode == -signal.SIGXFSZ
    half = elsewhere / "run" / "step-000000020" / ".optimizer.safetensors.tmp"
    assert half.stat().st_size == 1 << 20
    assert fetched(elsewhere, tmp_path / "there")[0] == [10]
    filled(store.folder, 30)
    shutil.rmtree(store.checkpoint_folder(20))
    mirror_to(store, elsewhere)
    assert not half.parent.exists()


@contextlib.contextmanager
def unplugged(store: CheckpointStore, drive: Path, away: Path, said: list[str]) -> Iterator[Mirror]:
    """A mirror whose drive went away once it had the checkpoint of step 10."""
    with mirrored(store, str(drive), newest, said.append) as mirror:
        assert mirror
        wait_for((drive / "run/step-000000010/manifest.json").exists)
        drive.rename(away)
        yield mirror


def test_a_mirror_that_fails_is_said_once_and_tried_again(tmp_path: Path, elsewhere: Path):
    store = filled(tmp_path / "here" / "run", 10)
    said = list[str]()
    with unplugged(store, elsewhere, tmp_path / "unplugged", said) as mirror:
        for step in (11, 12, 13):
            filled(store.folder, step)
            mirror.offer(step)
            wait_for(mirror._steps.empty)
        assert not elsewhere.exists(), "nothing is written below a drive that is gone"
        (tmp_path / "unplugged").rename(elsewhere)
    assert len(said) == 2
    assert said[0].startswith(f"the mirror {elsewhere} did not take the checkpoint of step 11 (")
    assert "the folder is gone" in said[0]
    assert said[0].endswith("; training continues, and every later checkpoint is tried again")
    assert said[1] == f"the mirror {elsewhere} takes checkpoints again"
    assert fetched(elsewhere, tmp_path / "there")[0] == [13, 10]


@pytest.mark.parametrize("during_training", [True, False])
def test_the_end_names_the_checkpoint_a_mirror_lacks(
    tmp_path: Path, elsewhere: Path, during_training: bool
):
    store = filled(tmp_path / "here" / "run", 10)
    said = list[str]()
    with unplugged(store, elsewhere, tmp_path / "unplugged", said) as mirror:
        filled(store.folder, 11)
        if during_training:
            mirror.offer(11)
            wait_for(lambda: said)
        filled(store.folder, 12)
        mirror._is_ending = not during_training  # `close` may come before the thread's first try
        mirror.offer(12)
    assert ["training continues" in sentence for sentence in said] == [during_training, False]
    assert "step 12" in said[-1]


def test_only_the_newest_is_copied_next(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
):
    begun, go_on = threading.Event(), threading.Event()
    copied = list[int]()

    def copy(_: Mirror, step: int) -> None:
        copied.append(step)
        begun.set()
        assert go_on.wait(60)

    monkeypatch.setattr(Mirror, "copy", copy)
    store = CheckpointStore(tmp_path / "here" / "run")
    with mirrored(store, str(elsewhere), newest, print) as mirror:
        assert mirror
        for step in (10, 11, 12):
            mirror.offer(step)
            assert begun.wait(60)
        go_on.set()
    assert copied == [10, 12]


def test_half_of_the_weights_there_are_replaced(tmp_path: Path, elsewhere: Path):
    """As a drive without atomic renames may leave them."""
    store = filled(tmp_path / "here" / "run", 10)
    mirror_to(store, elsewhere)
    (weights,) = elsewhere.glob(f"run/weights/*/{WEIGHTS}")
    weights.write_bytes(weights.read_bytes()[:-9])
    mirror_to(store, elsewhere)
    assert fetched(elsewhere, tmp_path / "there") == (
        [10],
        [f"fetching the checkpoint of step 10 from the mirror {elsewhere}"],
    )


def test_a_checkpoint_of_another_step_is_not_used(tmp_path: Path, elsewhere: Path):
    mirror_to(filled(tmp_path / "here" / "run", 10, 20), elsewhere)
    (elsewhere / "run/step-000000020").rename(elsewhere / "run/step-000000030")
    steps, said = fetched(elsewhere, tmp_path / "there")
    assert 30 not in steps
    assert "step 30" in said[0]
    assert said[0].endswith("is not used: it is of step 20")


def test_the_end_waits_for_a_slow_mirror_but_not_forever(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mirror_module, "SAY_AFTER_SECONDS", 0.01)
    monkeypatch.setattr(mirror_module, "WAIT_SECONDS", 0.05)
    end = threading.Event()
    monkeypatch.setattr(Mirror, "copy", lambda *_: end.wait(60))
    store = CheckpointStore(tmp_path / "here" / "run")
    said = list[str]()
    with mirrored(store, str(elsewhere), newest, said.append) as mirror:
        assert mirror
        mirror.offer(10)
    end.set()
    assert [sentence.split(str(elsewhere))[0] for sentence in said] == [
        "copying the last checkpoint to ",
        "the mirror ",
    ]
    assert "was too slow for the last checkpoint" in said[1]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("/nowhere/at/all", "is no folder; mount the drive, or make the folder"),
        ("nonsense://x", "cannot be used: Protocol not known"),
        ("ftp://127.0.0.1:9/x", "network"),
    ],
)
def test_a_mirror_that_cannot_work_is_refused_at_the_start(tmp_path: Path, url: str, reason: str):
    with pytest.raises(UserError, match=reason):
        mirror_to(CheckpointStore(tmp_path / "run"), url)


def test_another_machine_continues_to_the_same_bytes(
    here: Path, tokens: Path, fork_server: ForkServer, elsewhere: Path
):
    """One is killed, the next reaches its time limit, the third ends: three machines, one
    mirror."""
    arguments: dict[str, Any] = {
        "epochs": 12,
        "log_every_steps": 1,
        "optimizer": "muon",
        "model": {"dropout": 0.2},
    }
    run(tokens, here / "quiet", **arguments)
    checkpoint = {"every_steps": 4, "mirror": str(elsewhere)}
    first = fork_server.start(
        here / "first", tokens, **arguments, runtime={"checkpoint": checkpoint}
    )
    first.until(lambda: any(elsewhere.glob("*/step-*/manifest.json")))
    assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    limited = {"checkpoint": checkpoint, "max_minutes": 0.05 / 60}
    second = fork_server.start(here / "second", tokens, **arguments, runtime=limited)
    assert second.wait() == 1
    last = second.checkpoints()[-1].name
    assert (elsewhere / second.checkpoints()[-1].parent.name / last / "manifest.json").exists()
    shutil.rmtree(here / "second")
    third = fork_server.start(
        here / "third", tokens, **arguments, runtime={"checkpoint": checkpoint}
    )
    assert third.wait() == 0
    assert f"continuing from step {int(last[5:])} of 60" in third.said
    assert digest(here / "third" / "model") == digest(here / "quiet")
    seconds = [
        float(line.split(",")[1])
        for line in (here / "third" / "timing.csv").read_text().splitlines()[1:]
    ]
    assert seconds == sorted(seconds)
    assert len(seconds) == 60, "the table of times came along"


def change(path: Path, edit: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))


def test_a_longer_run_in_the_mirror_is_left_alone(
    here: Path, tokens: Path, fork_server: ForkServer, elsewhere: Path
):
    """With a schedule over all epochs, a run over fewer has other weights after each."""
    arguments: dict[str, Any] = {"log_every_steps": 1, "schedule": {"type": "cosine"}}
    checkpoint = {"every_steps": 4, "mirror": str(elsewhere)}
    long = fork_server.start(
        here / "long", tokens, epochs=12, **arguments, runtime={"checkpoint": checkpoint}
    )
    assert long.wait() == 0
    arguments |= {"epochs": 8}
    run(tokens, here / "quiet", **arguments)
    arguments |= {"runtime": {"checkpoint": checkpoint}}
    short = fork_server.start(here / "short", tokens, **arguments)
    short.until(lambda: any(int(step.name[5:]) >= 12 for step in short.checkpoints()))
    assert short.stop(signal.SIGKILL) == -signal.SIGKILL
    for place in ("short", "elsewhere"):
        again = fork_server.start(here / place, tokens, **arguments)
        assert again.wait() == 0
        assert "continuing from step" in again.said
        assert digest(here / place / "model") == digest(here / "quiet")


@pytest.mark.parametrize(
    "damage", ["weights", "optimizer", "no state", "outside", "absolute", "epoch"]
)
def test_nothing_damaged_or_misnamed_replaces_local_files(
    tmp_path: Path, elsewhere: Path, damage: str
):
    """The older checkpoint of the mirror, which is right, is used instead."""
    mirror_to(filled(tmp_path / "a" / "run", 15), elsewhere)
    mirror_to(filled(tmp_path / "a" / "run", 15, 25), elsewhere)
    newest = elsewhere / "run" / "step-000000025"
    if damage == "weights":
        weights = max((elsewhere / "run" / "weights").iterdir()) / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    elif damage == "optimizer":
        with (newest / "optimizer.safetensors").open("ab") as file:
            file.write(b"x")
    elif damage == "no state":
        change(newest / "manifest.json", lambda names: names.pop("state.json") and names)
    elif damage == "epoch":
        change(
            newest / "state.json",
            lambda state: state | {"state": {"epoch_weights": ["../../../secret"]}},
        )
        sha256 = hashlib.sha256((newest / "state.json").read_bytes()).hexdigest()
        change(newest / "manifest.json", lambda names: names | {"state.json": sha256})
    else:
        name = "../outside" if damage == "outside" else str(tmp_path / "outside")
        change(newest / "manifest.json", lambda names: {name: "0" * 64} | names)
    store = filled(tmp_path / "here" / "run", 10)
    before = digest(store.epochs)
    steps, said = fetched(elsewhere, tmp_path / "here")
    assert 25 not in steps
    assert 10 in steps
    assert any("step 25" in sentence and "not used" in sentence for sentence in said)
    assert digest(store.epochs) == before
    assert not list(tmp_path.rglob("outside"))


PLACES = [
    "",
    "timing.csv",
    "weights",
    "weights/{sha256}",
    "weights/{sha256}/model.safetensors",
    "step-000000010",
    "step-000000010/manifest.json",
    "step-000000010/optimizer.safetensors",
    "step-000000005",
    "step-000000005/manifest.json",
]
"""In the folder of a run, where somebody may put a link."""


def linked(run: Path, place: str, outside: Path) -> None:
    """Move what is at a place of the mirror to `outside`, and put a link there."""
    weights = max((run / "weights").iterdir()).name
    path = run / place.format(sha256=weights)
    path.rename(outside)
    path.symlink_to(outside, target_is_directory=outside.is_dir())


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def two_steps(folder: Path) -> CheckpointStore:
    store = filled(folder / "run", 5, 10)
    (store.folder / "timing.csv").write_text("step,seconds,tokens_per_second,units,money\n")
    return store


@pytest.mark.parametrize("place", PLACES)
def test_copying_follows_no_link_in_the_mirror(tmp_path: Path, elsewhere: Path, place: str):
    """Not to write, not to remove, not to look whether something is there already."""
    store = two_steps(tmp_path / "a")
    for step in (5, 10):
        Mirror(str(elsewhere), store, print).copy(step)
    linked(elsewhere / "run", place, tmp_path / "outside")
    if (tmp_path / "outside").is_file():
        (tmp_path / "outside").write_text("kept")
    before = contents(tmp_path / "outside")
    store.prune(RunState(step=10), newest=1, also=set())
    (store.folder / "timing.csv").write_text("step,seconds,tokens_per_second,units,money\n\n")
    said = mirror_to(store, elsewhere)
    assert contents(tmp_path / "outside") == before
    needed = ("", "weights", "weights/{sha256}", "step-000000010")  # folders that are written
    assert any("did not take the checkpoint of step 10" in each for each in said) == (
        place in needed
    )


@pytest.mark.parametrize("place", PLACES)
def test_fetching_follows_no_link_in_the_mirror(tmp_path: Path, elsewhere: Path, place: str):
    store = two_steps(tmp_path / "a")
    for step in (5, 10):
        Mirror(str(elsewhere), store, print).copy(step)
    linked(elsewhere / "run", place, tmp_path / "outside")
    steps, _ = fetched(elsewhere, tmp_path / "there")
    without_10 = place.startswith(("weights", "step-000000010"))
    without_5 = place.startswith("step-000000005")
    expected = [step for step, left_out in ((10, without_10), (5, without_5)) if not left_out]
    assert steps == (expected if place else [])
    assert (tmp_path / "there/run/timing.csv").exists() == (place not in ("", "timing.csv"))


def test_removing_follows_no_link_in_the_mirror(tmp_path: Path, elsewhere: Path):
    store = filled(tmp_path / "a" / "run", 5, 10)
    for step in (5, 10):
        mirror = Mirror(str(elsewhere), store, print)
        mirror.copy(step)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    (elsewhere / "run" / "step-000000005" / "link").symlink_to(
        tmp_path / "kept", target_is_directory=True
    )
    store.prune(RunState(step=10), newest=1, also=set())
    mirror_to(store, elsewhere)
    assert not (elsewhere / "run" / "step-000000005").exists()
    assert (tmp_path / "kept" / "file").read_text() == "kept"
