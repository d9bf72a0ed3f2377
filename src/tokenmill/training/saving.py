"""A folder elsewhere, through fsspec: a mounted drive, another disk, `s3://bucket/prefix`.

A file in it is there whole or not at all: on a file system it is written beside its place and renamed; an object store
shows an object only once its upload has ended.

Checkpoints in a second place, copied in the background, so that a lost machine costs a minute and not a day.

    <mirror>/<fingerprint>/step-000001200/    a checkpoint; its manifest is written last and removed first
    <mirror>/<fingerprint>/weights/<sha256>/  the weights at an epoch's end, under their hash, so never replaced
    <mirror>/<fingerprint>/timing.csv         what the run has taken so far

A checkpoint without a manifest does not exist; what is fetched is used only if every hash in its manifest agrees.
Nothing that goes wrong with the mirror stops a training.

Checkpoints written beside the training: a step waits for a copy in memory, not for hashes and the disk.

One is written at a time; the next one waits for it. So the newest checkpoint on disk may be one behind until `wait`.
"""

import contextlib
import errno
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from torch import Tensor

from tokenmill.core.errors import UserError
from tokenmill.core.files import read_json, sha256_of, write_atomic, write_directory
from tokenmill.costs import TIMING
from tokenmill.model.build import copy_model
from tokenmill.model.device import is_out_of_memory
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import WEIGHTS
from tokenmill.model.manifest import MANIFEST
from tokenmill.training.checkpoint import STATE, CheckpointStore, copy_tree
from tokenmill.training.history import RunState


class RemoteFolder:
    """Files in a folder elsewhere, named relative to it with slashes."""

    def __init__(self, url: str):
        """Open `url`, a folder or any URL that fsspec knows; an object store is not asked anything yet.

        Raises:
            UserError: the folder does not exist, or the package for such URLs is missing. A folder is never made, for
                below the name of a drive that is not mounted it would lie on a disk that goes away with the machine.
        """
        self.url = url
        try:
            self._files, root = fsspec.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise UserError(
                f"runtime.checkpoint.mirror ({url}) cannot be used: {error}. For s3:// install `s3fs` "
                "(`pip install -e '.[s3]'`), or give a folder."
            ) from None
        self._root = str(root).rstrip("/")
        self._folder = Path(root) if isinstance(self._files, LocalFileSystem) else None
        if self._folder and not self._folder.is_dir():
            raise UserError(f"runtime.checkpoint.mirror ({url}) is no folder; mount the drive, or make the folder.")

    def put(self, source: Path, name: str) -> None:
        """Copy a file there, whole or not at all."""
        if not self._folder:
            self._files.put_file(str(source), self._path(name))
            return
        if not self._folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, "the folder is gone", str(self._folder))
        with source.open("rb") as read, write_atomic(self._folder / name) as write:
            shutil.copyfileobj(read, write, 1 << 20)

    def get(self, name: str, target: Path) -> None:
        """Copy a file from there."""
        self._files.get_file(self._path(name), str(target))

    def read(self, name: str) -> bytes | None:
        """The bytes of a small file, or None if it is not there."""
        try:
            return self._files.cat_file(self._path(name))
        except FileNotFoundError:
            return None

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        return self._files.exists(self._path(name))

    def names(self, folder: str) -> list[str]:
        """Names of the files and folders in a folder, sorted, without what a killed process left half-written."""
        try:
            paths = self._files.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(name for path in paths if not (name := Path(path).name).startswith("."))

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing happens if it is not there."""
        for path in self._files.find(self._path(name)):  # `rm` would take a bracket in a name for a pattern
            self._files.rm_file(path)
        if self._folder:
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


WAIT_SECONDS = 300.0
"""A session that ends waits at most so long for its last copy."""


SAY_AFTER_SECONDS = 2.0
"""It says so if the copy takes longer than this."""


@contextlib.contextmanager
def mirrored(store: CheckpointStore, url: str | None, say: Callable[[str], None]) -> Iterator["Mirror | None"]:
    """Bring into `store` what the mirror has newer, then keep the mirror up to date until the block ends.

    At the end the last copy is waited for; not after a second Ctrl-C, which asks for no more than to stop.

    Raises:
        UserError: `url` cannot be used at all.
    """
    if url is None:
        yield None
        return
    mirror = Mirror(RemoteFolder(url), store, say)
    mirror.fetch_newer()
    mirror.start()
    try:
        yield mirror
    except Exception:
        mirror.close()
        raise
    mirror.close()


class Mirror:
    """Copies the newest checkpoint of `store` to a remote folder in a thread of its own."""

    def __init__(self, remote: RemoteFolder, store: CheckpointStore, say: Callable[[str], None]):
        """Mirror `store` in the folder of its fingerprint under `remote`."""
        self._remote, self._store, self._say = remote, store, say
        self._run = store.folder.name
        self._change = threading.Condition()
        self._wanted: int | None = None
        self._failed: int | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)

    def start(self) -> None:
        """Begin to copy, first what the store has already."""
        if there := self._store.steps():
            self._wanted = there[-1]
        self._thread.start()

    def offer(self, step: int) -> None:
        """The checkpoint of `step` is whole: copy it, unless a newer one comes first. Returns at once."""
        with self._change:
            self._wanted = step
            self._change.notify()

    def close(self) -> None:
        """Wait for the last copy, with a bound; try once more what failed."""
        with self._change:
            if self._wanted is None:
                self._wanted = self._failed
            self._closing = True
            self._change.notify()
        self._thread.join(SAY_AFTER_SECONDS)
        if self._thread.is_alive():
            self._say(f"copying the last checkpoint to {self._remote.url}, for at most {WAIT_SECONDS:.0f} s")
            self._thread.join(WAIT_SECONDS)
        if self._thread.is_alive():
            self._say(f"the mirror {self._remote.url} was too slow for the last checkpoint; it has the one before")

    def _work(self) -> None:
        while (step := self._next()) is not None:
            try:
                self._copy(step)
            except Exception as error:  # a remote may fail in its own client's ways, and none of them may stop us
                self._has_failed(step, error)
            else:
                self._has_worked()

    def _next(self) -> int | None:
        """Wait for a checkpoint to copy; None when there will be none any more."""
        with self._change:
            self._change.wait_for(lambda: self._wanted is not None or self._closing)
            step, self._wanted = self._wanted, None
            return step

    def _has_failed(self, step: int, error: Exception) -> None:
        if self._failed is None:
            self._say(
                f"the mirror {self._remote.url} did not take the checkpoint of step {step:,} ({_reason(error)}); "
                "training goes on, and every later checkpoint is tried again"
            )
        self._failed = step

    def _has_worked(self) -> None:
        if self._failed is not None:
            self._say(f"the mirror {self._remote.url} takes checkpoints again")
        self._failed = None

    def _copy(self, step: int) -> None:
        """Copy a checkpoint and the epochs that it needs; then remove there what is no longer here."""
        frozen = self._store.folder / ".mirror.tmp"
        shutil.rmtree(frozen, ignore_errors=True)
        copy_tree(self._store.checkpoint_folder(step), frozen)  # by links: the store may prune it meanwhile
        if (self._store.folder / TIMING).exists():
            self._remote.put(self._store.folder / TIMING, f"{self._run}/{TIMING}")
        weights = read_json(frozen / STATE)["state"]["epoch_weights"]
        for epoch, sha256 in enumerate(weights, start=1):
            self._put_weights(self._store.epoch_folder(epoch), f"{self._run}/weights/{sha256}")
        self._put_checkpoint(frozen, f"{self._run}/{self._store.checkpoint_folder(step).name}")
        self._prune(step, set(weights))
        shutil.rmtree(frozen)

    def _put_weights(self, source: Path, target: str) -> None:
        if self._remote.exists(f"{target}/{WEIGHTS}"):
            return
        for path in sorted(source.iterdir(), key=lambda path: path.name == WEIGHTS):
            self._remote.put(path, f"{target}/{path.name}")

    def _put_checkpoint(self, source: Path, target: str) -> None:
        if self._remote.read(f"{target}/{MANIFEST}") == (source / MANIFEST).read_bytes():
            return
        self._remote.remove(f"{target}/{MANIFEST}")
        for path in sorted(source.iterdir(), key=lambda path: path.name == MANIFEST):
            self._remote.put(path, f"{target}/{path.name}")

    def _prune(self, step: int, weights: set[str]) -> None:
        """Remove earlier checkpoints that the store no longer has, and, behind the newest, weights of other runs."""
        there = self._steps()
        for other in (other for other in there if other < step and other not in self._store.steps()):
            self._remove(other)
        if [step] == there[-1:]:
            for sha256 in set(self._remote.names(f"{self._run}/weights")) - weights:
                self._remote.remove(f"{self._run}/weights/{sha256}")

    def _remove(self, step: int) -> None:
        name = f"{self._run}/{self._store.checkpoint_folder(step).name}"
        self._remote.remove(f"{name}/{MANIFEST}")
        self._remote.remove(name)

    def _steps(self) -> list[int]:
        """The steps that the mirror has whole checkpoints of."""
        names = [name for name in self._remote.names(self._run) if name.startswith("step-")]
        return [int(name[5:]) for name in names if self._remote.exists(f"{self._run}/{name}/{MANIFEST}")]

    def fetch_newer(self) -> None:
        """Bring the mirror's checkpoints into the store if its newest one is newer than all whole ones here."""
        try:
            there = self._steps()
            if not there:
                return
            here = next(self._store.checkpoints(lambda _: None), None)
            if here and here.step >= there[-1]:
                return
            self._say(f"fetching the checkpoint of step {there[-1]:,} from the mirror {self._remote.url}")
            for step in there:  # the newest one's epochs come last, and stay
                if not here or step > here.step or step not in self._store.steps():
                    self._fetch(step)
            self._fetch_timing()
        except Exception as error:  # as in _work
            self._say(f"the mirror {self._remote.url} cannot be read ({_reason(error)}); going on without it")

    def _fetch(self, step: int) -> None:
        """Copy a checkpoint here, whole or not at all, after the epochs that it needs."""
        source = f"{self._run}/{self._store.checkpoint_folder(step).name}"
        with write_directory(self._store.checkpoint_folder(step)) as folder:
            for name in self._remote.names(source):
                self._remote.get(f"{source}/{name}", folder / name)
            for epoch, sha256 in enumerate(read_json(folder / STATE)["state"]["epoch_weights"], start=1):
                self._fetch_weights(f"{self._run}/weights/{sha256}", self._store.epoch_folder(epoch), sha256)

    def _fetch_weights(self, source: str, target: Path, sha256: str) -> None:
        if (target / WEIGHTS).exists() and sha256_of(target / WEIGHTS) == sha256:
            return
        with write_directory(target) as folder:
            for name in self._remote.names(source):
                self._remote.get(f"{source}/{name}", folder / name)

    def _fetch_timing(self) -> None:
        if self._remote.exists(f"{self._run}/{TIMING}"):
            self._remote.get(f"{self._run}/{TIMING}", self._store.folder / TIMING)


def _reason(error: Exception) -> str:
    """An error in a line."""
    return " ".join(str(error).split()) or type(error).__name__


class Saver:
    """Writes the checkpoints of a run to its store, removes those no longer needed, and tells the mirror."""

    def __init__(self, store: CheckpointStore, *, keep: int, also: set[int], mirror: Mirror | None):
        """Keep the newest `keep` checkpoints, and those of the steps `also`."""
        self._store, self._keep, self._also, self._mirror = store, keep, also, mirror
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._under_way: Future[None] | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Wait at the end of the block for what is being written, whatever ended it."""
        self._thread.submit(int).result()  # the thread begins now, while there is memory for it
        try:
            yield
        finally:
            self._thread.shutdown()
        self.wait()

    def save(self, state: RunState, model: GPT, optimizer: dict[str, Tensor], horizon: dict[str, Any]) -> None:
        """Copy this moment, once the checkpoint before is written, and begin to write it.

        Where memory does not hold a copy, it is written at once.
        """
        self.wait()
        try:
            copy, tensors = copy_model(model, _in_memory), {name: _in_memory(one) for name, one in optimizer.items()}
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._write(state, model, optimizer, horizon)
        else:
            moment = RunState.from_json(state.as_json())
            self._under_way = self._thread.submit(self._write, moment, copy, tensors, horizon)

    def wait(self) -> None:
        """Until the newest checkpoint is on disk.

        Raises:
            OSError: it could not be written.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def _write(self, state: RunState, model: GPT, optimizer: dict[str, Tensor], horizon: dict[str, Any]) -> None:
        self._store.save(state, model, optimizer, horizon)
        self._store.prune(upto=state.step, newest=self._keep, also=self._also)
        if self._mirror:
            self._mirror.offer(state.step)


def _in_memory(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
