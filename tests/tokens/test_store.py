"""Shards in a store give the tokens that shards in a folder give; what is missing, damaged or out
of reach there ends in a sentence."""

import errno
import functools
import pickle
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from tests.data.material import parameters
from tests.folders import contents
from tests.tokens.clean_text import PROSE
from tokenmill.core.errors import UserError
from tokenmill.data import shard_writer
from tokenmill.data.clean import clean
from tokenmill.executors.base import Executor, Task
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.formats import shards
from tokenmill.formats.mounted import Mounted
from tokenmill.formats.store import Store, read_manifest
from tokenmill.formats.token_file import HashedFile, read_metadata
from tokenmill.tokens import pack as pack_module
from tokenmill.tokens.corpus import sample
from tokenmill.tokens.index import build_index
from tokenmill.tokens.pack import pack
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer
from tokenmill.tokens.unpack import unpack

AUTO = TokenizeParams(split="auto", val_fraction=0.1)


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return f"{request.getfixturevalue('bucket')}/{request.node.name}"
    (tmp_path / "drive").mkdir()
    return str(tmp_path / "drive")


def write_raw(folder: Path) -> Path:
    for number, name in enumerate(("web/1.txt", "web/2.txt", "books/1.txt")):
        path = folder / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n\n".join(2 * PROSE[number::3]), encoding="utf-8")
    return folder / "raw"


def clean_into(
    folder: Path, store: str | None, executor: Executor | None = None, *, shard_bytes: int = 1500
) -> Path:
    """Clean PROSE into shards, five of about 1500 bytes."""
    with patch.object(shard_writer, "SHARD_BYTES", shard_bytes):
        clean(
            raw=write_raw(folder.with_name("text")),
            out=folder / "clean",
            params=parameters(text_file="paragraph"),
            executor=executor or ThreadExecutor(threads=2),
            store=store,
        )
    return folder / "clean"


def pack_into(
    folder: Path,
    store: str | None,
    params: TokenizeParams = AUTO,
    executor: Executor | None = None,
    *,
    tokenizer: Path | None = None,
) -> Path:
    """Pack what `clean_into` has written, with a tokenizer of it unless one is given."""
    if not tokenizer:
        tokenizer = folder / "tokenizer.json"
        params_ = TokenizerParams(type="bpe", vocab_size=400, sample_bytes=4000)
        train_tokenizer(folder / "clean", tokenizer, params_)
    pack(
        folder / "clean",
        tokenizer,
        folder / "packed",
        params,
        executor=executor or ThreadExecutor(threads=2),
        results=folder / "results",
        store=store,
    )
    return folder / "packed"


def index_into(folder: Path, params: TokenizeParams = AUTO) -> None:
    unpack(folder / "packed", folder / "tokens")
    build_index(
        clean=folder / "clean",
        tokens=folder / "tokens",
        tokenizer_file=folder / "tokenizer.json",
        out=folder / "index",
        split=params,
        max_tokens=10**6,
    )


def from_raw_text_to_tokens(folder: Path, store: str | None, params: TokenizeParams) -> Path:
    clean_into(folder, store)
    pack_into(folder, store, params)
    index_into(folder, params)
    return folder


@pytest.fixture(scope="module")
def without_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of all that comes of the text with this split and no store; to be read only."""

    @functools.cache
    def made(split: str) -> Path:
        params = AUTO.model_copy(update={"split": split})
        return from_raw_text_to_tokens(tmp_path_factory.mktemp(split) / "project", None, params)

    return made


@pytest.mark.parametrize("split", ["auto", "tail"])
def test_from_raw_text_to_tokens_with_a_store(
    tmp_path: Path, store: str, without_store: Callable[[str], Path], split: str
) -> None:
    params = AUTO.model_copy(update={"split": split})
    with_ = from_raw_text_to_tokens(tmp_path / "with", store, params)
    without = without_store(split)
    for folder in ("tokens", "index"):
        assert contents(with_ / folder) == contents(without / folder)
    assert [path.name for path in (with_ / "clean").iterdir()] == ["store.json"]
    assert {path.name for path in (with_ / "packed").iterdir()} == {"store.json", "metadata.json"}
    assert shards.totals(with_ / "clean") == shards.totals(without / "clean")
    own = [path for path in without.glob("*/part-*") if path.suffix in (".parquet", ".zst")]
    assert len(own) >= 10
    there = Store(store).names()
    assert sorted(there.values()) == sorted(path.stat().st_size for path in own)


class ElsewhereExecutor(ThreadExecutor):
    """Runs each task while the project's folder is away, from what was pickled, as on a machine
    that does not have it."""

    def __init__(self, project: Path):
        super().__init__(threads=1)
        self._project = project

    def start(
        self, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> tuple[Task, ...]:
        self._project.rename(away := self._project.with_name("away"))
        try:
            sent = pickle.loads(pickle.dumps(function))  # noqa: S301 (our own)
            tasks = super().start(sent, *arguments, **options)
            wait([tasks[0].future])
            return tasks
        finally:
            away.rename(self._project)


def test_tasks_need_no_folder_of_the_project(
    tmp_path: Path, bucket: str, without_store: Callable[[str], Path]
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    clean_into(project, f"{bucket}/elsewhere", ElsewhereExecutor(project))
    pack_into(project, f"{bucket}/elsewhere", executor=ElsewhereExecutor(project))
    index_into(project)
    assert contents(project / "tokens") == contents(without_store("auto") / "tokens")
    with pytest.raises(UserError):  # without a store they do
        clean_into(project, None, ElsewhereExecutor(project))


def test_switching_between_store_and_folders_keeps_all(tmp_path: Path, store: str) -> None:
    """A folder of either kind is read whatever the next stage is told to write."""
    clean_into(tmp_path / "a", store)
    pack_into(tmp_path / "a", None)
    clean_into(tmp_path / "b", None)
    pack_into(tmp_path / "b", store)
    for name in "ab":
        index_into(tmp_path / name)
    assert contents(tmp_path / "a" / "tokens") == contents(tmp_path / "b" / "tokens")
    clean_into(tmp_path / "a", None)
    assert contents(tmp_path / "a" / "clean") == contents(tmp_path / "b" / "clean")


def test_a_second_run_writes_nothing_and_encodes_nothing(
    tmp_path: Path, store: str, bpe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean_into(tmp_path, store)
    before = contents(pack_into(tmp_path, store, tokenizer=bpe_file))

    def refuse(*_: object) -> None:
        raise AssertionError("writes or encodes again")

    monkeypatch.setattr(Store, "_write", refuse)
    monkeypatch.setattr(pack_module, "_encoded", refuse)
    clean_into(tmp_path, store)
    assert contents(pack_into(tmp_path, store, tokenizer=bpe_file)) == before


def test_a_killed_stage_goes_on_from_finished_shards(
    tmp_path: Path, store: str, bpe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean_into(tmp_path, store)
    encode = pack_module._encoded
    encoded: list[str] = []
    allowed = 4

    def counting(item: pack_module.Item, *arguments: object) -> object:
        if len(encoded) == allowed:
            raise KeyboardInterrupt
        encoded.append(item.shard.path.name)
        return encode(item, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(pack_module, "_encoded", counting)
    with pytest.raises(KeyboardInterrupt):
        pack_into(tmp_path, store, tokenizer=bpe_file)
    kept = len(list((tmp_path / "results").glob("*.json")))
    assert 0 < kept <= 4
    allowed = 1000
    shard_count = len(shards.shards(tmp_path / "clean"))
    assert len(read_metadata(pack_into(tmp_path, store, tokenizer=bpe_file)).shards) == shard_count
    assert len(encoded) == 4 + shard_count - kept


def first_object(folder: Path) -> HashedFile:
    manifest = read_manifest(folder)
    assert manifest
    return manifest.shards[0]


def test_what_is_not_whole_in_the_store_is_refused(
    tmp_path: Path, store: str, bpe_file: Path
) -> None:
    clean_into(tmp_path, store)
    pack_into(tmp_path, store, tokenizer=bpe_file)
    file = first_object(tmp_path / "clean")
    fs, root = fsspec.url_to_fs(store)
    path = f"{root}/{file.sha256[:2]}/{file.sha256}"
    right = fs.cat_file(path)
    for wrong in (right[:-1], right + b"x", bytes(len(right))):
        fs.pipe_file(path, wrong)
        with pytest.raises(UserError) as error:
            list(shards.batches(tmp_path / "clean"))
        assert f"{store}/{file.sha256[:2]}/{file.sha256}" in str(error.value)
        assert "--force clean" in str(error.value)
    fs.rm_file(path)
    with pytest.raises(UserError, match=r"is missing; .*--force clean"):
        list(shards.batches(tmp_path / "clean"))
    clean_into(tmp_path, store)
    assert fs.cat_file(path) == right
    packed = read_metadata(tmp_path / "packed").shards[-1].sha256
    fs.rm_file(f"{root}/{packed[:2]}/{packed}")
    with pytest.raises(UserError, match=rf"{packed} is missing; .*--force tokenize"):
        unpack(tmp_path / "packed", tmp_path / "tokens")
    assert not (tmp_path / "tokens").exists()
    pack_into(tmp_path, store, tokenizer=bpe_file)
    unpack(tmp_path / "packed", tmp_path / "tokens")


@pytest.mark.parametrize("change", ["link", "folder of a link"])
def test_no_link_in_a_shared_folder_is_followed(tmp_path: Path, change: str) -> None:
    store = tmp_path / "drive"
    store.mkdir()
    clean_into(tmp_path, str(store))
    file = first_object(tmp_path / "clean")
    path = Path(store, file.sha256[:2], file.sha256)
    moved = path if change == "link" else path.parent
    moved.rename(tmp_path / "elsewhere")
    moved.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError):
        list(shards.batches(tmp_path / "clean"))


def test_a_store_out_of_reach_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    bad_urls = ("s4://bucket", "dir://x", "reference://x")
    for place in (str(tmp_path / "not mounted"), *bad_urls, f"{bucket}-of-nobody/x"):
        with pytest.raises(UserError) as error:
            clean_into(tmp_path, place)
        assert place in str(error.value)
        assert not (tmp_path / "clean").exists()


class WithoutOptions(MemoryFileSystem):
    """Refuses options that it does not know, as the file system of SSH does."""

    protocol = "without-options"

    def __init__(self) -> None:
        super().__init__()


def test_a_file_system_need_not_know_of_listings() -> None:
    fsspec.register_implementation("without-options", WithoutOptions, clobber=True)
    assert Store("without-options://store").names() == {}


def test_a_full_store_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drive").mkdir()

    def fail(source: str, target: Path) -> None:
        raise OSError(errno.ENOSPC, "full", source, None, str(target))

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(OSError, match="full") as error:
        clean_into(tmp_path / "project", str(tmp_path / "drive"))
    assert error.value.filename.startswith(str(tmp_path / "drive"))


@pytest.mark.parametrize(
    "error",
    [
        PermissionError("Forbidden"),
        OSError(errno.EIO, "no luck"),
        PermissionError(errno.EACCES, "denied", "/mnt/drive/x"),
    ],
)
def test_a_refusal_is_given_as_the_reason(tmp_path: Path, monkeypatch, error: OSError) -> None:
    def refuse(*_: object) -> None:
        raise error

    said = str(error)
    (tmp_path / "drive").mkdir()
    file = first_object(clean_into(tmp_path, str(tmp_path / "drive")))
    monkeypatch.setattr(Mounted, "get_file", refuse)
    with pytest.raises(UserError) as refused:
        Store(str(tmp_path / "drive")).get(file, tmp_path / "copy", stage="clean")
    assert f"({said})" in str(refused.value)
    assert ("credentials" in str(refused.value)) != bool(error.filename)


def test_a_folder_that_may_not_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken for an empty one, whose shards are missing."""

    def refuse(_: LocalFileSystem, path: str, **__: object) -> None:
        raise PermissionError(errno.EACCES, "denied", path)

    monkeypatch.setattr(LocalFileSystem, "ls", refuse)
    with pytest.raises(UserError) as error:
        Store(str(tmp_path)).names()
    assert str(tmp_path) in str(error.value)


def test_a_shard_is_fetched_once_for_all_its_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "drive").mkdir()
    monkeypatch.setattr(shards, "ROW_GROUP_ROWS", 2)
    found = shards.shards(clean_into(tmp_path, str(tmp_path / "drive")))
    fetched: list[HashedFile] = []
    get = Store.get

    def counting(store: Store, file: HashedFile, target: Path, *, stage: str) -> None:
        fetched.append(file)
        get(store, file, target, stage=stage)

    monkeypatch.setattr(Store, "get", counting)
    assert len(list(sample(tmp_path / "clean", 10**6))) > 2 * len(found)
    assert fetched == [shard.stored for shard in found]


def test_copies_are_gone_after_use(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    clean_into(tmp_path, store)
    assert sum(len(batch) for batch in shards.batches(tmp_path / "clean")) > 50
    for group in shards.row_groups(shards.shards(tmp_path / "clean")[0]):
        assert len(list(shards.read_groups([group]))) == 1
    pack_into(tmp_path, store)
    unpack(tmp_path / "packed", tmp_path / "tokens")
    assert not list((tmp_path / "tmp").iterdir())


def test_tasks_may_write_the_same_at_once(tmp_path: Path, store: str) -> None:
    clean_into(tmp_path, None)
    shard = shards.shards(tmp_path / "clean")[0]
    file = HashedFile(size=shard.path.stat().st_size, sha256=shard.sha256())
    start = threading.Barrier(8)

    def put() -> None:
        start.wait()
        Store(store)._write(shard.path, Store(store)._place(file))

    together(put, 8)
    assert Store(store).names() == {f"{file.sha256[:2]}/{file.sha256}": file.size}
    Store(store).get(file, tmp_path / "copy", stage="clean")
    assert (tmp_path / "copy").read_bytes() == shard.path.read_bytes()


def together(work: Callable[[], None], count: int) -> None:
    with ThreadExecutor(threads=count) as executor:
        for (task,) in [executor.start(work) for _ in range(count)]:
            executor.result(task)
