"""Token ids in compressed blocks, any of which can be read without the others.

The file has zstd's seekable format (its specification 0.1.0): a frame for each block, then a table
of their sizes in a frame that every decompressor skips. So `zstd -d` gives all the ids, in the type
in which they are packed.
"""

import mmap
import struct
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from tokenmill.core import files
from tokenmill.core.paths import damaged
from tokenmill.formats.token_file import DTYPE, NARROW_DTYPE

if TYPE_CHECKING:
    import zstandard

BLOCK_IDS = 1 << 13
"""The most ids of a block. Smaller ones compress less, larger ones take longer to read: a sequence
needs one block, or two."""

READ_IDS = 1 << 20
"""Of a long slice, so many ids are decompressed at a time."""

ZSTD_LEVEL = 3
"""The compression level of zstd. English text becomes 30 % of its .bin, at 300 MB/s of the .bin."""

ZSTD_MIN_MATCH = {NARROW_DTYPE: 4, DTYPE: 7}
"""The shortest repetition, in bytes, that zstd refers to. Below two tokens, a reference takes more
room than writing them again."""

TABLE_HEADER = struct.Struct("<II")
"""The magic number of a skipped frame, and its bytes that follow."""

TABLE_FOOTER = struct.Struct("<IBI")
"""The number of frames, flags, and the magic number of the format."""

SKIPPED, SEEKABLE = 0x184D2A5E, 0x8F92EAB1
"""The two magic numbers."""

SIZES = np.dtype([("compressed", "<u4"), ("content", "<u4")])
"""A row of the table: the bytes of a frame, and of what it holds."""


class Block(NamedTuple):
    """A compressed block."""

    frame: bytes
    size: int
    """Bytes that the frame holds."""


def compressor(dtype: str) -> "zstandard.ZstdCompressor":
    """The compressor of ids of this type: zstd with a checksum."""
    import zstandard  # noqa: PLC0415 (a machine that measures a GPU may lack it)

    parameters = zstandard.ZstdCompressionParameters.from_level(
        ZSTD_LEVEL,
        min_match=ZSTD_MIN_MATCH[dtype],
        write_checksum=True,
        write_content_size=False,
    )
    return zstandard.ZstdCompressor(compression_params=parameters)


def compressed_blocks(ids: np.ndarray, dtype: str) -> list[Block]:
    """The ids, (tokens,) integers, in blocks of which the last one may be short."""
    narrow = ids.astype(dtype, copy=False)
    compress = compressor(dtype).compress
    found = []
    for start in range(0, len(narrow), BLOCK_IDS):
        content = narrow[start : start + BLOCK_IDS].data
        found.append(Block(compress(content), content.nbytes))
    return found


def write_blocks(file: IO[bytes], blocks: Iterable[Block]) -> None:
    """Write the blocks, and the table behind them."""
    sizes = array("I")
    for block in blocks:
        file.write(block.frame)
        sizes.extend((len(block.frame), block.size))
    table = np.array(sizes, dtype="<u4").tobytes()
    file.write(TABLE_HEADER.pack(SKIPPED, len(table) + TABLE_FOOTER.size))
    file.write(table)
    file.write(TABLE_FOOTER.pack(len(sizes) // 2, 0, SEEKABLE))


class CompressedTokens:
    """One row of ids in a file of compressed blocks. It is read like an array: `tokens[5:9]` are
    four ids, int32."""

    def __init__(self, path: Path, dtype: str, length: int):
        """Map the file at `path` of so many ids that are packed as `dtype`.

        Raises:
            UserError: it is no such file.
        """
        self._path = path
        self._dtype = np.dtype(dtype)
        self._length = length
        with files.open_regular(path) as file:
            if not path.stat().st_size:  # it cannot be mapped
                raise damaged(path, "is empty")
            self._content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        sizes = self._sizes()
        ids, rest = np.divmod(sizes["content"].astype(np.int64), self._dtype.itemsize)
        if rest.any() or not ((ids > 0) & (ids <= BLOCK_IDS)).all() or ids.sum() != length:
            raise damaged(path, f"is not in blocks of {length:,} ids")
        self._ids = ids
        self._starts = np.append(0, ids.cumsum())
        self._frames = np.append(0, sizes["compressed"].cumsum(dtype=np.int64))

    def _sizes(self) -> np.ndarray:
        """The table of the file, whose sizes add up to that of the file."""
        end = len(self._content) - TABLE_FOOTER.size
        if end >= 0:
            count, flags, magic = TABLE_FOOTER.unpack(self._content[end:])
            begin = end - count * SIZES.itemsize
            frames = begin - TABLE_HEADER.size
            if (flags, magic) == (0, SEEKABLE) and frames >= 0:
                sizes = np.frombuffer(self._content[begin:end], SIZES)
                header = TABLE_HEADER.pack(SKIPPED, len(self._content) - begin)
                is_whole = sizes["compressed"].sum(dtype=np.int64) == frames
                if is_whole and self._content[frames:begin] == header:
                    return sizes
        raise damaged(self._path, "does not end with a table of its blocks")

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, some: slice) -> np.ndarray:
        """The ids of a slice without a step; (tokens,) int32."""
        start, stop, _ = some.indices(self._length)
        ids = np.empty(max(0, stop - start), DTYPE)
        for begin in range(start, stop, READ_IDS):
            end = min(begin + READ_IDS, stop)
            first = int(self._starts.searchsorted(begin, "right")) - 1
            behind = int(self._starts.searchsorted(end, "left"))
            read = self._read(np.arange(first, behind))
            offset = int(self._starts[first])
            ids[begin - start : end - start] = read[begin - offset : end - offset]
        return ids

    def windows(self, begins: np.ndarray, width: int) -> np.ndarray:
        """The `width` ids from each of the places `begins`, (B,) int64, on; (B, width) int32.

        Each block that is needed is decompressed once. What lies in neighbouring blocks is then one
        row again, so that one index takes all windows.
        """
        if not len(begins):
            return np.empty((0, width), DTYPE)
        first = self._starts.searchsorted(begins, "right") - 1
        behind = self._starts.searchsorted(begins + width, "left")
        steps = np.arange((behind - first).max())
        needed = np.unique(np.minimum(first[:, np.newaxis] + steps, behind[:, np.newaxis] - 1))
        read_before = np.append(0, self._ids[needed].cumsum())
        places = read_before[needed.searchsorted(first)] + begins - self._starts[first]
        rows = np.lib.stride_tricks.sliding_window_view(self._read(needed), width)
        return rows[places].astype(DTYPE)

    def _read(self, numbers: np.ndarray) -> np.ndarray:
        """The ids in the blocks of these numbers, one after the other. Of hundreds of blocks each
        core decompresses some."""
        import zstandard  # noqa: PLC0415 (a machine that measures a GPU may lack it)

        begins = self._frames[numbers]
        places = np.stack([begins, self._frames[numbers + 1] - begins], axis=1).astype("<u8")
        sizes = (self._ids[numbers] * self._dtype.itemsize).astype("<u8")
        frames = zstandard.BufferWithSegments(self._content, places.tobytes())
        try:
            found = zstandard.ZstdDecompressor().multi_decompress_to_buffer(
                frames, decompressed_sizes=sizes.tobytes(), threads=-1
            )
        except zstandard.ZstdError:  # its words have numbers that the file does not have
            raise damaged(self._path, "cannot be decompressed") from None
        return np.frombuffer(b"".join(one.tobytes() for one in found), self._dtype)
