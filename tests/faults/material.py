"""What is damaged and who reads it: a finished project of a very small model, its files, the stages
and commands."""

import contextlib
import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults import trial
from tests.faults.trial import Outcome
from tests.pipeline.project import STAGES as PIPELINE
from tests.pipeline.project import Project

STAGES = PIPELINE[2:]
"""Those that read what another stage wrote."""

COMMANDS: dict[str, list[str]] = {
    "status": [],
    "summary": ["summary"],
    "compare": ["compare", "--no-browser"],
    "trace text": ["trace", "The capital of France is Paris."],
    "generate": ["generate", "--max-new-tokens", "8", "Who wrote Hamlet?"],
    "plan": ["plan"],
    "preset": ["preset", "phase1"],
    "doctor": ["doctor"],
    "params": ["params"],
    "doctor --deep": ["doctor", "--deep"],
    "watch": ["watch", "--once"],
}

DEEP = "doctor --deep"
"""The command that finds what is damaged in DVC's cache."""

CONSUMERS: dict[str, list[str]] = {stage: [stage] for stage in STAGES} | {
    name: ["tokenmill", *arguments] for name, arguments in COMMANDS.items()
}

OUTPUTS = {
    "clean": ("data/clean", "data/clean_report.json", "metrics/clean.json"),
    "tokenizer": ("data/tokenizer", "metrics/tokenizer.json"),
    "tokenize": ("data/packed", "metrics/tokens.json"),
    "unpack": ("data/tokens",),
    "index": ("data/index",),
    "data_report": ("reports/data.html", "metrics/data.json"),
    "train": ("models/gpt", "metrics/train.json", "metrics/history.csv", "metrics/steps.csv"),
    "evaluate": (
        "reports/evaluation.json",
        "reports/validation_documents.csv",
        "metrics/eval.json",
        "metrics/loss_by_source.csv",
        "metrics/loss_by_language.csv",
    ),
    "trace": ("reports/answer_traces.json", "metrics/trace.json"),
    "benchmark": ("reports/benchmarks.json", "metrics/benchmarks.json", "metrics/benchmarks.csv"),
    "report": ("reports/index.html", "reports/samples.md"),
}
"""What a stage writes; the run report without its times."""

CODE = ("src", "stages")
NOT_USED = ("tests", "docs", "bench", ".github")

NOT_READ = (*CODE, *NOT_USED, ".git", ".dvc/cache")
"""Folders of the project that hold no artefact."""

TIMES = re.compile(r"[\d.,]+ (?:s|ms|min|tokens/s)\b")


@dataclass(frozen=True)
class Quiet:
    """A finished project that nothing disturbed, and what its consumers say and write."""

    root: Path

    @contextlib.contextmanager
    def copy(self, *, whole: bool = False) -> Iterator[Path]:
        """A copy to damage; code is a link, because nobody writes there. `whole`: one in which DVC
        can run."""
        with tempfile.TemporaryDirectory(prefix="fault-", dir=self.root.parent) as folder:
            root = Path(folder) / "project"
            left_out = [] if whole else [*CODE, *NOT_USED]
            shutil.copytree(self.root, root, ignore=_top(self.root, left_out), symlinks=True)
            for name in () if whole else CODE:
                (root / name).symlink_to(self.root / name)
            yield root

    def artefacts(self) -> list[Path]:
        """Every file that a stage or a command may read, relative to the root."""
        found = [path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file()]
        kept = [
            path
            for path in found
            if not path.as_posix().startswith(NOT_READ) and "__pycache__" not in path.parts
        ]
        return sorted(
            path
            for path in kept
            if len(path.parts) > 1 or path.name in ("params.yaml", "dvc.yaml", "dvc.lock")
        )

    def objects(self) -> list[Path]:
        """The objects in DVC's cache, relative to the root."""
        found = self.root.glob(".dvc/cache/files/md5/??/*")
        return sorted(path.relative_to(self.root) for path in found)

    def expected(self, consumer: str) -> tuple[Outcome, str]:
        """What a consumer says here, and a hash of what it writes."""
        with self.copy() as root:
            outcome = trial.run(root, CONSUMERS[consumer])
            assert outcome.ending in ("done", "refused"), outcome
            return outcome, written(root, consumer)


def _top(root: Path, names: Collection[str]) -> Callable[[str, list[str]], list[str]]:
    """What `copytree` leaves out: these names in `root` itself."""
    return lambda folder, _: list(names) if Path(folder) == root else []


def written(root: Path, consumer: str) -> str:
    """A hash of what a stage wrote; empty for a command, which writes nothing."""
    return Project(root).digest(*OUTPUTS[consumer]) if consumer in OUTPUTS else ""


def state(root: Path) -> dict[str, str]:
    """The SHA-256 of every output of the pipeline, except the page that shows times."""
    paths = [
        root / name for names in OUTPUTS.values() for name in names if name != "reports/index.html"
    ]
    files = [
        file
        for path in paths
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.is_file()
    ]
    return {
        file.relative_to(root).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def without_times(said: str) -> str:
    """What a command said, without what differs each time."""
    return TIMES.sub("…", said)
