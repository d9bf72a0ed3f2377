"""A second place for checkpoints, so that a lost machine costs only minutes of training: a mounted
folder, or any URL that fsspec knows.

    <mirror>/<fingerprint>/
        step-000001200/     a checkpoint; its manifest is written last and removed first
        weights/<sha256>/   the weights at the end of an epoch, under their hash
        timing.csv          the run's times and costs

Copies are made in the background, and no error of the mirror stops training. What is fetched
replaces a local file only after the hashes of the whole checkpoint were found right; no name from
the mirror is used before it was checked, and in a folder no link is followed
(`formats/mounted.py`).
"""

import contextlib
import heapq
import itertools
import queue
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from pathlib import Path

from tokenmill.core.errors import UserError
from tokenmill.core.files import (
    is_regular,
    refuse_link,
    remove,
    sha256_of,
    write_beside,
    write_directory,
)
from tokenmill.core.paths import STEP_NAME
from tokenmill.costs import TIMING
from tokenmill.formats.mounted import Mounted, open_place
from tokenmill.model.manifest import ADAPTER_CONFIG, ADAPTER_FOLDER, CONFIG, MANIFEST, WEIGHTS
from tokenmill.training.checkpoints.store import (
    STATE,
    Checkpoint,
    CheckpointStore,
    copy_tree,
    has_files,
    read_hashes,
    read_state,
)

WAIT_SECONDS = 300.0
"""Seconds that the end of training waits for the last copy, at most."""

SAY_AFTER_SECONDS = 2.0
"""Seconds after which the end of training says that it waits for the copy."""

SHA256 = re.compile(r"[0-9a-f]{64}")


Choose = Callable[[Iterable[Checkpoint]], Checkpoint | None]
"""Of checkpoints that come newest first, the one from which the run continues."""


@contextlib.contextmanager
def mirrored(
    store: CheckpointStore, url: str | None, choose: Choose, say: Callable[[str], None]
) -> Iterator["Mirror | None"]:
    """Fetch what the mirror at `url` has better into `store`, then keep the mirror up to date until
    the block ends.

    The end of the block waits for the last copy, except after a second Ctrl-C. Without a `url`
    there is no mirror.
    """
    if url is None:
        yield None
        return
    mirror = Mirror(url, store, say)
    mirror.fetch_better(choose)
    mirror.start()
    try:
        yield mirror
    except Exception:
        mirror.close()
        raise
    mirror.close()


class Mirror:
    """Copies the newest checkpoint of a store to a folder elsewhere, in a thread of its own.

    A slow mirror makes no checkpoint wait: only the newest one is copied next, and those between
    are left out.
    """

    def __init__(self, url: str, store: CheckpointStore, say: Callable[[str], None]):
        """Mirror `store` in the folder of its fingerprint under `url`.

        Raises:
            UserError: the folder does not exist, or the package for such URLs is missing.
        """
        self._url = url
        self._store = store
        self._say = say
        self._fs, self._root = open_place(url, "runtime.checkpoint.mirror")
        self._run = f"{self._root}/{store.folder.name}"
        self._steps: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._newest: int | None = None
        self._failure: str | None = None
        """Why the last try failed; None if it did not."""
        self._is_ending = False
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)

    def start(self) -> None:
        """Start to copy, beginning with the newest checkpoint that the store already has."""
        if there := self._store.steps():
            self.offer(there[-1])
        self._thread.start()

    def offer(self, step: int) -> None:
        """Ask for a copy of the checkpoint of `step`, which is whole; a newer one replaces it.
        Returns at once."""
        self._newest = step
        self._steps.put(step)

    def close(self) -> None:
        """Wait for the last copy, at most WAIT_SECONDS. A copy that failed is tried once more; if
        it fails again, a sentence says so."""
        self._is_ending = True
        self._steps.put(None)
        self._thread.join(SAY_AFTER_SECONDS)
        if self._thread.is_alive():
            self._say(
                f"copying the last checkpoint to {self._url}, for at most {WAIT_SECONDS:.0f} s"
            )
            self._thread.join(WAIT_SECONDS)
        if self._thread.is_alive():
            self._say(
                f"the mirror {self._url} was too slow for the last checkpoint; it has the one "
                "before"
            )

    def _work(self) -> None:
        while (step := self._steps.get()) is not None:
            if step == self._newest:
                self._try_to_copy(step)
        if self._failure and self._newest is not None:
            self._try_to_copy(self._newest)
            if self._failure:
                self._say(
                    f"the mirror {self._url} does not have the last checkpoint, of step "
                    f"{self._newest:,} ({self._failure})"
                )

    def _try_to_copy(self, step: int) -> None:
        had_failed = self._failure is not None
        self._failure = None
        try:
            self.copy(step)
        # Every file system fails in its own ways, and none of them may stop training
        except Exception as error:
            self._failure = _in_a_line(error)
            if not had_failed:
                next_tries = "; training continues, and every later checkpoint is tried again"
                self._say(
                    f"the mirror {self._url} did not take the checkpoint of step {step:,} "
                    f"({self._failure}){'' if self._is_ending else next_tries}"
                )
        if had_failed and not self._failure:
            self._say(f"the mirror {self._url} takes checkpoints again")

    def copy(self, step: int) -> None:
        """Copy a checkpoint and the weights of its epochs; then remove from the mirror what the
        store no longer has."""
        if isinstance(self._fs, Mounted) and not Path(self._root).is_dir():
            raise FileNotFoundError("the folder is gone")
        frozen = self._store.folder / ".mirror.tmp"
        remove(frozen)
        # By links, because the store may remove the checkpoint meanwhile
        copy_tree(self._store.checkpoint_folder(step), frozen)
        self._fs.makedirs(self._run, exist_ok=True)
        if is_regular(timing := self._store.folder / TIMING):
            self._fs.put_file(str(timing), f"{self._run}/{TIMING}")
        weights = read_state(frozen).state.epoch_weights
        for epoch, sha256 in enumerate(weights, start=1):
            source = self._store.epoch_folder(epoch, sha256)
            self._put_weights(source, f"{self._run}/weights/{sha256}")
        self._put_checkpoint(frozen, self._checkpoint(step))
        self._prune(step, set(weights))
        shutil.rmtree(frozen)

    def _put_weights(self, source: Path, target: str) -> None:
        """Copy an epoch's weights, unless the mirror has them in full length."""
        path = f"{target}/{WEIGHTS}"
        if not (self._fs.exists(path) and self._fs.size(path) == (source / WEIGHTS).stat().st_size):
            self._put(source, target, last=WEIGHTS)

    def _put_checkpoint(self, source: Path, target: str) -> None:
        """Copy a checkpoint with its manifest last, so that an interrupted copy is not taken for a
        checkpoint."""
        manifest = f"{target}/{MANIFEST}"
        if self._fs.exists(manifest):
            if self._fs.cat_file(manifest) == (source / MANIFEST).read_bytes():
                return
            self._fs.rm_file(manifest)
        self._put(source, target, last=MANIFEST)

    def _put(self, source: Path, target: str, *, last: str) -> None:
        paths = list(source.rglob("*"))
        for path in (source, *paths):
            refuse_link(path)
        there = [path.relative_to(source).as_posix() for path in paths if path.is_file()]
        for folder in {f"{target}/{name}".rpartition("/")[0] for name in there}:
            self._fs.makedirs(folder, exist_ok=True)
        for names in ([name for name in there if name != last], [last]):
            self._fs.put(
                [str(source / name) for name in names], [f"{target}/{name}" for name in names]
            )

    def _prune(self, step: int, weights: set[str]) -> None:
        """Remove earlier checkpoints that the store no longer has, also those whose copy ended
        midway. After the newest checkpoint, also remove weights that no checkpoint of the store
        names."""
        there = self._there()
        for other in self._begun():
            if other < step and other not in self._store.steps():
                if other in there:
                    self._fs.rm_file(f"{self._checkpoint(other)}/{MANIFEST}")
                self._remove(self._checkpoint(other))
        others = {*filter(SHA256.fullmatch, self._names("weights"))} - weights
        if others and there[-1:] == [step]:
            for name in others - {sha256 for _, sha256 in self._store.named_weights()}:
                self._remove(f"{self._run}/weights/{name}")

    def _remove(self, folder: str) -> None:
        """Remove a folder. A link in it or in its place is removed, but not what it points to."""
        if isinstance(self._fs, Mounted):
            self._fs.remove(folder)
        else:  # not `rm`, which takes a bracket in a name for a pattern
            for path in self._fs.find(folder):
                self._fs.rm_file(path)

    def _checkpoint(self, step: int) -> str:
        return f"{self._run}/{self._store.checkpoint_folder(step).name}"

    def _names(self, folder: str) -> list[str]:
        """The names in a folder of the run, sorted; none if there is no such folder."""
        try:
            return sorted(
                Path(path).name
                for path in self._fs.ls(f"{self._run}/{folder}".rstrip("/"), detail=False)
            )
        except FileNotFoundError:
            return []

    def _begun(self) -> list[int]:
        """The steps of the checkpoints in the mirror, whole or not, in order."""
        return [int(match[1]) for name in self._names("") if (match := STEP_NAME.fullmatch(name))]

    def _there(self) -> list[int]:
        """Those of them that have a manifest."""
        return [
            step
            for step in self._begun()
            if self._fs.exists(f"{self._checkpoint(step)}/{MANIFEST}")
        ]

    def fetch_better(self, choose: Choose) -> None:
        """Fetch the mirror's checkpoint into the store if `choose` prefers it to all whole ones
        here, and with it the earlier ones of the same run.

        Other runs may have left checkpoints of the same configuration, with other weights of the
        same epochs. Those are left alone.
        """
        try:
            offered = list(self._offered())
            here = self._store.checkpoints(lambda _: None)
            while offered:
                # Once, and only as far as `choose` looks: the files of each one here are hashed
                here, looked_at = itertools.tee(here)
                both = heapq.merge(looked_at, offered, key=attrgetter("step"), reverse=True)
                if (best := choose(both)) not in offered:
                    return
                offered.remove(best)
                self._say(
                    f"fetching the checkpoint of step {best.step:,} from the mirror {self._url}"
                )
                if self._is_fetched(best):
                    held = {checkpoint.step for checkpoint in here}
                    for other in offered:
                        if _is_before(other, best) and other.step not in held:
                            self._is_fetched(other)
                    self._fetch_times()
                    return
        except Exception as error:  # as in _try_to_copy
            self._say(
                f"the mirror {self._url} cannot be read ({_in_a_line(error)}); training continues "
                "without it"
            )

    def _offered(self) -> Iterator[Checkpoint]:
        """The mirror's checkpoints, newest first; only what they say about themselves is here."""
        self._store.folder.mkdir(parents=True, exist_ok=True)
        for step in reversed(self._there()):
            source = self._checkpoint(step)
            with self._temporary() as temporary:
                try:
                    self._fs.get_file(f"{source}/{MANIFEST}", str(temporary / MANIFEST))
                    self._get(source, temporary, {STATE: read_hashes(temporary)[STATE]})
                    saved = read_state(temporary)
                    if saved.state.step != step:
                        raise ValueError(f"it is of step {saved.state.step:,}")
                except (UserError, ValueError, KeyError) as error:
                    self._leave_out(step, error)
                else:
                    yield Checkpoint(Path(source), saved.state, saved.resumable)

    def _is_fetched(self, checkpoint: Checkpoint) -> bool:
        try:
            self._fetch(checkpoint.step)
        except (UserError, ValueError) as error:
            self._leave_out(checkpoint.step, error)
            return False
        return True

    def _leave_out(self, step: int, error: Exception) -> None:
        self._say(f"the checkpoint of step {step:,} in the mirror {self._url} is not used: {error}")

    def _fetch_times(self) -> None:
        if self._fs.exists(f"{self._run}/{TIMING}"):
            with write_beside(self._store.folder / TIMING) as beside:
                self._fs.get_file(f"{self._run}/{TIMING}", str(beside))

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(
            prefix=".fetch", suffix=".tmp", dir=self._store.folder
        ) as folder:
            yield Path(folder)

    def _fetch(self, step: int) -> None:
        """Put a checkpoint and the epochs that it needs into the store, after all of it is here and
        its hashes are right.

        Raises:
            UserError: the manifest or the state is of another form, as one with a name that leads
                elsewhere.
            ValueError: a file is not what the manifest says.
        """
        store = self._store
        source = self._checkpoint(step)
        with self._temporary() as temporary:
            checkpoint = temporary / "checkpoint"
            epochs = dict[Path, Path]()
            checkpoint.mkdir()
            self._fs.get_file(f"{source}/{MANIFEST}", str(checkpoint / MANIFEST))
            self._get(source, checkpoint, read_hashes(checkpoint))
            for epoch, files in enumerate(read_state(checkpoint).state.epoch_files(), start=1):
                target = store.epoch_folder(epoch, files[WEIGHTS])
                if not has_files(target, files):
                    folder = temporary / target.name
                    self._get(f"{self._run}/weights/{files[WEIGHTS]}", folder, files)
                    # The same for all epochs of a run
                    for name, place in ((CONFIG, ""), (ADAPTER_CONFIG, ADAPTER_FOLDER)):
                        if (checkpoint / name).exists():
                            shutil.copyfile(checkpoint / name, folder / place / name)
                    epochs[folder] = target
            for fetched, target in (epochs | {checkpoint: store.checkpoint_folder(step)}).items():
                with write_directory(target) as empty:
                    empty.rmdir()
                    fetched.replace(empty)

    def _get(self, source: str, folder: Path, hashes: dict[str, str]) -> None:
        for name, sha256 in hashes.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            self._fs.get_file(f"{source}/{name}", str(folder / name))
            if sha256_of(folder / name) != sha256:
                raise ValueError(f"{source}/{name} is damaged")


def _is_before(checkpoint: Checkpoint, later: Checkpoint) -> bool:
    """Whether a checkpoint leads to a later one: whether the weights of its epochs are that
    one's."""
    files = checkpoint.state.epoch_files()
    return checkpoint.step < later.step and files == later.state.epoch_files()[: len(files)]


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
