"""A batch from each place of the training tokens: `python -m bench.training.placement PROJECT`.

PROJECT is a folder in which `dvc repro tokenize` has run. Each place gives the same batches, drawn
anywhere in the text; beside them stands what most scripts do, a loop over a memory map of 16-bit
ids. The files are in the system's page cache.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench.program import RowFile, command_line
from tokenmill.core import paths
from tokenmill.formats.token_file import DTYPE, NARROW_DTYPE, compressed_file, token_file
from tokenmill.formats.token_row import open_tokens
from tokenmill.model.sequences import place_tokens, sequences_anywhere
from tokenmill.stage import report_errors
from tokenmill.tokens.unpack import unpack

BATCHES = 40

Gather = Callable[[np.ndarray], tuple[Tensor, ...]]


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("project", type=Path)
    parser.add_argument("--batch", type=int, default=64, help="sequences of a batch")
    parser.add_argument("--context", type=int, default=512, help="tokens of a sequence")
    options = parser.parse_args()
    report_errors(
        lambda: run(options.project, options.batch, options.context, RowFile(options.json))
    )


def run(project: Path, batch: int, context: int, file: RowFile) -> None:
    """A row for each place."""
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as folder:
        plain, packed = Path(folder) / "plain", Path(folder) / "packed"
        for out in (plain, packed):
            unpack(project / paths.PACKED, out, compressed=out == packed)
        narrow = Path(folder) / "train.u16"
        np.fromfile(token_file(plain, "train"), DTYPE).astype(NARROW_DTYPE).tofile(narrow)
        ids = np.memmap(narrow, NARROW_DTYPE, mode="r")
        begins = np.random.default_rng(0).integers(len(ids) - context, size=(BATCHES, batch))
        places = {
            "a loop over 16 bits": (narrow, looped(ids, context)),
            "memory": (None, placed(plain, "memory", context)),
            "mmap": (token_file(plain, "train"), placed(plain, "mmap", context)),
            "compressed": (compressed_file(packed), placed(packed, "compressed", context)),
        }
        expected = [tensor.sum() for tensor in places["memory"][1](begins[0])]
        for name, (path, gather) in places.items():
            assert [tensor.sum() for tensor in gather(begins[0])] == expected
            row = {"place": name, "MB on disk": path and round(path.stat().st_size / 1e6, 1)}
            row["ms a batch"] = milliseconds(gather, begins)
            file.show(row)


def placed(folder: Path, placement: str, context: int) -> Gather:
    """TokenMill's batches."""
    cpu = torch.device("cpu")
    tokens, _ = place_tokens(open_tokens(folder, "train"), placement, cpu)
    return sequences_anywhere(tokens, context_length=context, device=cpu).gather


def looped(ids: np.ndarray, context: int) -> Gather:
    """Batches cut out one sequence after the other."""

    def gather(begins: np.ndarray) -> tuple[Tensor, ...]:
        rows = [torch.from_numpy(ids[b : b + context + 1].astype(np.int64)) for b in begins]
        return torch.stack([row[:-1] for row in rows]), torch.stack([row[1:] for row in rows])

    return gather


def milliseconds(gather: Gather, begins: np.ndarray) -> float:
    """The median of a batch."""
    took = []
    for some in begins:
        start = time.perf_counter()
        gather(some)
        took.append(time.perf_counter() - start)
    return round(1000 * statistics.median(took), 2)


if __name__ == "__main__":
    main()
