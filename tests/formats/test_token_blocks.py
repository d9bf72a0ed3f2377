"""Ids in compressed blocks are read as from an array, whichever of them; a damaged file is a
sentence."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.core.errors import UserError
from tokenmill.core.paths import way_out
from tokenmill.formats import token_blocks as module
from tokenmill.formats.token_blocks import (
    BLOCK_IDS,
    Block,
    CompressedTokens,
    compressed_blocks,
    compressor,
    write_blocks,
)
from tokenmill.formats.token_file import COMPRESSED_SHARE, DTYPE, packed_dtype

DTYPES = ["<u2", "<i4"]


def ids_of(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(1 << 16, size=count, dtype=np.int32)


def written(
    path: Path, ids: np.ndarray, dtype: str, cuts: tuple[int, ...] = ()
) -> CompressedTokens:
    """The ids in a file, compressed in parts that end at `cuts`, as those of shards are."""
    with path.open("wb") as file:
        parts = np.split(ids, cuts)
        write_blocks(file, (block for part in parts for block in compressed_blocks(part, dtype)))
    return CompressedTokens(path, dtype, len(ids))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("blocks")


@given(data=st.data())
def test_any_part_is_that_of_the_array(files: Path, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_IDS", data.draw(st.integers(1, 9), "ids of a block"))
        patch.setattr(module, "READ_IDS", data.draw(st.integers(1, 30), "ids read at a time"))
        count = data.draw(st.integers(1, 60), "ids")
        cuts = data.draw(st.lists(st.integers(0, count), max_size=3).map(sorted), "cuts")
        ids = ids_of(count)
        dtype = data.draw(st.sampled_from(DTYPES))
        tokens = written(files / "any.zst", ids, dtype, tuple(cuts))
        start, stop = (data.draw(st.none() | st.integers(-70, 70)) for _ in range(2))
        assert np.array_equal(tokens[start:stop], ids[start:stop])
        width = data.draw(st.integers(1, count), "width")
        begins = data.draw(st.lists(st.integers(0, count - width), max_size=9))
        windows = tokens.windows(np.array(begins, np.int64), width)
        assert windows.shape == (len(begins), width)
        assert windows.tolist() == [ids[begin : begin + width].tolist() for begin in begins]
        assert windows.dtype == tokens[:1].dtype == np.dtype("<i4")


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_decompressor_reads_the_file(dtype: str, tmp_path: Path) -> None:
    ids = ids_of(2 * BLOCK_IDS + 5)
    assert len(written(tmp_path / "train.zst", ids, dtype)) == len(ids)
    content = (tmp_path / "train.zst").read_bytes()
    reader = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True)
    assert np.array_equal(np.frombuffer(reader.read(), dtype), ids)


def test_the_last_bytes_are_a_table_of_the_blocks(tmp_path: Path) -> None:
    """As the specification of the format has it."""
    written(tmp_path / "train.zst", ids_of(2 * BLOCK_IDS + 5), "<u2")
    content = (tmp_path / "train.zst").read_bytes()
    table = content[-8 - 3 * 8 - 9 :]
    assert struct.unpack("<II", table[:8]) == (0x184D2A5E, len(table) - 8)
    assert struct.unpack("<IBI", table[-9:]) == (3, 0, 0x8F92EAB1)
    sizes = np.frombuffer(table[8:-9], "<u4").reshape(3, 2)
    assert sizes[:, 0].sum() == len(content) - len(table)
    assert sizes[:, 1].tolist() == [2 * BLOCK_IDS, 2 * BLOCK_IDS, 10]


@pytest.mark.parametrize("entries", [32_000, 1 << 16, (1 << 16) + 1, 100_000, 200_000])
def test_words_take_about_the_share_that_is_planned_for(entries: int) -> None:
    """Words that are as frequent as Zipf's law has them, in no order."""
    weights = 1 / np.arange(1, entries + 1)
    ids = np.random.default_rng(0).choice(
        len(weights), size=4 * BLOCK_IDS, p=weights / weights.sum()
    )
    dtype = packed_dtype(entries)
    size = sum(len(block.frame) for block in compressed_blocks(ids, dtype))
    share = COMPRESSED_SHARE[dtype]
    assert 0.75 * share < size / ids.astype(DTYPE).nbytes < share


def with_sizes(change: Callable[[np.ndarray], None]) -> Callable[[bytes], bytes]:
    """Change the table of a file."""

    def changed(content: bytes) -> bytes:
        begin = -9 - 8 * int.from_bytes(content[-9:-5], "little")
        sizes = np.frombuffer(content[begin:-9], "<u4").copy().reshape(-1, 2)
        change(sizes)
        return content[:begin] + sizes.tobytes() + content[-9:]

    return changed


def moved(column: int) -> Callable[[np.ndarray], None]:
    def change(sizes: np.ndarray) -> None:
        sizes[0, column] -= 2
        sizes[1, column] += 2

    return change


def swapped(sizes: np.ndarray) -> None:
    sizes[:, 1] = sizes[::-1, 1].copy()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: b"", "is empty"),
        (lambda _: b"short", "does not end with a table"),
        (lambda old: old[:-1], "does not end with a table"),
        (lambda old: old[1:], "does not end with a table"),
        (lambda old: old + b"\0", "does not end with a table"),
        (lambda old: old[:-5] + b"\x80" + old[-4:], "does not end with a table"),
        (lambda old: old[:-9] + b"\xff\xff\xff\xff" + old[-5:], "does not end with a table"),
        (lambda old: old[:-4] + b"\0" + old[-3:], "does not end with a table"),
        (lambda old: old[:-33] + b"\0" + old[-32:], "does not end with a table"),
        (lambda old: old[:-29] + b"\0" + old[-28:], "does not end with a table"),
        (with_sizes(lambda sizes: sizes.fill(0)), "does not end with a table"),
        (with_sizes(lambda sizes: sizes[1:, 1].fill(12)), "is not in blocks of 8,197 ids"),
        (with_sizes(lambda sizes: sizes[1:, 1].fill(11)), "is not in blocks of 8,197 ids"),
        (with_sizes(lambda sizes: sizes[1:, 1].fill(8)), "is not in blocks of 8,197 ids"),
        (with_sizes(moved(0)), "cannot be decompressed"),
        (with_sizes(moved(1)), "cannot be decompressed"),
        (with_sizes(swapped), "cannot be decompressed"),
        (lambda old: old[:20] + bytes([old[20] ^ 1]) + old[21:], "cannot be decompressed"),
    ],
)
def test_a_damaged_file_is_refused(damage: Callable, message: str, tmp_path: Path) -> None:
    path = tmp_path / "train.zst"
    ids = ids_of(BLOCK_IDS + 5)
    written(path, ids, "<u2")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=message) as caught:
        CompressedTokens(path, "<u2", len(ids))[:]
    assert str(path) in str(caught.value)
    assert way_out(path) in str(caught.value)


@pytest.mark.parametrize("cuts", [[], [BLOCK_IDS, BLOCK_IDS]])
def test_blocks_of_too_many_or_no_ids_are_refused(cuts: list[int], tmp_path: Path) -> None:
    ids = ids_of(BLOCK_IDS + 1)
    compress = compressor("<u2").compress
    parts = np.split(ids.astype("<u2"), cuts)
    with (tmp_path / "train.zst").open("wb") as file:
        write_blocks(file, [Block(compress(part.tobytes()), part.nbytes) for part in parts])
    with pytest.raises(UserError, match="is not in blocks of 8,193 ids"):
        CompressedTokens(tmp_path / "train.zst", "<u2", len(ids))


@pytest.mark.parametrize("held", [BLOCK_IDS - 1, BLOCK_IDS + 1, 1 << 24])
def test_a_block_that_holds_more_or_less_is_refused(held: int, tmp_path: Path) -> None:
    """More than memory has, perhaps. Which block of a read it is and how far zstd came is not what
    is wrong with the file."""
    path = tmp_path / "train.zst"
    frame = compressor("<u2").compress(bytes(2 * held))
    with path.open("wb") as file:
        write_blocks(file, [Block(frame, 2 * BLOCK_IDS)] * 3)
    tokens = CompressedTokens(path, "<u2", 3 * BLOCK_IDS)
    with pytest.raises(UserError) as caught:
        tokens.windows(np.array([BLOCK_IDS]), 2)
    assert str(caught.value) == f"{path} cannot be decompressed; {way_out(path)}."


def test_blocks_beyond_4_gib_are_read(tmp_path: Path) -> None:
    """The block before them is a hole in the file."""
    path = tmp_path / "train.zst"
    ids = ids_of(2 * BLOCK_IDS + 5)
    hole = (1 << 32) - 1
    written(path, ids, "<u2")
    content = with_sizes(lambda sizes: sizes[:1, 0].fill(hole))(path.read_bytes())
    first = compressed_blocks(ids, "<u2")[0]
    with path.open("wb") as file:
        file.seek(hole)
        file.write(content[len(first.frame) :])
    assert np.array_equal(CompressedTokens(path, "<u2", len(ids))[BLOCK_IDS:], ids[BLOCK_IDS:])
