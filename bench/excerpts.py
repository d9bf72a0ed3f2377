"""The beginning of the corpus as JSON lines, so that slow peers get less of the same text.

An excerpt has two files, for a peer whose unit of parallel work is the file.
"""

import json
from itertools import islice
from pathlib import Path

import orjson

from bench.corpus import Source, documents

FOLDER = Path("excerpts")
SIZES = FOLDER / "sizes.json"
ENCODE, CLEAN, FILTER = "encode", "clean", "filter"
BYTES = {ENCODE: 20_000_000, CLEAN: 20_000_000, FILTER: 2_000_000}
"""UTF-8 bytes of text of each excerpt."""


def write_excerpts(source: Source, project: Path, limit: int) -> None:
    """Write all excerpts, of at most `limit` bytes of text each."""
    sizes = {name: _write(source, project / FOLDER / name, min(size, limit)) for name, size in BYTES.items()}
    (project / SIZES).write_text(json.dumps(sizes))


def _write(source: Source, folder: Path, size: int) -> int:
    folder.mkdir(parents=True)
    chosen: list[bytes] = []
    total, stream = 0, documents(source)
    while total < size:
        chosen.append(next(stream))
        total += len(chosen[-1])
    for number in (0, 1):
        with (folder / f"{number}.jsonl").open("wb") as file:
            file.writelines(b'{"text": "%b"}\n' % one for one in islice(chosen, number, None, 2))
    return total


def read_texts(name: str) -> list[str]:
    """The documents of an excerpt."""
    return [orjson.loads(line)["text"] for path in sorted((FOLDER / name).iterdir()) for line in path.open("rb")]


def size_of(name: str) -> int:
    """UTF-8 bytes of an excerpt's documents."""
    return json.loads(SIZES.read_text())[name]
