"""Several processes that train one model give the numbers of one, and stop, diverge and continue
together."""

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest
import torch
from filelock import FileLock

from tests.training.fork_server import ForkServer, Trainer
from tests.training.test_killed import rows
from tests.training.tiny import (
    assert_same_to_rounding,
    digest,
    history,
    run,
    runtime_params,
    write_tokens,
)
from tokenmill.core.errors import UserError
from tokenmill.model.config import Architecture
from tokenmill.training import launch
from tokenmill.training.compile import missing_compiler
from tokenmill.training.distributed import STEP_TIMEOUT, Group, process_group

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks")

CASES: dict[str, dict[str, Any]] = {
    "uneven last step": {"batch_size": 4},
    "one has nothing to do": {"batch_size": 1},
    "accumulation": {
        "batch_size": 2,
        "gradient_accumulation_steps": 3,
        "runtime": {"micro_batch_size": 1},
    },
    "muon, three matrices of a shape": {
        "optimizer": "muon",
        "learning_rate": 2e-3,
        "model": {"n_layer": 3},
    },
    "gpt2": {"batch_size": 5, "model": {"architecture": "gpt2"}},
    "averaged weights": {"batch_size": 4, "average_power": 2.0},
}


def wait(trainers: list[Trainer]) -> list[int]:
    return [trainer.wait() for trainer in trainers]


@pytest.mark.parametrize("case", CASES)
def test_two_processes_give_the_numbers_of_one(
    here: Path, tokens: Path, fork_server: ForkServer, case: str
):
    if case == "one has nothing to do":
        tokens = write_tokens(here / "tokens", sequences=5, val=0)
    two = fork_server.together(here / "two", tokens, log_every_steps=1, **CASES[case])
    run(tokens, here / "one" / "model", log_every_steps=1, **CASES[case])
    assert wait(two) == [0, 0], two[0].said + two[1].said
    assert "2 x cpu" in two[0].said
    assert two[1].said == "", "one speaks for all"
    assert_same_to_rounding(here / "two", here / "one")


@pytest.mark.slow
@pytest.mark.parametrize("architecture", get_args(Architecture))
def test_a_sharded_model_gives_the_numbers_of_a_whole_one(
    tmp_path: Path, tokens: Path, fork_server: ForkServer, architecture: str
):
    """Also if it continues from the checkpoint of a model that is not sharded, and the other way
    round; and with averaged weights."""
    arguments: dict[str, Any] = {
        "log_every_steps": 1,
        "batch_size": 3,
        "average_power": 2.0,
        "model": {"architecture": architecture},
    }
    cut: dict[str, Any] = arguments | {"runtime": {"parallel": "fsdp", "micro_batch_size": 1}}
    one = fork_server.start(tmp_path / "one", tokens, epochs=3, **arguments)
    assert wait(fork_server.together(tmp_path / "run", tokens, epochs=1, **cut)) == [0, 0]
    assert wait(fork_server.together(tmp_path / "run", tokens, epochs=2, **arguments)) == [0, 0]
    last = fork_server.together(tmp_path / "run", tokens, epochs=3, **cut)
    assert [one.wait(), *wait(last)] == [0, 0, 0], last[0].said + last[1].said
    assert "continuing from step 14 of 21" in last[0].said
    assert_same_to_rounding(tmp_path / "run", tmp_path / "one")


def test_process_0_measures_for_a_sharded_model(monkeypatch: pytest.MonkeyPatch):
    """Else GPUs of two kinds might round to both sides of a target loss."""
    monkeypatch.setattr(Group, "broadcast", lambda _, value: value - 1.0)
    assert Group(rank=1, size=2, shards=True).average(3.0, weight=7) == 2.0


def test_measuring_the_average_changes_no_sharded_step(
    tmp_path: Path, tokens: Path, fork_server: ForkServer
):
    """Without a checkpoint after the validation, which would gather the weights again."""
    arguments: dict[str, Any] = {
        "average_power": 2.0,
        "runtime": {"parallel": "fsdp", "checkpoint": {"every_steps": None}},
    }
    plain = fork_server.together(tmp_path / "plain", tokens, **arguments)
    often = fork_server.together(tmp_path / "often", tokens, validate_every_steps=2, **arguments)
    assert wait(plain + often) == [0] * 4
    assert history(tmp_path / "often") == history(tmp_path / "plain")


@pytest.mark.parametrize("architecture", ["gpt2", "modern"])
def test_weights_that_travel_in_half_precision_are_enough(
    here: Path, tokens: Path, fork_server: ForkServer, architecture: str
):
    arguments: dict[str, Any] = {
        "precision": "bfloat16",
        "epochs": 1,
        "model": {"architecture": architecture},
    }
    cut = {"parallel": "fsdp", "micro_batch_size": 1}
    both = fork_server.together(here / "run", tokens, runtime=cut, **arguments)
    run(tokens, here / "one" / "model", **arguments)
    assert wait(both) == [0, 0], both[0].said
    assert history(here / "run") == pytest.approx(history(here / "one"), rel=1e-2)


def test_whole_gradients_that_fit_are_reduced_once_a_step(
    tmp_path: Path, tokens: Path, fork_server: ForkServer
):
    """18 of 19 sequences in 3 steps, and 1 in the last; a process alone with room cannot leave the
    others out."""
    arguments: dict[str, Any] = {"epochs": 1, "log_every_steps": 1, "batch_size": 6}
    # Of parameters: two blocks and the rest
    groups = 3
    runtime = {"parallel": "fsdp", "micro_batch_size": 1}
    for roomy, micro_batches in (([0, 1], 4), ([0], 3 * 3 + 1)):
        both = fork_server.together(
            tmp_path / str(roomy), tokens, runtime=runtime, roomy=roomy, **arguments
        )
        assert wait(both) == [0, 0], both[0].said
        assert [one.said.split()[-2:] for one in both] == [
            [str(groups * micro_batches), "reductions"]
        ] * 2
    assert_same_to_rounding(tmp_path / "[0, 1]", tmp_path / "[0]")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"optimizer": "muon"}, "train.optimizer (muon)"),
        ({"precision": "float16"}, "(train.precision: float16)"),
    ],
)
def test_what_a_sharded_model_cannot_have_is_refused(
    tmp_path: Path, tokens: Path, fork_server: ForkServer, changes: dict[str, Any], expected: str
):
    both = fork_server.together(tmp_path / "run", tokens, **changes, runtime={"parallel": "fsdp"})
    assert wait(both) == [1, 1]
    assert expected in both[0].said


def test_the_same_run_gives_the_same_bytes(tmp_path: Path, tokens: Path, fork_server: ForkServer):
    """With dropout, for each process draws its own."""
    for name in ("a", "b"):
        assert wait(
            fork_server.together(
                tmp_path / name, tokens, epochs=1, model={"dropout": 0.3}, optimizer="muon"
            )
        ) == [0, 0]
    assert digest(tmp_path / "a" / "model") == digest(tmp_path / "b" / "model")


def test_each_process_may_read_its_tokens_from_another_place(
    tmp_path: Path, tokens: Path, fork_server: ForkServer
):
    """As `auto` chooses where one machine has less memory, or where the first process took it."""
    for name, place in (("same", "mmap"), ("other", "memory")):
        there = {"runtime": {"token_placement": place}}
        both = fork_server.together(tmp_path / name, tokens, epochs=1, others=there)
        assert wait(both) == [0, 0], both[0].said + both[1].said
    assert digest(tmp_path / "same" / "model") == digest(tmp_path / "other" / "model")


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({"learning_rate": 0.02}, "train.learning_rate (0.02, and 0.01 there)"),
        ({"epochs": 3}, "epochs (3, and 2 there)"),
        (
            {"runtime": {"checkpoint": {"every_steps": 4}}},
            "runtime.checkpoint.every_steps (4, and 3 there)",
        ),
        ({"tokens": "others"}, "process 0: tokens.train ("),
    ],
    ids=["rate", "epochs", "checkpoints", "tokens"],
)
def test_a_process_that_would_train_another_run_says_so(
    tmp_path: Path, tokens: Path, fork_server: ForkServer, others: dict[str, Any], expected: str
):
    """As on a second machine with another params.yaml: the average would be of two runs."""
    if "tokens" in others:
        others = {"tokens": str(write_tokens(tmp_path / "tokens", sequences=19, seed=1))}
    both = fork_server.together(tmp_path / "run", tokens, others=others)
    assert wait(both) == [1, 1]
    assert expected in both[1].said
    assert not both[0].checkpoints()


@pytest.mark.parametrize("sizes", [(2, 1), pytest.param((2, 3), marks=pytest.mark.slow)], ids=str)
def test_a_run_continues_in_another_number_of_processes(
    here: Path, tokens: Path, fork_server: ForkServer, sizes: tuple[int, int]
):
    arguments: dict[str, Any] = {"log_every_steps": 1, "batch_size": 6}
    first, then = sizes
    before = fork_server.together(here / "run", tokens, size=first, epochs=1, **arguments)
    run(tokens, here / "one" / "model", **arguments)
    assert wait(before) == [0] * first
    again = fork_server.together(here / "run", tokens, size=then, **arguments)
    assert wait(again) == [0] * then
    assert "continuing from step 4 of 8" in again[0].said
    assert_same_to_rounding(here / "run", here / "one")


LONG: dict[str, Any] = {
    "epochs": 12,
    "log_every_steps": 1,
    "optimizer": "muon",
    "model": {"dropout": 0.2},
    "batch_size": 2,
    "gradient_accumulation_steps": 2,
}


@pytest.fixture(scope="module")
def quiet(
    tmp_path_factory: pytest.TempPathFactory, tokens: Path, fork_server: ForkServer
) -> dict[str, str]:
    """The files of two processes' run without an interruption."""
    root = tmp_path_factory.mktemp("quiet")
    assert wait(fork_server.together(root, tokens, **LONG)) == [0, 0]
    return digest(root / "model")


@pytest.mark.parametrize("who", [pytest.param(0, marks=pytest.mark.slow), 1], ids=["main", "other"])
def test_signal_to_one_stops_both_after_the_same_step(
    tmp_path: Path, tokens: Path, fork_server: ForkServer, quiet: dict[str, str], who: int
):
    arguments: dict[str, Any] = LONG | {"runtime": {"checkpoint": {"every_steps": None}}}
    both = fork_server.together(tmp_path / "run", tokens, **arguments)
    both[0].until(lambda: rows(tmp_path / "run") > 7)
    os.kill(both[who].pid, signal.SIGTERM)
    assert wait(both) == [1, 1]
    last = int(both[0].checkpoints()[-1].name[5:])
    why = "stopped by SIGTERM" if who == 0 else "another process was stopped"
    assert f"error: {why} after step {last} of 60; everything up to there is saved" in both[0].said
    assert both[1].said == ""
    again = fork_server.together(tmp_path / "run", tokens, **arguments)
    assert wait(again) == [0, 0]
    assert f"continuing from step {last} of 60" in again[0].said
    assert digest(tmp_path / "run" / "model") == quiet


def test_divergence_ends_both_with_one_sentence(
    tmp_path: Path, tokens: Path, fork_server: ForkServer
):
    both = fork_server.together(
        tmp_path / "run",
        tokens,
        learning_rate=3e37,
        schedule={"warmup_steps": 1000},
        model={"architecture": "gpt2"},
    )
    assert wait(both) == [1, 1]
    last = int(both[0].checkpoints()[-1].name[5:])
    assert f"error: training diverged in step {last + 1}," in both[0].said
    assert both[1].said == ""


def test_checkpoints_by_the_clock_follow_the_main_process(
    tmp_path: Path, tokens: Path, fork_server: ForkServer
):
    """The followers' clocks differ; were they asked, one would wait for the others in vain."""
    arguments: dict[str, Any] = LONG | {
        "epochs": 4,
        "runtime": {"checkpoint": {"every_steps": None, "every_seconds": 0.001}},
    }
    assert wait(fork_server.together(tmp_path / "run", tokens, **arguments)) == [0, 0]


def test_a_checkpoint_by_the_clock_is_written_once(
    tmp_path: Path, tokens: Path, fork_server: ForkServer
):
    """The first one is due after a third of ten steps, and all know it a step later."""
    checkpoint = {"every_steps": None, "every_seconds": 1000.0, "keep": 9}
    both = fork_server.together(
        tmp_path / "run", tokens, epochs=1, batch_size=2, runtime={"checkpoint": checkpoint}
    )
    assert wait(both) == [0, 0]
    assert [int(path.name[5:]) for path in both[0].checkpoints()] == [5, 10]


def test_waiting_for_another_run_takes_no_minutes(
    tmp_path: Path, tokens: Path, fork_server: ForkServer
):
    """Also in the processes that wait for the one that waits."""
    assert wait(fork_server.together(tmp_path / "run", tokens, epochs=1)) == [0, 0]
    with FileLock(next(tmp_path.glob("run/.resume/*/lock"))):
        runtime = {"max_minutes": 1 / 60}
        both = fork_server.together(tmp_path / "run", tokens, epochs=100_000, runtime=runtime)
        both[0].until(lambda: "waiting for it to end" in both[0].said)
        time.sleep(2)
    assert wait(both) == [1, 1]
    assert "error: stopped by runtime.max_minutes" in both[0].said


@pytest.mark.slow
def test_two_processes_killed_at_random_end_in_the_same_bytes(
    tmp_path: Path, tokens: Path, fork_server: ForkServer, quiet: dict[str, str]
):
    arguments: dict[str, Any] = LONG | {"runtime": {"checkpoint": {"every_steps": 7}}}
    draws = random.Random(0)
    killed = 0
    both = fork_server.together(tmp_path / "run", tokens, **arguments)
    for _ in range(4):
        before = rows(tmp_path / "run")
        more = draws.randrange(1, 12)
        both[0].until(lambda: rows(tmp_path / "run") >= min(60, before + more))  # noqa: B023
        for victim in draws.choice(([0], [1], [0, 1])):
            os.kill(both[victim].pid, signal.SIGKILL)
        codes = wait(both)
        killed += -signal.SIGKILL in codes
        both = fork_server.together(tmp_path / "run", tokens, **arguments)
    assert wait(both) == [0, 0]
    assert killed >= 3
    assert digest(tmp_path / "run" / "model") == quiet


@pytest.fixture
def launched(tmp_path: Path, tokens: Path, fork_server: ForkServer) -> Iterator[Trainer]:
    """A stage that trains in two processes of its own, in the middle of it."""
    stage = fork_server.start(
        tmp_path / "run", tokens, **(LONG | {"epochs": 100_000, "runtime": {"processes": 2}})
    )
    stage.until(lambda: rows(tmp_path / "run") >= 5)
    yield stage
    assert not [
        p
        for p in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(p.info["cmdline"] or [])
    ]


def members(stage: Trainer) -> dict[str, psutil.Process]:
    """The processes of a stage by their rank; each is a new Python."""
    return {child.environ()["RANK"]: child for child in psutil.Process(stage.pid).children()}


def addresses(stage: Trainer) -> set[str]:
    """Where the processes of a stage listen."""
    group = [psutil.Process(stage.pid), *members(stage).values()]
    return {
        c.laddr.ip for p in group for c in p.net_connections() if c.status == psutil.CONN_LISTEN
    }


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=["Ctrl-C", "terminal"])
def test_a_signal_to_a_stage_of_two_processes_saves_once(launched: Trainer, number: signal.Signals):
    assert members(launched).keys() == {"0", "1"}
    if sys.platform == "linux":  # other systems choose the interface otherwise
        assert addresses(launched) == {"127.0.0.1"}
    assert launched.stop(number) == 1
    last = int(launched.checkpoints()[-1].name[5:])
    assert launched.said.count("error:") == 1
    stopped = f"error: stopped by {number.name} after step {last:,} of 500,000"
    assert f"{stopped}; everything up to there is saved" in launched.said


def ignores_sigterm(process: int) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    ignored = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc says when the first one has arrived")
def test_a_second_ctrl_c_ends_processes_that_hang(launched: Trainer):
    """One is suspended and the other waits for it, so neither comes to save."""
    members(launched)["1"].suspend()
    os.kill(launched.pid, signal.SIGINT)
    launched.until(lambda: ignores_sigterm(launched.pid))
    assert launched.stop(signal.SIGINT) == 130
    assert launched.said.splitlines()[-1] == "interrupted"


@pytest.mark.slow
def test_a_killed_launcher_leaves_a_checkpoint_no_process(launched: Trainer):
    processes = members(launched)
    launched.stop(signal.SIGKILL)
    psutil.wait_procs(processes.values(), timeout=60)
    last = int(launched.checkpoints()[-1].name[5:])
    assert f" after step {last:,} of" in launched.said


@pytest.mark.slow
def test_a_killed_process_ends_the_others_and_is_named(launched: Trainer):
    members(launched)["1"].kill()
    assert launched.wait() == 1
    said = launched.said.splitlines()
    assert said[-1].startswith("error: a process of this training was killed by SIGKILL")
    assert "Traceback" not in launched.said


@pytest.mark.parametrize(
    ("codes", "killed"),
    [([1, -15], None), ([-15, 1], None), ([1, -9], "SIGKILL"), ([-15, -15], "SIGTERM")],
)
def test_only_a_signal_from_outside_is_named(codes: list[int], killed: str | None):
    """The launcher ends the others with SIGTERM when one has failed and said why."""
    with pytest.raises((UserError, SystemExit)) as caught:
        launch.exit_like(codes)
    if killed:
        assert killed in str(caught.value)
    else:
        assert caught.value.code == 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.slow
def test_memory_out_in_a_group_ends_all_with_what_to_type(
    tmp_path: Path, tokens: Path, fork_server: ForkServer
):
    arguments: dict[str, Any] = {"log_every_steps": 1, "batch_size": 6}
    one = fork_server.start(tmp_path / "one", tokens, **arguments)
    for expected in (1, 0):
        two = fork_server.together(tmp_path / "two", tokens, update_holds=1, **arguments)
        assert wait(two) == [expected] * 2, two[0].said
    assert one.wait() == 0
    assert_same_to_rounding(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
def test_torchruns_processes_find_each_other(tmp_path: Path, tokens: Path, fork_server: ForkServer):
    """Its own processes only say what it gives them, and wait."""
    one = fork_server.start(tmp_path / "one", tokens, log_every_steps=1)
    (tmp_path / "two").mkdir()
    say = (
        'env -0 > "environ.$RANK" && mv "environ.$RANK" "environ-$RANK" && '
        "until [ -e done ]; do sleep 0.1; done"
    )
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "--no-python",
    ]
    with subprocess.Popen([*torchrun, "sh", "-c", say], cwd=tmp_path) as agent:
        given = [tmp_path / f"environ-{rank}" for rank in range(2)]
        one.until(lambda: all(path.exists() for path in given) or agent.poll() is not None)
        environs = [
            dict(entry.split("=", 1) for entry in path.read_text().split("\0")[:-1])
            for path in given
        ]
        two = [
            fork_server.member(tmp_path / "two", tokens, environ, log_every_steps=1)
            for environ in environs
        ]
        codes = wait([one, *two])
        (tmp_path / "done").touch()
    assert [agent.returncode, *codes] == [0] * 4
    assert_same_to_rounding(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
@pytest.mark.skipif(
    missing_compiler(torch.device("cpu")) is not None, reason="torch.compile lacks something here"
)
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_compiled_processes_give_the_numbers_of_one(
    tmp_path: Path, tokens: Path, fork_server: ForkServer, parallel: str
):
    """A sharded model runs one graph for all its blocks, forward and backward."""
    arguments: dict[str, Any] = {
        "epochs": 1,
        "log_every_steps": 1,
        "batch_size": 4,
        "model": {"architecture": "gpt2"},
    }
    one = fork_server.start(tmp_path / "one", tokens, **arguments)
    runtime = {"parallel": parallel, "compile": "on", "micro_batch_size": 2}
    both = fork_server.together(
        tmp_path / "two", tokens, compiled_as_on_a_gpu=True, runtime=runtime, **arguments
    )
    assert [one.wait(), *wait(both)] == [0, 0, 0], both[0].said + both[1].said
    assert_same_to_rounding(tmp_path / "two", tmp_path / "one")
    graphs = [int(each.said.split()[-2]) for each in both]
    assert min(graphs) > 0, "compiled"
    if parallel == "fsdp":
        # With gradients and without, of two sizes
        assert max(graphs) <= 4


def test_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launch, "own_cores", lambda: 16)
    monkeypatch.setattr(os, "environ", given := {"OMP_NUM_THREADS": "3"})
    launch.share_cores(8)
    assert given == {"OMP_NUM_THREADS": "3", "TORCHINDUCTOR_COMPILE_THREADS": "2"}


def test_auto_is_one_process_on_a_cpu_or_one_for_each_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launch, "own_cores", lambda: 3)
    assert launch.process_count(runtime_params(processes="auto"), math.inf) == 1
    assert launch.process_count(runtime_params(processes=3), math.inf) == 3
    monkeypatch.setattr(launch, "choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert launch.process_count(runtime_params(processes="auto"), math.inf) == 4
    assert launch.process_count(runtime_params(processes=2), math.inf) == 2


@pytest.mark.parametrize(
    ("flops", "parallel", "count"),
    [(6e9, "ddp", 1), (2.5e12, "ddp", 2), (1e15, "ddp", 4), (6e9, "fsdp", 4)],
)
def test_auto_takes_no_gpu_that_a_step_cannot_keep_busy(
    flops: float, parallel: str, count: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(launch, "choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    runtime = runtime_params(processes="auto", parallel=parallel)
    assert launch.process_count(runtime, flops) == count


@pytest.mark.parametrize(("device", "there"), [("cpu", 3), ("cuda", 4), ("mps", 1)])
def test_more_processes_than_devices_are_refused(
    device: str, there: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(launch, "own_cores", lambda: 3)
    monkeypatch.setattr(launch, "choose_device", lambda _: torch.device(device))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(
        UserError, match=rf"runtime\.processes \({there + 1}\) .* {there} \({device}\)"
    ):
        launch.process_count(runtime_params(processes=there + 1), math.inf)


def test_without_a_rank_there_is_no_group(monkeypatch: pytest.MonkeyPatch):
    """The system that gives jobs to machines may set the size alone."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with process_group(torch.device("cpu"), shards=False) as group:
        assert (group.rank, group.size) == (0, 1)


@pytest.mark.parametrize(
    ("device", "variables"),
    [
        ("cpu", {"RANK": "x", "WORLD_SIZE": "2"}),
        ("cpu", {"RANK": "0", "WORLD_SIZE": "x"}),
        ("cpu", {"RANK": "0", "WORLD_SIZE": "0"}),
        ("cpu", {"RANK": "2", "WORLD_SIZE": "2"}),
        ("cpu", {"RANK": "0", "WORLD_SIZE": "2"}),
        ("cuda", {"RANK": "0", "WORLD_SIZE": "2"}),
    ],
)
def test_variables_of_no_group_are_refused(
    monkeypatch: pytest.MonkeyPatch, device: str, variables: dict[str, str]
):
    for name in ("LOCAL_RANK", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(UserError, match="torchrun"),
        process_group(torch.device(device), shards=False),
    ):
        pass


def test_processes_on_gpus_name_their_device_and_wait_long(monkeypatch: pytest.MonkeyPatch):
    asked: list[dict[str, Any]] = []
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "1"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: asked.append({"device": device}))
    monkeypatch.setattr(
        "torch.distributed.init_process_group", lambda *_, **given: asked.append(given) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError), process_group(torch.device("cuda"), shards=False):
        pass
    mine = torch.device("cuda", 1)
    assert asked == [{"device": mine}, {"timeout": STEP_TIMEOUT, "device_id": mine}]
