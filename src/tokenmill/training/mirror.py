"""Checkpoints in a second place, copied in the background, so that a lost machine costs a minute and not a day.

    <mirror>/<fingerprint>/step-000001200/    a checkpoint; its manifest is written last and removed first
    <mirror>/<fingerprint>/weights/<sha256>/  the weights at an epoch's end, under their hash, so never replaced
    <mirror>/<fingerprint>/timing.csv         what the run has taken so far

A checkpoint without a manifest does not exist; what is fetched is used only if every hash in its manifest agrees.
Nothing that goes wrong with the mirror stops a training.
"""

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tokenmill.files import read_json, sha256_of, write_directory
from tokenmill.model.weights import WEIGHTS
from tokenmill.training.remote import RemoteFolder
from tokenmill.training.store import MANIFEST, STATE, Store, copy_tree
from tokenmill.training.timing import TIMING

WAIT_SECONDS = 300.0
"""A session that ends waits at most so long for its last copy."""
SAY_AFTER_SECONDS = 2.0
"""It says so if the copy takes longer than this."""


@contextlib.contextmanager
def mirrored(store: Store, url: str | None, say: Callable[[str], None]) -> Iterator["Mirror | None"]:
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

    def __init__(self, remote: RemoteFolder, store: Store, say: Callable[[str], None]):
        """Mirror `store` in the folder of its fingerprint under `remote`."""
        self._remote, self._store, self._say = remote, store, say
        self._run = store.folder.name
        self._change = threading.Condition()
        self._wanted: int | None = None
        self._given_up = range(0)
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

    def give_up(self, steps: range) -> None:
        """The store has removed the checkpoints of `steps`: remove them there too, before another one is copied.

        Until then another machine would go on from them, and come to the same place again.
        """
        with self._change:
            self._given_up = steps
            if self._wanted in steps:
                self._wanted = None

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
        self._remove_given_up()
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

    def _remove_given_up(self) -> None:
        given_up = self._given_up
        for step in set(given_up).intersection(self._steps()):
            self._remove(step)
        with self._change:
            if self._given_up is given_up:  # no others meanwhile
                self._given_up = range(0)

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
