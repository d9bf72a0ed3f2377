"""A coverage-guided fuzzer on every reader: `python -m tests.faults.fuzz READER
-max_total_time=60`.

It needs atheris (`pip install atheris`). Whatever a file holds, a reader returns something or
raises UserError; another exception, a hang or more than 1 GiB ends the fuzzer, which then writes
the input that did it into a file.
"""

import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["tokenmill"]):  # type: ignore[attr-defined]
    from tokenmill.core.errors import UserError
    from tokenmill.core.params import parse_yaml
    from tokenmill.data.params import CleanParams
    from tokenmill.data.readers import FORMATS, texts
    from tokenmill.data.report import Tally
    from tokenmill.data.sources import find_sources
    from tokenmill.evaluation.results import Evaluation
    from tokenmill.formats.records import parse_record, parse_rows
    from tokenmill.formats.token_file import TokenMetadata
    from tokenmill.formats.tokenizer import parse_tokenizer
    from tokenmill.model.manifest import Manifest
    from tokenmill.training.history import EpochRow

PATH = Path("file")

Reader = Callable[[bytes], object]


def reader_of(ending: str) -> Reader:
    """The reader of text files with an ending, with what follows it in the stage `clean`."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm"))
    path = folder / f"file{ending}"
    params = CleanParams.model_construct(columns=None, text_file="file")

    def read(data: bytes) -> object:
        path.write_bytes(data)
        (source,) = find_sources(path, FORMATS).sources
        return list(texts(source, params, Tally()))

    return read


READERS: dict[str, Callable[[], Reader]] = {
    **{ending.removeprefix("."): lambda ending=ending: reader_of(ending) for ending in FORMATS},
    **{
        f"txt{archive}": lambda archive=archive: reader_of(f".txt{archive}")
        for archive in (".gz", ".zst", ".xz")
    },
    "params": lambda: lambda data: parse_yaml(data, PATH),
    "metadata": lambda: lambda data: parse_record(data, TokenMetadata, source=PATH, way_out=""),
    "manifest": lambda: lambda data: parse_record(data, Manifest, source=PATH, way_out=""),
    "evaluation": lambda: lambda data: parse_record(data, Evaluation, source=PATH, way_out=""),
    "history": lambda: lambda data: parse_rows(data, EpochRow, source=PATH, way_out=""),
    "tokenizer": lambda: lambda data: parse_tokenizer(data, PATH),
}


def main() -> None:
    """Fuzz the reader that the command line names."""
    if len(sys.argv) < 2 or sys.argv[1] not in READERS:
        sys.exit(
            "usage: python -m tests.faults.fuzz READER [options of libFuzzer]; READER is one of "
            f"{', '.join(READERS)}"
        )
    read = READERS[sys.argv.pop(1)]()

    def one(data: bytes) -> None:
        with contextlib.suppress(UserError):
            read(data)

    atheris.Setup([*sys.argv, "-timeout=10", "-rss_limit_mb=2048"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
