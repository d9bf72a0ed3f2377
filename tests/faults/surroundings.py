"""What surrounds a program: variables of the environment, files in the project's folder that are
named as modules, closed streams, limits. And addresses that hold a secret."""

import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults import trial
from tests.faults.disk import forget
from tests.faults.material import CONSUMERS, DEEP, OUTPUTS, STAGES, Quiet, written
from tests.faults.table import Result
from tests.faults.trial import Outcome
from tests.pipeline.project import change_params

VARIABLES = {
    "WORLD_SIZE": ("2", "x", "-1"),
    "RANK": ("1", "x"),
    "LOCAL_RANK": ("7",),
    "PYTHONSAFEPATH": ("1",),
    "PYTHONOPTIMIZE": ("2",),
    "PYTHONIOENCODING": ("ascii", "utf-16"),
    "PYTHONUTF8": ("0",),
    "LC_ALL": ("C", "xx_XX"),
    "DVC_ROOT": ("/", "/nowhere"),
    "GIT_DIR": ("/nowhere",),
    "GIT_WORK_TREE": ("/",),
    "HOME": ("/nowhere",),
    "TMPDIR": ("/nowhere",),
    "TZ": ("nowhere/\x1b",),
    "COLUMNS": ("0", "-1", "x", "9999999"),
    "TERM": ("", "dumb", "\x1b[2J"),
    "OMP_NUM_THREADS": ("0", "x", "999"),
    "POLARS_MAX_THREADS": ("0", "x"),
    "RAYON_NUM_THREADS": ("x", "1"),
    "CUDA_VISIBLE_DEVICES": ("x", "-1"),
    "HF_ENDPOINT": ("x", "http://me:SECRET@127.0.0.1:1"),
    "NO_COLOR": ("1",),
}

MODULES = ("random", "json", "enum", "typing", "numpy", "torch", "polars", "dvc", "types", "test")
"""Names of files in the project's folder that are modules of others."""

STREAMS = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-", "> /dev/full", "2> /dev/full")

CPU_SECOND = "ulimit -t 1"
"""After it the kernel sends SIGKILL, to which no program can answer; `kills` looks at what is then
left."""

LIMITS = ("ulimit -v 1000000", "ulimit -n 16", "ulimit -f 1", "umask 777", CPU_SECOND)

SECRETS = (
    "{scheme}://ada:SECRET@{host}/x.txt",
    "{scheme}://ada:SE%43RET-SECRET@{host}/x.txt",
    "{scheme}://SECRET@{host}/x.txt",
    "{scheme}://ada:a@SECRET@{host}/x.txt",
    "{scheme}://ada:SECRET/1@{host}/x.txt",
    "{scheme}://{host}/x.txt?token=SECRET",
    "{scheme}://{host}/x.txt?a=1&sig=SECRET",
    "{scheme}://{host}/x.txt?X-Amz-Credential=SECRET&X-Amz-Signature=SECRET",
    "{scheme}://{host}/x.txt#access_token=SECRET",
    "{scheme}://ada:\x1b[2JSECRET@{host}/x.txt",
)
SCHEMES = ("https", "http")
HOSTS = ("127.0.0.1:1", "host.invalid", "[::1]:1")


def environment_trials(
    quiet: Quiet, chance: random.Random, count: int, match: str = ""
) -> Iterator[Result]:
    """A stage or command of a new process in hostile surroundings; a stage that ends well writes
    what it always writes."""
    all_ = [
        (case, consumer)
        for case in _cases()
        for consumer in CONSUMERS
        if match in f"{case} {consumer}"
    ]
    for case, consumer in chance.sample(all_, min(count, len(all_))):
        yield _one(quiet, case, consumer)


def _cases() -> Iterator[tuple[str, str]]:
    for name, values in VARIABLES.items():
        yield from ((name, value) for value in values)
    yield from (("module", name) for name in MODULES)
    yield from (("stream", name) for name in STREAMS)
    yield from (("limit", name) for name in LIMITS)


def _one(quiet: Quiet, case: tuple[str, str], consumer: str) -> Result:
    kind, value = case
    with quiet.copy() as root:
        if consumer in STAGES and consumer != "train":
            forget(root, consumer)
        if kind == "module":
            (root / f"{value}.py").write_text("raise SystemExit('another module of this name')\n")
        outcome = _typed(root, consumer, case)
        ending = outcome.ending
        if ending == "done":
            same = consumer in STAGES and written(root, consumer) == _expected(quiet, consumer)
            ending = "same" if same else ("wrong" if consumer in STAGES else "other")
        if kind == "module" and "runpy" in outcome.said:
            outcome, ending = _as_advised(quiet, root, case, consumer)
        if "another module of this name" in outcome.said or "SECRET" in outcome.said:
            ending = "wrong"
        left = [path.name for path in root.rglob(".*.tmp") if "cache" not in path.parts]
        if left and ending == "refused" and kind != "limit":
            ending = "wrong"
        if ending == "signal" and value == CPU_SECOND:
            ending = "other"
    return Result("surround", f"{kind} {value!r}, {consumer}", ending, outcome.said)


def _as_advised(
    quiet: Quiet, root: Path, case: tuple[str, str], consumer: str
) -> tuple[Outcome, str]:
    """Python itself could not start; what happens after the command that `doctor` names."""
    file = f"{case[1]}.py"
    advised = f"mv {file} " in _typed(root, DEEP, case).said
    (root / file).unlink()
    outcome = _typed(root, consumer, case)
    same = consumer not in STAGES or written(root, consumer) == _expected(quiet, consumer)
    return outcome, "mended" if advised and same and outcome.ending == "done" else "lost"


def _expected(quiet: Quiet, consumer: str) -> str:
    return written(quiet.root, consumer) if consumer in OUTPUTS else ""


def _typed(root: Path, consumer: str, case: tuple[str, str]) -> Outcome:
    """A program as a shell starts it."""
    kind, value = case
    first, *arguments = CONSUMERS[consumer]
    words = ["tokenmill", *arguments] if first == "tokenmill" else ["python", "-m", "stages", first]
    before = f"{value}; " if kind == "limit" else ""
    after = f" {value}" if kind == "stream" else ""
    library = {"PYTHONPATH": f"{trial.__file__.rpartition('/tests/')[0]}/src"}
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    began = time.monotonic()
    try:
        done = subprocess.run(
            ["sh", "-c", f'{before}exec "$@"{after}', "sh", *words],
            cwd=root,
            env=os.environ | library | path | ({kind: value} if kind in VARIABLES else {}),
            capture_output=True,
            timeout=2 * trial.SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Outcome("hang", (error.stdout or b"").decode("utf-8", "replace"), 2 * trial.SECONDS)
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    return Outcome(trial.ending_of(done.returncode, said), said, time.monotonic() - began)


def address_trials(
    quiet: Quiet, chance: random.Random, count: int, match: str = ""
) -> Iterator[Result]:
    """An address with a secret, typed to `fetch` or written into params.yaml: nothing prints it and
    no other file holds it."""
    all_ = [
        (form.format(scheme=scheme, host=host), how)
        for form, scheme, host in itertools.product(SECRETS, SCHEMES, HOSTS)
        for how in ("fetch", "data.raw", "runtime.checkpoint.mirror")
        if match in f"{form} {how}"
    ]
    for address, how in chance.sample(all_, min(count, len(all_))):
        with quiet.copy() as root:
            command = ["tokenmill", "fetch", address]
            if how != "fetch":
                change_params(root / "params.yaml", {how: address, "runtime.max_minutes": 0.03})
                forget(root, "train")
                words = (["clean"], ["tokenmill"], ["tokenmill", "plan"], ["tokenmill", "doctor"])
                command = chance.choice(words)
            outcome = trial.run(root, command)
            ending = "other" if outcome.ending == "done" else outcome.ending
            if "SECRET" in outcome.said or "\x1b" in outcome.said or _recorded(root):
                ending = "wrong"
        yield Result("address", f"{address!r} {' '.join(command[:2])}, {how}", ending, outcome.said)


def _recorded(root: Path) -> list[str]:
    """The files, other than params.yaml, that hold the secret."""
    files = [path for path in root.rglob("*") if path.is_file() and "cache" not in path.parts]
    return [
        path.name
        for path in files
        if path.name != "params.yaml" and not {"src", "stages"} & set(path.parts)
        if b"SECRET" in path.read_bytes()
    ]
