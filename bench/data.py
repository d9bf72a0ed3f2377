"""The data side against its peers, in one run on one corpus: `python -m bench.data --text PATH --megabytes 100`.

Each stage runs in a process of its own, so that its peak memory is its own. The corpus is made from the documents at
PATH (default: the built-in sample) by shuffling the words of every copy but the first, so that no duplicate empties it
and the vocabulary stays that of the text; a slower peer gets less of it, and its rate is compared, not its time. Prints
a table and, with --json FILE, writes the same figures.
"""

import argparse
import gzip
import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import zstandard

from tokenmill.documents import dataset
from tokenmill.documents.clean import clean
from tokenmill.documents.params import CleanParams
from tokenmill.sample.generator import write_sample
from tokenmill.sample.params import SampleParams
from tokenmill.tokenization.encoding import choose_encoder, reference_engine
from tokenmill.tokenization.learning import make_tokenizer
from tokenmill.tokenization.packing import pack
from tokenmill.tokenization.params import TokenizeParams, TokenizerParams
from tokenmill.tokenization.sampling import probe
from tokenmill.tokenization.tokenizer import read_tokenizer
from tokenmill.tokenization.unpacking import unpack

CLEAN: dict[str, Any] = {
    "columns": None,
    "text_file": "paragraph",
    "min_chars": 1,
    "max_chars": None,
    "deduplicate": True,
}
PEER_BYTES = 8_000_000
"""Text that the slow peers encode."""

Row = dict[str, Any]


def main() -> None:
    """Make the corpus, run the stages, run the peers, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a file or a folder; default: the built-in sample")
    parser.add_argument("--megabytes", type=int, default=100, help="size of the corpus")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        size = make_corpus(here, options.text, options.megabytes * 1_000_000)
        rows = stages(here, size, options.vocabulary) + peers(here)
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def make_corpus(here: Path, text: Path | None, size: int) -> int:
    """JSON lines of about `size` bytes in here/raw; give the exact size."""
    if text is None:
        text = here / "sample.jsonl"
        write_sample(text, SampleParams(seed=0, conversations=11_000))
    clean(raw=text, out=here / "seed", params=CleanParams(mode="none", **CLEAN))
    documents = [one for batch in dataset.batches(here / "seed") for one in batch["text"].to_list()]
    draws, path = random.Random(0), here / "raw" / "corpus.jsonl"
    path.parent.mkdir()
    with path.open("w", encoding="utf-8") as file:
        for number in range(sys.maxsize):
            words = documents[number % len(documents)].split(" ")
            if number >= len(documents):
                draws.shuffle(words)
            file.write(json.dumps({"text": " ".join(words)}, ensure_ascii=False) + "\n")
            if file.tell() >= size:
                break
    return path.stat().st_size


def stages(here: Path, size: int, vocabulary: int) -> list[Row]:
    """TokenMill, stage by stage, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    rows: list[Row] = []
    for name in ("clean", "tokenizer", "tokenize", "unpack"):
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=run_stage, args=(name, here, vocabulary, send))
        process.start()
        send.close()
        seconds, peak = receive.recv()
        process.join()
        rate = round(size / 1e6 / seconds, 1)
        rows.append({"stage": name, "seconds": round(seconds, 2), "MB/s": rate, "peak MiB": round(peak)})
    return rows


def run_stage(name: str, here: Path, vocabulary: int, send: Connection) -> None:
    """Run one stage; send its seconds and its peak memory in MiB."""
    began = time.perf_counter()
    if name == "clean":
        clean(raw=here / "raw", out=here / "clean", params=CleanParams(mode="balanced", **CLEAN))
    elif name == "tokenizer":
        params = TokenizerParams(type="bpe", vocab_size=vocabulary, sample_bytes=30_000_000)
        make_tokenizer(here / "clean", here / "tokenizer.json", params)
    elif name == "tokenize":
        split = TokenizeParams(split="hash", val_fraction=0.01)
        pack(here / "clean", here / "tokenizer.json", here / "packed", split)
    else:
        unpack(here / "packed", here / "tokens")
    send.send((time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def peers(here: Path) -> list[Row]:
    """Encoding and compressing, TokenMill's way and others', on the same text with the same vocabulary."""
    tokenizer = read_tokenizer(here / "tokenizer.json")
    texts = probe(here / "clean", PEER_BYTES)
    size = sum(len(text.encode()) for text in texts)
    ours = choose_encoder(tokenizer, texts[:200])
    together = "\n".join(texts)
    rates = {
        f"TokenMill ({ours.name})": rate(lambda: ours.encode(texts), size),
        "tokenizers encode_batch_fast": rate(lambda: reference_engine(tokenizer)(texts), size),
        "tokenizers encode_batch": rate(lambda: tokenizer.backend.encode_batch(texts), size),
        "tokenizers encode, one chunk": rate(lambda: tokenizer.backend.encode(together), size),
    }
    first = next(iter(rates.values()))
    rows: list[Row] = [
        {"encode": name, "MB/s": round(value / 1e6, 1), "TokenMill is faster by": round(first / value, 1)}
        for name, value in rates.items()
    ]
    raw = (here / "tokens" / "train.bin").read_bytes()[: 4 * PEER_BYTES]
    for name, compress in (("zstd -3", zstandard.compress), ("gzip -6", lambda data: gzip.compress(data, 6))):
        began = time.perf_counter()
        packed = len(compress(raw))
        seconds = time.perf_counter() - began
        rows.append(
            {"compress": name, "MB/s": round(len(raw) / 1e6 / seconds, 1), "share": round(packed / len(raw), 3)}
        )
    return rows


def rate(work: Callable[[], object], size: int) -> float:
    """Bytes a second of one run: a second one on the same text would profit from caches of words."""
    began = time.perf_counter()
    work()
    return size / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
