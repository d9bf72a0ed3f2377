"""What `tokenmill fit` promises, against trained models: `python -m bench.fit TEXT [TEXT ...]
--minutes 1 4`.

For each text and each number of minutes, the proposal is trained, and then its neighbours for as
long: a smaller and a larger model, half and twice the batch, half and twice the vocabulary. A good
proposal takes the time that it promises, and none of its neighbours learns much more. Losses are
bits per byte, which vocabularies cannot change. Behind the seconds stand those of the processor: if
they are fewer, the machine did something else, too. A machine that is faster at one time than at
another promises something else after the training than before.
"""

import argparse
import contextlib
import dataclasses
import io
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from bench.harness import ROOT, RowFile
from tokenmill.core.files import sha256_of
from tokenmill.formats.token_file import (
    SPLITS,
    PackedShard,
    Part,
    TokenMetadata,
    read_metadata,
    token_file,
    write_metadata,
)
from tokenmill.planning.benchmark import step_timer
from tokenmill.planning.fit import (
    LADDER,
    Corpus,
    Fit,
    StepSeconds,
    TokenizedText,
    epoch_seconds,
    fit,
    workload,
)
from tokenmill.process import set_wait_policy
from tokenmill.schema import AllParams
from tokenmill.stage import report_errors
from tokenmill.training.schedule import Workload


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A model and its training, for a vocabulary."""

    name: str
    work: Workload
    vocabulary: int
    epochs: float
    """As many as the time allows; only the proposal's are whole."""


def main() -> None:
    """Train every proposal and its neighbours, and print a table for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "texts", type=Path, nargs="+", metavar="TEXT", help="a file or a folder, as data.raw"
    )
    parser.add_argument("--minutes", type=float, nargs="+", default=[1.0])
    parser.add_argument("--alone", action="store_true", help="without the neighbours")
    parser.add_argument("--json", type=Path, help="write all figures to this file, row by row")
    options = parser.parse_args()
    set_wait_policy()  # as the command does, before PyTorch is loaded
    rows = RowFile(options.json)
    report_errors(lambda: run(options.texts, options.minutes, rows, alone=options.alone))


def run(texts: list[Path], minutes: list[float], rows: RowFile, *, alone: bool) -> None:
    """All texts for the first number of minutes, then for the next."""
    for each in minutes:
        for text in texts:
            with tempfile.TemporaryDirectory() as folder:
                compare(text.resolve(), each, Path(folder), rows, alone=alone)


def compare(text: Path, minutes: float, folder: Path, rows: RowFile, *, alone: bool) -> None:
    """The proposal for a text, and its neighbours unless it is `alone`, trained one after the
    other."""
    params = AllParams.model_validate(YAML(typ="safe").load(ROOT / "params.yaml"))
    params = params.model_copy(update={"data": params.data.model_copy(update={"raw": str(text)})})
    step_seconds = step_timer(params.runtime)
    corpus = Corpus.read(Path(), params)
    proposal = fit(corpus, params, seconds=60 * minutes, step_seconds=step_seconds)
    print(f"\n{text.name}, {minutes:g} minutes: {proposal.seconds:.0f} s promised", flush=True)
    best = None
    work, vocabulary = proposal.work, proposal.text.vocabulary
    proposed = Candidate("proposed", work, vocabulary, work.train.epochs)
    others = [] if alone else neighbours(proposal, params, step_seconds)
    for candidate in [proposed, *others]:
        tokens = tokenized(text, params, candidate.vocabulary, folder)
        row = train(candidate, params, tokens, folder / "run")
        if best is None:
            again = epoch_seconds(
                proposal.work, proposal.text, step_timer(params.runtime)(proposal.work)
            )
            print(f"{again * candidate.epochs:.0f} s promised after it", flush=True)
        best = best or row["bits_per_byte"]
        print(
            f"{candidate.name:18} {row['model']:>9} {candidate.vocabulary:>6,} x {row['batch']:<3} "
            f"{candidate.epochs:5.2f} epochs {row['seconds']:6.0f} s ({row['cpu_seconds']:.0f})  "
            f"{row['bits_per_byte']:.4f} {100 * (row['bits_per_byte'] / best - 1):+.1f}%",
            flush=True,
        )
        rows.add({"text": text.name, "minutes": minutes, "promised": proposal.seconds} | row)


def neighbours(proposal: Fit, params: AllParams, step_seconds: StepSeconds) -> list[Candidate]:
    """What lies around the proposal, with as many epochs as take the same time."""
    work = proposal.work
    corpus = proposal.text.corpus
    vocabulary = proposal.text.vocabulary
    batch = work.train.batch_size
    rung = LADDER.index((work.config.n_layer, work.config.n_embd))

    def neighbour(
        name: str, *, rung: int = rung, batch: int = batch, vocabulary: int = vocabulary
    ) -> Candidate:
        text = TokenizedText.of(corpus, vocabulary, val_fraction=params.tokenize.val_fraction)
        chosen = workload(params, text, *LADDER[rung])
        changes = {"batch_size": batch, "schedule": work.train.schedule}
        chosen = Workload(chosen.config, chosen.train.model_copy(update=changes), chosen.tokens)
        epochs = proposal.seconds / epoch_seconds(chosen, text, step_seconds(chosen))
        return Candidate(name, chosen, vocabulary, epochs)

    return [
        *([neighbour("smaller model", rung=rung - 1)] if rung else []),
        neighbour("larger model", rung=rung + 1),
        neighbour("half the batch", batch=max(1, batch // 2)),
        neighbour("twice the batch", batch=2 * batch),
        neighbour("half the vocabulary", vocabulary=vocabulary // 2),
        neighbour("twice the vocabulary", vocabulary=2 * vocabulary),
    ]


def tokenized(text: Path, params: AllParams, vocabulary: int, folder: Path) -> Path:
    """The folder of tokens of a text, as the stages make it; made once for each vocabulary."""
    from tokenmill.data.clean import clean  # noqa: PLC0415
    from tokenmill.executor import ThreadExecutor  # noqa: PLC0415 (after the arguments are read)
    from tokenmill.tokens.pack import pack  # noqa: PLC0415
    from tokenmill.tokens.train_tokenizer import train_tokenizer  # noqa: PLC0415
    from tokenmill.tokens.unpack import unpack  # noqa: PLC0415

    cleaned = folder / "clean"
    out = folder / f"tokens-{vocabulary}"
    with contextlib.redirect_stderr(io.StringIO()):
        if not cleaned.exists():
            clean(raw=text, out=cleaned, params=params.clean, executor=ThreadExecutor(threads=1))
        if not out.exists():
            tokenizer = tokenizer_file(folder, vocabulary)
            packed = folder / "packed"
            wanted = params.tokenizer.model_copy(update={"type": "bpe", "vocab_size": vocabulary})
            train_tokenizer(cleaned, tokenizer, wanted)
            with ThreadExecutor(threads=1) as executor:
                pack(
                    cleaned,
                    tokenizer,
                    packed,
                    params.tokenize,
                    executor=executor,
                    results=folder / "results",
                )
            unpack(packed, out)
    return out


def tokenizer_file(folder: Path, vocabulary: int) -> Path:
    """The tokenizer of the tokens of this vocabulary, in the folder where `tokenized` works."""
    return folder / f"tokenizer-{vocabulary}.json"


def train(candidate: Candidate, params: AllParams, tokens: Path, folder: Path) -> dict[str, Any]:
    """Train in a process of its own, as the stage does; what came out."""
    whole = round(candidate.epochs)
    if abs(candidate.epochs - whole) > 0.01:
        tokens = repeated(tokens, candidate.epochs, folder.with_name("repeated"))
        whole = 1
    values = candidate.work.train.model_dump() | {
        "epochs": max(1, whole),
        "learning_rate": candidate.work.train.peak,
    }
    context = multiprocessing.get_context("spawn")
    link, far = context.Pipe()
    work = {
        "model": candidate.work.config.model_dump(),
        "train": values,
        "runtime": params.runtime.model_dump(),
    }
    tokenizer = tokenizer_file(folder.parent, candidate.vocabulary)
    process = context.Process(target=_train, args=(far, work, tokens, tokenizer, folder))
    process.start()
    far.close()
    bits, seconds, cpu_seconds, steps = link.recv()
    process.join()
    config = candidate.work.config
    return {
        "candidate": candidate.name,
        "model": f"{config.n_layer} x {config.n_embd}",
        "vocabulary": candidate.vocabulary,
        "batch": candidate.work.train.batch_size,
        "context": config.context_length,
        "epochs": candidate.epochs,
        "steps": steps,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "bits_per_byte": bits,
    }


def repeated(tokens: Path, epochs: float, out: Path) -> Path:
    """Tokens whose one epoch is so many of `tokens`: the text behind itself, and the beginning of
    it once more."""
    out.mkdir(exist_ok=True)
    ids = np.fromfile(token_file(tokens, "train"), dtype=read_metadata(tokens).dtype)
    np.resize(ids, round(len(ids) * epochs)).tofile(token_file(out, "train"))
    token_file(out, "val").write_bytes(token_file(tokens, "val").read_bytes())
    metadata = read_metadata(tokens)
    parts = {}
    for split in SPLITS:
        found = metadata.split(split).model_dump()
        found["sha256"] = sha256_of(token_file(out, split))
        if split == "train":
            found["tokens"] = round(len(ids) * epochs)
        source = {"source": None, **{key: found[key] for key in ("documents", "tokens", "bytes")}}
        parts[split] = Part.model_validate(found | {"sources": [source]})
    shard = PackedShard(name="part-00000.zst", size=1, sha256="0" * 64, **parts)
    facts = {"vocab_size", "eot_id", "tokenizer_type", "tokenizer_sha256"}
    write_metadata(out, TokenMetadata.of([shard], **metadata.model_dump(include=facts)))
    return out


def _train(
    link: Connection,
    sections: dict[str, dict[str, Any]],
    tokens: Path,
    tokenizer: Path,
    out: Path,
) -> None:
    """In the new process: the whole training; send bits per byte, seconds, seconds of the
    processor, and steps."""
    from tokenmill.model.config import ModelParams  # noqa: PLC0415 (in this process only)
    from tokenmill.training.job import training_job  # noqa: PLC0415
    from tokenmill.training.params import RuntimeParams, TrainParams  # noqa: PLC0415
    from tokenmill.training.run import run_job  # noqa: PLC0415

    sections["model"].pop("vocab_size")
    tokens = tokens.resolve()
    tokenizer = tokenizer.resolve()
    out = out.resolve()
    with tempfile.TemporaryDirectory() as root, contextlib.chdir(root):
        began = time.perf_counter()
        cpu_began = time.process_time()
        with contextlib.redirect_stderr(io.StringIO()):
            model = ModelParams.model_validate(sections["model"])
            train = TrainParams.model_validate(sections["train"])
            job = training_job(model, train, tokens, tokenizer)
            runtime = RuntimeParams.model_validate(sections["runtime"])
            outcome = run_job(job, runtime=runtime, output=out, times=Path(root))
        assert outcome
        last = outcome.state.epochs[-1]
        seconds = time.perf_counter() - began
        cpu_seconds = time.process_time() - cpu_began
        link.send((last.val_bits_per_byte, seconds, cpu_seconds, last.step))


if __name__ == "__main__":
    main()
