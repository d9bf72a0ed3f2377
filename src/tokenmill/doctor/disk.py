"""How many bytes the stages that are to run would write, from the parameters and what is known of the text.

Text that is not cleaned yet is estimated from the size of its files, by what was measured (docs/scale.md).

Room: the disk against what the parameters will write, memory against what training holds.
"""

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from tokenmill.core.token_file import TokenMetadata
from tokenmill.core.units import size
from tokenmill.data.sources import Source
from tokenmill.doctor.finding import Finding, ok, problem, warning
from tokenmill.model.build import parameter_count
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import Compute
from tokenmill.model.size import memory
from tokenmill.schema import AllParams
from tokenmill.training.memory import sequences_that_fit

UNPACKED = {".gz": 3.5, ".zst": 3.5, ".bz2": 4.5, ".xz": 4.5, None: 1.0}
"""Bytes of text for one in such a file, about."""


PARQUET = 0.46
"""Bytes of clean text on the disk for one of text."""


PACKED = 0.35
"""Bytes of packed tokens for one of plain ones."""


BYTES_PER_TOKEN = {"bpe": 3.0, "char": 1.0}
"""Before the tokenizer is known: few, so that the estimate is rather too large."""


CHARACTERS = 256
"""Entries of a character tokenizer that is not there yet."""


@dataclass(frozen=True)
class Needs:
    """Bytes by what is written."""

    parts: dict[str, int]
    cached: int
    """Of them, what lies in DVC's cache as well where it cannot link."""
    estimated: bool
    """From the size of raw files."""

    @property
    def total(self) -> int:
        """Of all parts."""
        return sum(self.parts.values())


def text_bytes(sources: Sequence[Source]) -> int:
    """Of the text in these files, about."""
    return int(sum(source.size * UNPACKED[source.compression] for source in sources))


def vocabulary(params: AllParams, tokens: TokenMetadata | None) -> int:
    """Of the tokenizer that there is, or will be."""
    if tokens is not None:
        return tokens.vocab_size
    return params.tokenizer.vocab_size if params.tokenizer.type == "bpe" else CHARACTERS


def needs(params: AllParams, *, text: int, tokens: TokenMetadata | None, to_run: Collection[str]) -> Needs:
    """What the stages `to_run` write: by the `tokens` where training will see those, else by the bytes of `text`."""
    if tokens is not None:
        plain = 4 * (tokens.train.tokens + tokens.val.tokens)
        text = tokens.train.bytes + tokens.val.bytes
    else:
        plain = int(4 * text / BYTES_PER_TOKEN[params.tokenizer.type])
    weights, checkpoint = model_bytes(params, vocabulary(params, tokens))
    epochs, keep = params.train.epochs * weights, params.runtime.checkpoint.keep
    all_parts = {
        "clean text": ("clean", int(PARQUET * text)),
        "packed tokens": ("tokenize", int(PACKED * plain)),
        "tokens": ("unpack", plain),
        "weights of the epochs": ("train", epochs),
        # Beside those that are kept: the one where the decay began, and the one that is being written.
        "checkpoints": ("train", (keep + 2) * checkpoint),
    }
    parts = {name: count for name, (stage, count) in all_parts.items() if stage in to_run}
    cached = sum(parts.get(name, 0) for name in ("clean text", "packed tokens", "weights of the epochs"))
    cached += 2 * checkpoint if "train" in to_run else 0
    return Needs(parts, cached, estimated=tokens is None)


def model_bytes(params: AllParams, vocab_size: int) -> tuple[int, int]:
    """Bytes of the weights, and of a checkpoint: weights and the optimizer's state, in float32."""
    config = ModelConfig.of(params.model, vocab_size)
    state = memory(config, sequences=1, precision="float32", optimizer=params.train.optimizer).optimizer
    weights = 4 * parameter_count(config)
    return weights, weights + state


TIGHT = 0.9
"""Share of the free disk beyond which it is said."""


def check_disk(needed: Needs, *, workspace: Path, cache: Path, linked: bool) -> list[Finding]:
    """Whether what is to be written fits where it is written: one finding for each disk."""
    if not needed.total:
        return [ok("disk", f"nothing to write; {size(shutil.disk_usage(workspace).free)} free")]
    wanted = {workspace: needed.total}
    if not linked:
        place = workspace if _device(cache) == _device(workspace) else cache
        wanted[place] = wanted.get(place, 0) + needed.cached
    return [_disk(folder, count, needed) for folder, count in wanted.items()]


def _disk(folder: Path, count: int, needed: Needs) -> Finding:
    free = shutil.disk_usage(_existing(folder)).free
    largest = sorted(needed.parts.items(), key=lambda part: -part[1])
    parts = ", ".join(f"{name} {size(bytes_)}" for name, bytes_ in largest[:2])
    guess = ", estimated" if needed.estimated else ""
    text = f"{size(count)} to write in {folder.resolve()} ({parts}{guess}), {size(free)} free"
    mend = "make room, or move the project and its cache to a larger disk (dvc cache dir FOLDER)"
    if largest and largest[0][0] in ("checkpoints", "weights of the epochs"):
        mend = "make room, or train a smaller model or fewer epochs, or keep less (runtime.checkpoint.keep)"
    if count > free:
        return problem("disk", text, mend)
    return warning("disk", text, mend) if count > TIGHT * free else ok("disk", text)


def check_memory(params: AllParams, compute: Compute, vocab_size: int) -> Finding:
    """Whether the device holds the model, and how many sequences at a time beside it."""
    config = ModelConfig.of(params.model, vocab_size)
    wish = params.runtime.micro_batch_size
    sequences = sequences_that_fit(config, params.train.batch_size, compute.device) if wish == "auto" else wish
    shards = torch.cuda.device_count() if compute.device.type == "cuda" and params.runtime.parallel == "fsdp" else 1
    need = memory(
        config,
        sequences=sequences,
        precision="float32" if compute.precision == torch.float32 else "half",
        optimizer=params.train.optimizer,
        shards=shards,
    )
    free, total = _memory(compute)
    text = (
        f"training takes about {size(need.total)} with {sequences} sequences at a time, "
        f"{size(free)} of {size(total)} free"
    )
    mend = "a smaller model, or another machine: `tokenmill plan` says which"
    if need.total - need.activations - need.logits > free:
        return problem("memory", text, mend)
    if need.total > free:
        return warning(
            "memory", f"{text}; training takes fewer at a time", "runtime.micro_batch_size: auto finds how many"
        )
    return ok("memory", text)


def _memory(compute: Compute) -> tuple[int, int]:
    if compute.device.type == "cuda":
        return torch.cuda.mem_get_info(compute.device)
    memory_ = psutil.virtual_memory()
    return memory_.available, memory_.total


def _device(folder: Path) -> int:
    return _existing(folder).stat().st_dev


def _existing(folder: Path) -> Path:
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
