"""Checks of room: memory for what training holds, disk for what the outdated stages will write.

The size of text that is not cleaned yet is estimated from its files, with ratios measured in docs/scale.md.
"""

import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.token_file import TokenMetadata, read_metadata
from tokenmill.core.units import size
from tokenmill.doctor.dvc import existing, links
from tokenmill.doctor.finding import BUILT_IN, TOKEN_STAGES, Finding, Project, ok, problem, warning
from tokenmill.model.config import ModelConfig
from tokenmill.model.gpt import parameter_count
from tokenmill.model.size import memory
from tokenmill.schema import AllParams
from tokenmill.training.memory import device_memory, sequences_that_fit

UNPACKED = {".gz": 3.5, ".zst": 3.5, ".bz2": 4.5, ".xz": 4.5, None: 1.0}
"""Bytes of text per byte of such a file."""

PARQUET = 0.46
"""Bytes of data/clean per byte of text."""

PACKED = 0.35
"""Bytes of data/packed per byte of data/tokens."""

BYTES_PER_TOKEN = {"bpe": 3.0, "char": 1.0}
"""Before the tokenizer is known: low, so that the estimate is rather too large."""

CHARACTERS = 256
"""Vocabulary of a character tokenizer that is not trained yet."""

CONVERSATION_BYTES = 133
"""Mean size of a built-in conversation, with its share of those to validate with."""

FULL = 0.9
"""A warning from this fraction of the free disk on."""


@dataclass(frozen=True)
class DiskEstimate:
    """Bytes that the outdated stages write."""

    parts: dict[str, int]
    cached: int
    """Those of them that DVC's cache holds once more if it cannot link."""
    from_raw: bool
    """Whether they are estimated from the size of raw files."""

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return sum(self.parts.values())


def vocabulary(params: AllParams, tokens: TokenMetadata | None) -> int:
    """The size of the tokenizer's vocabulary, known or expected."""
    if tokens is not None:
        return tokens.vocab_size
    return params.tokenizer.vocab_size if params.tokenizer.type == "bpe" else CHARACTERS


def estimate(params: AllParams, *, text: int, tokens: TokenMetadata | None, outdated: Collection[str]) -> DiskEstimate:
    """What the `outdated` stages write.

    Args:
        params: all parameters.
        text: bytes of the raw text; only used without `tokens`.
        tokens: the tokens that training will see, if they are there already.
        outdated: names of stages.
    """
    if tokens is not None:
        plain = 4 * (tokens.train.tokens + tokens.val.tokens)
        text = tokens.train.bytes + tokens.val.bytes
    else:
        plain = int(4 * text / BYTES_PER_TOKEN[params.tokenizer.type])
    weights, checkpoint = _model_bytes(params, vocabulary(params, tokens))
    all_parts = {
        "clean text": ("clean", int(PARQUET * text)),
        "packed tokens": ("tokenize", int(PACKED * plain)),
        "tokens": ("unpack", plain),
        "weights of the epochs": ("train", params.train.epochs * weights),
        # Beside those that are kept: the one before the decay, and the one that is being written.
        "checkpoints": ("train", (params.runtime.checkpoint.keep + 2) * checkpoint),
    }
    parts = {name: count for name, (stage, count) in all_parts.items() if stage in outdated}
    cached = sum(parts.get(name, 0) for name in ("clean text", "packed tokens", "weights of the epochs"))
    return DiskEstimate(parts, cached, from_raw=tokens is None)


def _model_bytes(params: AllParams, vocab_size: int) -> tuple[int, int]:
    """Bytes of the weights, and of a checkpoint: weights and the optimizer's state, in float32."""
    config = ModelConfig.of(params.model, vocab_size)
    state = memory(config, sequences=1, precision="float32", optimizer=params.train.optimizer).optimizer
    weights = 4 * parameter_count(config)
    return weights, weights + state


def check_disk(project: Project) -> Iterator[Finding]:
    """What is to be written fits on its disk; one finding per disk."""
    params, workspace, repo = project.params, project.root, project.repo
    if params is None:
        return
    tokens = _tokens(project)
    if tokens is None and project.raw is None and params.data.raw != BUILT_IN:
        return  # check_text has said that there is no text
    text = CONVERSATION_BYTES * params.sample.conversations
    if project.raw:
        text = int(sum(source.size * UNPACKED[source.compression] for source in project.raw.sources))
    needed = estimate(params, text=text, tokens=tokens, outdated=project.outdated)
    if not needed.total:
        yield ok("disk", f"nothing to write; {size(shutil.disk_usage(workspace).free)} free")
        return
    by_folder = {workspace: needed.total}
    if repo and not links(repo):
        cache = Path(repo.cache.local.path)
        same_disk = existing(cache).stat().st_dev == existing(workspace).stat().st_dev
        folder = workspace if same_disk else cache
        by_folder[folder] = by_folder.get(folder, 0) + needed.cached
    for folder, count in by_folder.items():
        yield _fits(folder, count, needed)


def _tokens(project: Project) -> TokenMetadata | None:
    """The tokens that training will see; None if they are still to be made."""
    if set(TOKEN_STAGES) & set(project.outdated):
        return None
    try:
        return read_metadata(project.root / paths.TOKENS)
    except UserError:
        return None


def _fits(folder: Path, count: int, needed: DiskEstimate) -> Finding:
    free = shutil.disk_usage(existing(folder)).free
    largest = sorted(needed.parts.items(), key=lambda part: -part[1])
    parts = ", ".join(f"{name} {size(bytes_)}" for name, bytes_ in largest[:2])
    estimated = ", estimated" if needed.from_raw else ""
    text = f"{size(count)} to write in {folder.resolve()} ({parts}{estimated}), {size(free)} free"
    fix = "make room, or move the project and its cache to a larger disk (dvc cache dir FOLDER)"
    if largest and largest[0][0] in ("checkpoints", "weights of the epochs"):
        fix = "make room, or train a smaller model or fewer epochs, or keep less (runtime.checkpoint.keep)"
    if count > free:
        return problem("disk", text, fix)
    return warning("disk", text, fix) if count > FULL * free else ok("disk", text)


def check_memory(project: Project) -> Iterator[Finding]:
    """The device holds the model, and the sequences of a micro-batch beside it."""
    params, compute = project.params, project.compute
    if params is None or compute is None:
        return
    config = ModelConfig.of(params.model, vocabulary(params, _tokens(project)))
    setting = params.runtime.micro_batch_size
    sequences = sequences_that_fit(config, params.train.batch_size, compute.device) if setting == "auto" else setting
    sharded = compute.device.type == "cuda" and params.runtime.parallel == "fsdp"
    need = memory(
        config,
        sequences=sequences,
        precision="float32" if compute.precision == torch.float32 else "half",
        optimizer=params.train.optimizer,
        shards=torch.cuda.device_count() if sharded else 1,
    )
    free, total = device_memory(compute.device)
    text = (
        f"training takes about {size(need.total)} with {sequences} sequences at a time, "
        f"{size(free)} of {size(total)} free"
    )
    if need.total - need.activations - need.logits > free:
        yield problem("memory", text, "a smaller model, or another machine: `tokenmill plan` compares them")
    elif need.total > free:
        fix = "set runtime.micro_batch_size to auto"
        yield warning("memory", f"{text}; training will take fewer sequences at a time", fix)
    else:
        yield ok("memory", text)
