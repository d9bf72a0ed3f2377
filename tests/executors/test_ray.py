"""Two Ray nodes on this machine give what threads give, even when one is killed in the middle."""

import gc
import hashlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fsspec
import numpy as np
import polars as pl
import psutil
import pytest

import tokenmill
from tests.clusters import NODE
from tests.data.material import NEAR_DUPLICATES, parameters
from tests.folders import contents
from tests.pipeline.conftest import finished_template, project, template  # noqa: F401 (fixtures)
from tests.pipeline.project import Project
from tests.tokens.clean_text import PROSE, write_clean
from tests.tokens.packing import pack_here
from tests.tokens.test_store import clean_into, index_into, pack_into
from tests.waiting import wait_for
from tokenmill.core.errors import UserError
from tokenmill.data import shard_writer
from tokenmill.data.clean import clean
from tokenmill.executors import ray_cluster
from tokenmill.executors.base import Executor, Task
from tokenmill.executors.params import ExecutorParams, open_executor
from tokenmill.executors.ray_cluster import TASKS_PER_CORE, TASKS_PER_NODE
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.tokens.pack import pack
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def executor(cluster: Any) -> Iterator[Executor]:
    with open_executor(
        ExecutorParams(data_engine="ray", ray_address=cluster.address, store=None)
    ) as opened:
        yield opened


def test_the_same_results_and_errors_as_threads(executor: Executor) -> None:
    def function(number: int) -> tuple[int, pl.DataFrame]:
        if number == 7:
            raise UserError("item 7")
        time.sleep(0.05 * (number % 3))
        return number, pl.DataFrame({"text": [f"text {number}"] * number})

    def outcome(one: Executor) -> tuple[list[tuple[int, list[str]]], str]:
        results: list[tuple[int, pl.DataFrame]] = []
        with pytest.raises(UserError) as error:
            results.extend(one.map(function, range(20)))
        assert type(error.value) is UserError
        return [(number, frame["text"].to_list()) for number, frame in results], str(error.value)

    assert (
        outcome(executor)
        == outcome(ThreadExecutor(threads=2))
        == ([(n, [f"text {n}"] * n) for n in range(7)], "item 7")
    )


def test_ray_prints_no_error_that_nobody_asks_for(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function() -> None:
        raise UserError("it failed")

    printed: list[Exception] = []
    monkeypatch.setattr("ray._private.worker._unhandled_error_handler", printed.append)
    failing = [executor.start(function) for _ in range(9)]
    with pytest.raises(UserError, match="it failed"):
        executor.result(failing[-1][0])
    del failing
    gc.collect()
    assert not printed


def test_reading_is_bounded_and_closing_starts_no_more(executor: Executor, tmp_path: Path) -> None:
    read = []

    def items() -> Iterator[int]:
        for number in range(1000):
            read.append(number)
            yield number

    held = tmp_path / "held"
    held.touch()
    first = [tmp_path / str(number) for number in range(3)]

    def function(number: int) -> None:
        if number < 3:
            first[number].touch()
        # Ray may begin a later one before the first; and some begin when the test is gone
        while number >= 3 and held.exists() and all(one.exists() for one in first):
            time.sleep(0.02)

    results = executor.map(function, items())
    for _ in range(3):
        next(results)
    begun = len(read)
    assert begun <= 3 + TASKS_PER_NODE * 2
    results.close()
    held.unlink()
    assert list(executor.map(abs, [-1])) == [1], "behind those that were given up"
    assert len(read) == begun


def test_the_nodes_run_the_code_of_this_checkout_in_one_thread(executor: Executor) -> None:
    def function(_: int) -> tuple[str, str, int]:
        import tokenmill  # noqa: PLC0415  (the one that the node has)
        from tokenmill.executors import ray_cluster as module  # noqa: PLC0415

        return (
            tokenmill.__file__,
            hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest(),
            pl.thread_pool_size(),
        )

    ours = hashlib.sha256(Path(ray_cluster.__file__).read_bytes()).hexdigest()
    for file, digest, threads in executor.map(function, range(2)):
        assert not Path(file).samefile(tokenmill.__file__)
        assert (digest, threads) == (ours, 1)


def test_a_node_with_other_versions_is_named(executor: Executor, monkeypatch) -> None:
    here = ray_cluster.versions()
    monkeypatch.setattr(ray_cluster, "versions", lambda: here | {"polars": "0.1"})
    with pytest.raises(UserError, match=rf"polars {here['polars']}.* 0\.1"):
        list(executor.map(partial(abs), [1]))  # versions go with a function that is new


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_pack_writes_the_same_bytes(kind: Any, executor: Executor, tmp_path: Path) -> None:
    clean = write_clean(tmp_path / "clean", PROSE, shard_bytes=3000, row_group_bytes=700)
    file = tmp_path / "tokenizer.json"
    train_tokenizer(clean, file, TokenizerParams(type=kind, vocab_size=400, sample_bytes=10**6))
    for split in ("hash", "tail"):
        params = TokenizeParams(split=split, val_fraction=0.3)
        pack_here(clean, file, tmp_path / "local", params)
        results = tmp_path / f"results-{split}"
        pack(clean, file, tmp_path / "ray", params, executor=executor, results=results)
        assert contents(tmp_path / "ray") == contents(tmp_path / "local")


@pytest.mark.parametrize("near", [False, True])
def test_clean_writes_the_same_bytes_from_a_relative_path(
    executor: Executor, here: Path, monkeypatch: pytest.MonkeyPatch, near: bool
) -> None:
    monkeypatch.setattr(ThreadExecutor, "task_bytes", 1100)
    monkeypatch.setattr(executor, "task_bytes", 600)  # 39 chunks: seven waves of near-duplicates
    monkeypatch.setattr(shard_writer, "SHARD_BYTES", 3000)
    Path("raw").mkdir()
    for number in range(3):
        Path(f"raw/{number}.txt").write_text("\n".join(2 * PROSE[number::3]), encoding="utf-8")
    for name, one in (("local", ThreadExecutor(threads=2)), ("ray", executor)):
        report = clean(
            raw=Path("raw"),
            out=here / name,
            params=parameters(
                text_file="paragraph", near_duplicates={**NEAR_DUPLICATES, "enabled": near}
            ),
            executor=one,
        )
        assert report.documents.kept > 30
        assert report.dropped["duplicate"] > 30
    assert contents(here / "ray") == contents(here / "local")


def test_a_store_gives_the_same_tokens(executor: Executor, bucket: str, tmp_path: Path) -> None:
    for name, store, one in (("local", None, ThreadExecutor(threads=2)), ("ray", bucket, executor)):
        clean_into(tmp_path / name, store, one)
        pack_into(tmp_path / name, store, executor=one)
        index_into(tmp_path / name)
    assert contents(tmp_path / "ray" / "tokens") == contents(tmp_path / "local" / "tokens")
    assert [path.name for path in (tmp_path / "ray" / "clean").iterdir()] == ["store.json"]
    assert (tmp_path / "ray" / "packed" / "store.json").exists()


def test_a_group_and_what_takes_its_values_run_on_one_node(executor: Executor) -> None:
    def function(*_: object) -> tuple[str, np.ndarray]:
        import ray  # noqa: PLC0415 (most of a second, which only slow tests need)

        return ray.get_runtime_context().get_node_id(), np.zeros(200_000)

    groups = [
        [executor.start(function, values=2, group=number) for _ in range(3)] for number in range(6)
    ]
    takers = [executor.start(function, *(value for _, value in group)) for group in groups]
    used = [{executor.result(node) for node, _ in group} for group in groups]
    assert {len(nodes) for nodes in used} == {1}
    assert [{executor.result(taker)[0]} for (taker,) in takers] == used
    assert len(set.union(*used)) == 2, "both nodes have something to do"


def test_groups_go_where_least_is_under_way_for_a_core(
    cluster: Any, executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "LOOK_SECONDS", 0.0)
    large = cluster.add_node(num_cpus=2, **NODE)
    wait_for(lambda: executor.limit() == 2 * TASKS_PER_NODE + 2 * TASKS_PER_CORE)

    def function() -> None:
        import ray  # noqa: PLC0415 (most of a second, which only slow tests need)

        end = time.monotonic() + 60  # where the test has failed
        while not (tmp_path / ray.get_runtime_context().get_node_id()).exists():
            assert time.monotonic() < end
            time.sleep(0.02)

    tasks = [executor.start(function, group=number)[0] for number in range(8)]
    counts = Counter(task.node for task in tasks)
    assert counts.pop(large.node_id) == 4
    assert [*counts.values()] == [2, 2]
    (tmp_path / large.node_id).touch()
    for task in tasks:
        if task.node == large.node_id:
            executor.result(task)
    more = [executor.start(function, group=number)[0] for number in range(8, 10)]
    assert {task.node for task in more} == {large.node_id}, "what was there has ended"
    for node in counts:
        (tmp_path / str(node)).touch()
    for task in [*tasks, *more]:
        executor.result(task)
    remove(large, cluster, executor)


def test_values_lost_with_a_node_are_computed_again(
    cluster: Any, executor: Executor, tmp_path: Path
) -> None:
    """A second task's large value stays on its node, which dies before another task takes it. The
    first one's, which it was made of, nobody keeps."""
    import ray  # noqa: PLC0415 (most of a second, which only slow tests need)

    doomed = cluster.add_node(num_cpus=2, **NODE)

    def first(given: np.ndarray, number: int) -> tuple[str, np.ndarray]:
        assert given[0] == number
        (tmp_path / f"{number}-{time.time_ns()}").touch()
        time.sleep(0.2)
        return ray.get_runtime_context().get_node_id(), given + 0

    def second(large: np.ndarray) -> np.ndarray:
        return large + 1

    started, numbers = [], itertools.count()
    while not any(executor.result(one) == doomed.node_id for one, _ in started):
        assert next(numbers) < 300  # a busy machine takes its time to start a node's workers
        group = len(started)
        for number in range(group, group + 4):
            given = np.full(20_000, number)  # so large that Ray keeps it by itself
            node, large = executor.start(first, given, number, values=2, group=number)
            started.append((Task(node.future), *executor.start(second, large)))
    for _, large in started:
        ray.wait([large.future], fetch_local=False)
    kill(doomed)
    sums = [executor.start(np.sum, large) for _, large in started]
    expected = [20_000 * (number + 1) for number in range(len(started))]
    assert [executor.result(one) for (one,) in sums] == expected
    assert len(list(tmp_path.iterdir())) > len(started)
    remove(doomed, cluster, executor)


def test_values_are_kept_that_a_task_is_to_keep(executor: Executor) -> None:
    (made,) = executor.start(np.zeros, 200_000)
    (plain,) = executor.start(np.sum, made)
    (keeping,) = executor.start(np.sum, made, keep=[made])
    (later,) = executor.start(abs, keeping)
    assert [made.future in references(one.kept) for one in (plain, keeping, later)] == [
        False,
        True,
        True,
    ]


def references(kept: tuple[Any, ...]) -> list[Any]:
    """Those in it and in the tuples within."""
    return [
        found for one in kept for found in (references(one) if isinstance(one, tuple) else [one])
    ]


def kill(node: Any) -> None:
    """As when a machine loses its power."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    for process in [*raylet.children(recursive=True), raylet]:
        process.kill()


def remove(node: Any, cluster: Any, executor: Executor) -> None:
    """The executor knows it when this returns, so that the next test has the same nodes as ever."""
    cluster.remove_node(node, allow_graceful=False)
    with patch.object(ray_cluster, "LOOK_SECONDS", 0.0):
        wait_for(lambda: executor.limit() == 2 * TASKS_PER_NODE)


def test_a_killed_node_loses_nothing(cluster: Any, executor: Executor, tmp_path: Path) -> None:
    doomed = cluster.add_node(num_cpus=2, **NODE)
    numbers = itertools.count()

    def kill_it() -> None:
        wait_for(lambda: begun_by(doomed.node_id, tmp_path))
        kill(doomed)

    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill_it)

        def items() -> Iterator[int]:
            while not killed.done():  # a busy machine takes its time to start a node's workers
                yield next(numbers)
            yield from itertools.islice(numbers, 20)

        results = list(executor.map(slowly(tmp_path, never=doomed.node_id), items()))
    killed.result()
    assert results == [number**2 for number in range(next(numbers))]
    elsewhere = {path.name.split("-")[0] for path in tmp_path.glob("*.done")}
    assert len(elsewhere) == len(results)
    assert begun_by(doomed.node_id, tmp_path) <= elsewhere
    remove(doomed, cluster, executor)


def slowly(folder: Path, *, never: str) -> Callable[[int], int]:
    """0.2 s for an item, and no end on the node `never`; leaves a file when it begins and another
    when it is done."""

    def function(number: int) -> int:
        import ray  # noqa: PLC0415 (most of a second, which only slow tests need)

        node = ray.get_runtime_context().get_node_id()
        begun = folder / f"{number}-{node}-{time.time_ns()}.begun"
        begun.touch()
        time.sleep(600 if node == never else 0.2)
        begun.with_suffix(".done").touch()
        return number**2

    return function


def begun_by(node: str, folder: Path) -> set[str]:
    """The items that a node has begun."""
    return {path.name.split("-")[0] for path in folder.glob(f"*-{node}-*.begun")}


def test_a_run_from_raw_text_in_s3(
    project: Project,  # noqa: F811
    finished_template: Path,  # noqa: F811
    bucket: str,
    cluster: Any,
) -> None:
    """From the raw text there to the answers of a trained model, with shards in a store there: the
    bytes of a run on this machine."""
    pytest.importorskip("dvc_s3", reason="pip install dvc-s3")
    local = Project(finished_template)
    fs = fsspec.filesystem("s3")
    raw = f"{bucket}/chats"
    for file in (local.root / "data/raw/sample").iterdir():
        fs.put_file(str(file), f"{raw}/{file.name}")
    project.set(
        data__raw=raw,
        runtime__data_engine="ray",
        runtime__ray_address=cluster.address,
        runtime__store=f"{bucket}/shards",
    )
    project.repro("evaluate")
    assert not (project.root / "data/raw/sample").exists()
    assert (project.root / "data/clean/store.json").exists()
    for path in ("data/tokens", "models/gpt", "metrics/eval.json", "reports/evaluation.json"):
        assert project.digest(path) == local.digest(path), path
    assert "Running stage" not in project.repro("evaluate")
    fs.pipe(f"{raw}/more.txt", b"One more text, of which nothing was known before.\n")
    assert raw in project.run("dvc", "status", "clean"), "it would run again"
