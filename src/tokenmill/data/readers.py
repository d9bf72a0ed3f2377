"""The file formats that `clean` reads.

To add a format, write a function from a source to its texts (`Reader`), and register it in FORMATS under its ending.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tokenmill.data.encoding import replace_damage
from tokenmill.data.json_lines import read_json_lines
from tokenmill.data.params import CleanParams
from tokenmill.data.plain_text import read_plain_text
from tokenmill.data.report import Tally
from tokenmill.data.sources import Advance, Source
from tokenmill.data.tables import read_csv, read_json, read_parquet

Reader: TypeAlias = Callable[[Source, CleanParams, Tally, Advance], Iterator[str]]
"""Yields the texts of a file in bounded memory, in order, with DAMAGE where bytes are invalid. It counts in the tally
what is not a document, tells `Advance` the bytes read from disk, and raises UserError for a file it cannot read."""


@dataclass(frozen=True)
class Format:
    """How files with one ending are read."""

    read: Reader
    compressed: bool = False
    """Whether the format compresses its content, so that the size on disk does not bound the memory it takes."""


FORMATS: dict[str, Format] = {
    ".txt": Format(read_plain_text),
    ".md": Format(read_plain_text),
    ".jsonl": Format(read_json_lines),
    ".json": Format(read_json),
    ".csv": Format(read_csv),
    ".parquet": Format(read_parquet, compressed=True),
}


def texts(source: Source, params: CleanParams, tally: Tally, advance: Advance = lambda _: None) -> Iterator[str]:
    """The documents of one file as valid Unicode, in order; what is not one is counted in `tally`.

    Raises:
        UserError: the file cannot be read or holds no text in a known shape.
    """
    return without_damage(FORMATS[source.format].read(source, params, tally, advance), tally)


def without_damage(texts: Iterable[str], tally: Tally) -> Iterator[str]:
    """The texts with U+FFFD for invalid bytes, counted in `tally`."""
    for text in texts:
        whole, damaged = replace_damage(text)
        tally.invalid_utf8 += damaged
        yield whole
