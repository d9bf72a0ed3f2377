"""The index of the training text: the same tokens give the same files, and damage is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tests.folders import contents
from tests.imports import ROOT
from tests.tokens.packing import index_here
from tests.waiting import wait_for
from tokenmill.core.errors import UserError
from tokenmill.formats.token_index import IndexMetadata, open_index, read_index_metadata
from tokenmill.tokens.params import TokenizeParams

PART_BYTES = 2000
"""So that the text has several parts."""

SPLITS = [
    TokenizeParams(split=split, val_fraction=0.3) for split in ("hash", "ends", "tail", "auto")
]

STOPPING = """
import itertools, sys, threading
from pathlib import Path
from tokenmill.tokens import index as module
from tokenmill.tokens.params import TokenizeParams

sort, sorted_parts, parts = module.divsufsort, itertools.count(), int(sys.argv[6])
module.divsufsort = lambda content: (
    sort(content) if next(sorted_parts) < parts else threading.Event().wait()
)
module.PART_BYTES = int(sys.argv[5])
clean, tokens, tokenizer_file, out = map(Path, sys.argv[1:5])
module.build_index(
    clean=clean,
    tokens=tokens,
    tokenizer_file=tokenizer_file,
    out=out,
    split=TokenizeParams(split="hash", val_fraction=0.3),
    max_tokens=10**9,
)
"""


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.split)
def test_the_same_tokens_give_the_same_files(
    split: TokenizeParams, prose: Path, bpe_file: Path, tmp_path: Path
) -> None:
    """Also if they are compressed."""
    folders = [
        index_here(
            tmp_path / str(compressed),
            prose,
            bpe_file,
            split,
            part_bytes=PART_BYTES,
            compressed=compressed,
        )
        for compressed in (False, True)
    ]
    assert contents(folders[0]) == contents(folders[1])
    plain, compressed = (open_index(one, one.parent / "tokens") for one in folders)
    assert np.array_equal(plain.tokens, compressed.tokens)
    assert len(plain.places) > 1
    assert plain.metadata.documents == len(plain.documents)


@pytest.fixture(scope="module")
def of_parts(
    prose: Path, bpe_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """An index of several parts, and its tokens."""
    folder = tmp_path_factory.mktemp("parts")
    index = index_here(folder, prose, bpe_file, SPLITS[0], part_bytes=PART_BYTES)
    return index, folder / "tokens"


@pytest.mark.parametrize("name", ["part-00000.sa", "documents.bin", "metadata.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_damage_is_refused(
    name: str, damage: str, of_parts: tuple[Path, Path], tmp_path: Path
) -> None:
    index, tokens = of_parts
    folder = shutil.copytree(index, tmp_path / "index")
    open_index(folder, tokens)
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[:-4])
    elif damage == "changed":
        path.write_bytes(content[:4] + bytes([content[4] ^ 1]) + content[5:])
    with pytest.raises(UserError, match=r"index"):
        open_index(folder, tokens)


def test_other_tokens_are_refused(prose: Path, bpe_file: Path, tmp_path: Path) -> None:
    one = index_here(tmp_path / "one", prose, bpe_file, SPLITS[0])
    index_here(tmp_path / "two", prose, bpe_file, SPLITS[2])
    with pytest.raises(UserError, match="other tokens"):
        open_index(one, tmp_path / "two/tokens")


def test_places_outside_their_part_are_refused(of_parts: tuple[Path, Path], tmp_path: Path) -> None:
    """Also where the metadata says that they are right."""
    index, tokens = of_parts
    folder = shutil.copytree(index, tmp_path / "index")
    metadata = json.loads((folder / "metadata.json").read_text())
    metadata["parts"][0]["tokens"] -= 900
    metadata["parts"][1]["start"] -= 900
    metadata["parts"][1]["tokens"] += 900
    (folder / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(UserError, match="outside"):
        open_index(folder, tokens)


@pytest.mark.parametrize(
    "change",
    [
        lambda metadata: metadata["parts"][1].update(start=11),
        lambda metadata: metadata["parts"].pop(),
        lambda metadata: metadata["sources"][0].update(first_document=1),
        lambda metadata: metadata["sources"][1].update(first_document=3),
        lambda metadata: metadata["sources"].append(metadata["sources"][-1]),
    ],
    ids=["a gap", "the last part", "the first document", "no document", "twice"],
)
def test_metadata_that_contradicts_itself_is_refused(change: Callable[[Any], object]) -> None:
    part = {"tokens": 10, "places": 5, "sha256": "0" * 64}
    metadata: dict[str, Any] = {
        "format_version": 1,
        "tokens_sha256": "0" * 64,
        "tokens": 20,
        "documents": 3,
        "documents_sha256": "0" * 64,
        "sources": [{"first_document": 0, "name": "a.txt"}, {"first_document": 2, "name": "b.txt"}],
        "parts": [part | {"name": f"part-{n}.sa", "start": 10 * n} for n in range(2)],
    }
    IndexMetadata.model_validate(metadata)
    change(metadata)
    with pytest.raises(ValidationError):
        IndexMetadata.model_validate(metadata)


def test_a_text_that_is_too_long_has_no_index(prose: Path, bpe_file: Path, tmp_path: Path) -> None:
    folder = index_here(tmp_path, prose, bpe_file, SPLITS[0], max_tokens=100)
    assert not read_index_metadata(folder).parts
    with pytest.raises(UserError, match=r"trace\.max_tokens"):
        open_index(folder, tmp_path / "tokens")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no kill -9")
def test_a_killed_stage_leaves_the_index_as_it_was(
    prose: Path, bpe_file: Path, tmp_path: Path
) -> None:
    """However many parts it has written; and the next run leaves nothing else."""
    out = index_here(tmp_path, prose, bpe_file, SPLITS[0])
    before = contents(out)
    command = [sys.executable, "-c", STOPPING, prose, tmp_path / "tokens", bpe_file, out, "500"]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    for parts in (1, 3, 6):
        child = subprocess.Popen([*command, str(parts)], env=environment)
        wait_for(lambda: len(list(tmp_path.glob(".index.tmp/*.sa"))) == parts, of=child)  # noqa: B023
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert contents(out) == before
    names = {path.name for path in tmp_path.iterdir()}
    subprocess.run([*command, "1000"], env=environment, check=True)
    assert {path.name for path in tmp_path.iterdir()} == names - {".index.tmp"}
    quiet = index_here(tmp_path / "quiet", prose, bpe_file, SPLITS[0], part_bytes=500)
    assert contents(out) == contents(quiet)
    assert contents(out) != before
