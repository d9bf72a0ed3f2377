"""A full disk leaves a sentence and nothing else; the longest document fits into 700 MB of
memory."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.imports import ROOT
from tests.tokens.clean_text import write_clean
from tests.tokens.packing import pack_here
from tokenmill.formats.token_file import read_metadata
from tokenmill.tokens.params import TokenizeParams
from tokenmill.tokens.unpack import unpack

ROOM = 1 << 16
"""Bytes that a full disk has."""
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, mounts a small disk")


def run(
    code: str, *arguments: object, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Python code in a process of its own, with the library's names and `arguments` in sys.argv."""
    names = (
        "import sys; from pathlib import Path\n"
        "from tokenmill.core.errors import UserError\n"
        "from tokenmill.tokens.train_tokenizer import train_tokenizer\n"
        "from tests.tokens.packing import pack_here\n"
        "from tokenmill.tokens.index import build_index\n"
        "from tokenmill.tokens.params import TokenizeParams, TokenizerParams\n"
        "from tokenmill.tokens.unpack import unpack\n"
        "one, two, three = map(Path, sys.argv[1:4])\n"
    )
    return subprocess.run(
        [*before, sys.executable, "-c", names + code, *map(str, arguments)],
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        capture_output=True,
        text=True,
        check=False,
    )


class Attempts(NamedTuple):
    """What was tried where a limit leaves ROOM."""

    limit: str
    folder: Path
    said: dict[str, tuple[str, str]]
    """For each work, the sentence, and the names that it left in the folder."""


@pytest.fixture(scope="module")
def noise(bpe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a clean corpus that takes far more than ROOM, and its tokens, packed and
    unpacked."""
    folder = tmp_path_factory.mktemp("noise")
    digits = np.random.default_rng(0).integers(0, 10, (150, 2500)).astype(str)
    clean = write_clean(folder / "clean", [" ".join("".join(row)) for row in digits])
    pack_here(clean, bpe_file, folder / "packed", TokenizeParams(split="hash", val_fraction=0.3))
    unpack(folder / "packed", folder / "tokens")
    return folder


PACK = (
    "pack_here(one / 'clean', two, three / 'out', TokenizeParams(split='hash', val_fraction=0.3))"
)
UNPACK = "unpack(one / 'packed', three / 'out')"
INDEX = (
    "build_index(clean=one / 'clean', tokens=one / 'tokens', tokenizer_file=two, out=three / 'out',"
    " split=TokenizeParams(split='hash', val_fraction=0.3), max_tokens=10**9)"
)
WORKS = {"pack": PACK, "unpack": UNPACK, "index": INDEX}
ATTEMPT = """
try:
    {}
except UserError as error:
    print(error)
print(sorted(path.name for path in three.iterdir()))
"""


@pytest.fixture(scope="module", params=["disk", "file"])
def ended(
    request: pytest.FixtureRequest,
    noise: Path,
    bpe_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Attempts:
    """What each work says in a full folder and leaves there, one after another in one process."""
    folder = tmp_path_factory.mktemp("full")
    attempts = "".join(map(ATTEMPT.format, WORKS.values()))
    if request.param == "disk":
        if subprocess.run(
            [*UNSHARE, "mount", "-t", "tmpfs", "x", folder], check=False, capture_output=True
        ).returncode:
            pytest.skip("no disk can be mounted here")
        disk = f'mount -t tmpfs -o size={ROOM} small "$0" && exec "$@"'
        before = (*UNSHARE, "sh", "-c", disk, str(folder))
    else:
        attempts = (
            f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM}, {ROOM}))\n"
            + attempts
        )
        before = ()
    done = run(attempts, noise, bpe_file, folder, before=before)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    said = dict(zip(WORKS, zip(lines[::2], lines[1::2], strict=True), strict=True))
    return Attempts(request.param, folder, said)


@linux
@pytest.mark.parametrize("work", WORKS)
def test_full_disk_names_the_bytes_needed(work: str, ended: Attempts, noise: Path) -> None:
    sentence, left = ended.said[work]
    disk, size = ("No space left on device", "free space"), ("File too large", "allow larger files")
    why, way_out = disk if ended.limit == "disk" else size
    found = re.fullmatch(
        rf"{ended.folder}/out: {why}; it takes about ([\d,]+) bytes; {way_out}.* and run "
        r"`dvc repro` again.",
        sentence,
    )
    assert found, sentence
    needed = int(found[1].replace(",", ""))
    metadata = read_metadata(noise / "packed")
    if work == "unpack":
        assert needed == 4 * (metadata.train.tokens + metadata.val.tokens)
    elif work == "index":
        assert needed == 4 * metadata.train.tokens
    else:
        size = sum(path.stat().st_size for path in (noise / "packed").glob("*.zst"))
        assert 0.8 * size < needed < 1.25 * size
    assert left == "[]"


WRITE = """
from tests.tokens.clean_text import PROSE, write_clean
long = " ".join(PROSE) * (33_000_000 // sum(len(text.encode()) + 1 for text in PROSE))
write_clean(one / "clean", [*PROSE, long + "the end", *PROSE[::-1]], shard_bytes=10**9)
"""
PEAK = """
import re
print(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""
LEARN = """
params = TokenizerParams(type="bpe", vocab_size=400, sample_bytes=10**7)
train_tokenizer(one / "clean", three / "tokenizer.json", params)
"""


@linux
@pytest.mark.slow
def test_longest_document_needs_less_than_700_mb(bpe_file: Path, tmp_path: Path) -> None:
    written = run(WRITE, tmp_path, bpe_file, tmp_path)
    assert written.returncode == 0, written.stderr
    for work in (LEARN, PACK):
        ended = run(work + PEAK, tmp_path, bpe_file, tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert int(ended.stdout) * 1024 < 7e8
    packed = read_metadata(tmp_path / "out")
    assert max(packed.train.bytes, packed.val.bytes) > 30_000_000
    assert packed.train.documents + packed.val.documents == 2 * 84 + 1
