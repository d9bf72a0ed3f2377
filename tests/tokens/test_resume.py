"""A stage that was killed goes on from its finished shards, and a corpus that changed encodes only
what is new."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.folders import contents
from tests.imports import ROOT
from tests.tokens.clean_text import PROSE, write_clean
from tests.tokens.packing import pack_here, results_of
from tests.waiting import wait_for
from tokenmill.core.errors import UserError
from tokenmill.formats.token_file import PackedShard, read_metadata
from tokenmill.tokens import pack as pack_module
from tokenmill.tokens.corpus import Choice, choose_split
from tokenmill.tokens.params import TokenizeParams

SLOWLY = """
import itertools, sys, threading, time
from pathlib import Path
from tests.tokens.packing import pack_here
from tokenmill.tokens import pack as module
from tokenmill.tokens.params import TokenizeParams

def slowly(*given):
    if next(begun) >= shards:
        threading.Event().wait()
    time.sleep(0.02)
    return encode(*given)

encode, begun, shards = module._encoded, itertools.count(), int(sys.argv[4])
module._encoded = slowly
paths = map(Path, sys.argv[1:4])
pack_here(*paths, TokenizeParams(split="tail", val_fraction=0.3))
"""
TAIL = TokenizeParams(split="tail", val_fraction=0.3)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the shards that are encoded in this process."""
    names: list[str] = []
    encode = pack_module._encoded  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(
        pack_module,
        "_encoded",
        lambda item, *more: names.append(item.shard.path.name) or encode(item, *more),
    )
    return names


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
def test_a_killed_stage_encodes_only_the_rest(
    bpe_file: Path, tmp_path: Path, encoded: list[str]
) -> None:
    clean = write_clean(tmp_path / "clean", PROSE, shard_bytes=200)
    shards = len(list(clean.iterdir()))
    assert shards > 30
    finished = int(0.7 * shards)
    pack_here(clean, bpe_file, tmp_path / "quiet", TAIL)
    encoded.clear()
    out = tmp_path / "packed"
    child = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, clean, bpe_file, out, str(finished)],
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"},
    )
    results = results_of(out)
    wait_for(lambda: len(list(results.glob("*.json"))) == finished, of=child)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not out.exists()
    pack_here(clean, bpe_file, out, TAIL)
    assert len(encoded) == shards - finished
    assert contents(out) == contents(tmp_path / "quiet")


def test_only_new_text_is_encoded(
    corpus: Callable[..., Path], bpe_file: Path, tmp_path: Path, encoded: list[str]
) -> None:
    """The same shards under other numbers are taken as they are; damaged results are not."""
    texts = [f"{text} {number}" for number, text in enumerate(PROSE[:30])]
    hashed = TokenizeParams(split="hash", val_fraction=0.3)
    out = tmp_path / "packed"
    pack_here(corpus(texts, shard_bytes=1), bpe_file, out, hashed)
    assert len(encoded) == len(texts)
    before = read_metadata(out)
    encoded.clear()
    pack_here(corpus(["New text.", *texts], shard_bytes=1), bpe_file, out, hashed)
    assert encoded == ["part-00000.parquet"]
    after = read_metadata(out)
    assert [one.sha256 for one in after.shards[1:]] == [one.sha256 for one in before.shards]
    for damaged in sorted(results_of(out).glob("*.zst"))[:2]:
        damaged.unlink()
        damaged.write_bytes(b"other")
    encoded.clear()
    pack_here(corpus(texts, shard_bytes=1), bpe_file, out, hashed)
    assert len(encoded) <= 2
    assert read_metadata(out) == before
    assert len(list(results_of(out).iterdir())) == 2 * len(texts)


def test_shards_of_the_same_bytes_are_kept_once(bpe_file: Path, tmp_path: Path) -> None:
    """As of one line repeated without end. Tasks keep them at the same time."""
    clean = write_clean(tmp_path / "clean", PROSE[:1] * 60, shard_bytes=1)
    out = tmp_path / "packed"
    metadata, _ = pack_here(clean, bpe_file, out, TAIL)
    assert len({shard.sha256 for shard in metadata.shards}) == 2  # before the cut and behind it
    assert len(list(results_of(out).glob("*.zst"))) == 2


def test_a_shard_that_changes_meanwhile_is_not_kept(
    bpe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes were hashed before; with them back, it is encoded anew."""
    clean = write_clean(tmp_path / "clean", PROSE)
    other = write_clean(tmp_path / "other", PROSE[::-1])
    pack_here(clean, bpe_file, tmp_path / "quiet", TAIL)
    (shard,) = clean.iterdir()
    right = shard.read_bytes()
    out = tmp_path / "packed"
    encode = pack_module._encoded  # pyright: ignore[reportPrivateUsage]

    def encode_other(*given: Any) -> PackedShard:
        shard.write_bytes((other / shard.name).read_bytes())
        return encode(*given)

    with monkeypatch.context() as patch:
        patch.setattr(pack_module, "_encoded", encode_other)
        with pytest.raises(UserError, match=f"{shard.name} changed while it was read"):
            pack_here(clean, bpe_file, out, TAIL)
    shard.write_bytes(right)
    pack_here(clean, bpe_file, out, TAIL)
    assert contents(out) == contents(tmp_path / "quiet")


def test_a_shard_that_vanishes_meanwhile_is_named(
    bpe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = write_clean(tmp_path / "clean", PROSE, shard_bytes=200)
    last = max(clean.iterdir())

    def choose(*given: Any) -> Choice:
        choice = choose_split(*given)
        assert [shard.path for shard, _ in choice.rules] == sorted(clean.iterdir())
        last.unlink()
        return choice

    monkeypatch.setattr(pack_module, "choose_split", choose)
    with pytest.raises(FileNotFoundError, match=last.name):
        pack_here(clean, bpe_file, tmp_path / "packed", TAIL)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
def test_a_second_run_waits_for_the_first(
    bpe_file: Path, tmp_path: Path, encoded: list[str]
) -> None:
    """Both keep finished shards in one folder; the second takes what the first has encoded."""
    clean = write_clean(tmp_path / "clean", PROSE, shard_bytes=200)
    out = tmp_path / "packed"
    child = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, clean, bpe_file, out, "1000"],
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"},
    )
    wait_for(lambda: list(results_of(out).glob("*.json")), of=child)
    pack_here(clean, bpe_file, tmp_path / "second", TAIL, results=results_of(out))
    assert child.wait() == 0
    assert not encoded
    assert contents(tmp_path / "second") == contents(out)
