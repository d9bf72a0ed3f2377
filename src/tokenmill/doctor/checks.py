"""Checks of what a run needs (parameters, text, device, compiler, memory, disk), and the list of
all checks.

The size of text that is not cleaned yet is estimated from its files, with ratios measured in
docs/scale.md. A new check is a function and a line in CHECKS.
"""

import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import torch

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.params import PARAMS_FILE, ParamsError, is_url
from tokenmill.data.readers import FORMATS
from tokenmill.data.sources import command_of_dvc, find_sources
from tokenmill.doctor import dvc, environment, objects
from tokenmill.doctor.environment import is_writable
from tokenmill.doctor.finding import Check, Finding, Project, ok, problem, warning
from tokenmill.formats.raw_text import holds, raw_text
from tokenmill.formats.token_file import (
    DTYPE,
    NARROW_DTYPE,
    TokenMetadata,
    packed_dtype,
    read_metadata,
    unpacked_bytes,
)
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import Compute, choose_compute
from tokenmill.model.gpt import parameter_count
from tokenmill.schema import AllParams, check_all, expected_vocabulary, problems_of_stages
from tokenmill.training.compile import missing_compiler
from tokenmill.training.memory import device_memory, first_micro_batch
from tokenmill.training.schedule import Workload
from tokenmill.training.size import memory
from tokenmill.words.units import counted, override, size

EDIT = f"edit {PARAMS_FILE} (`tokenmill params` explains each parameter)"

TOKEN_STAGES = ("clean", "tokenizer", "tokenize", "unpack")
"""The stages that make the tokens."""

UNPACKED = {".gz": 3.5, ".zst": 3.5, ".bz2": 4.5, ".xz": 4.5, ".zip": 3.5, None: 1.0}
"""Bytes of text per byte of a file with each compression."""

PARQUET = 0.46
"""Bytes of data/clean per byte of text."""

PACKED = {NARROW_DTYPE: 0.35, DTYPE: 0.42}
"""Bytes of data/packed per byte of data/tokens, by the type of packed ids."""

INDEX = 0.9
"""Bytes of data/index per byte of text: 4 for each word, number and run of punctuation."""

BYTES_PER_TOKEN = {"bpe": 3.0, "char": 1.0}
"""Bytes of text per token before the tokenizer is known. They are low, so that the estimate is too
large rather than too small."""

CONVERSATION_BYTES = 133
"""The mean bytes of a built-in training conversation, with its share of the validation
conversations."""

FULL = 0.9
"""The fraction of the free disk above which there is a warning."""

FEWEST_FILES = 500
"""Files to which a disk must have room. A run of the built-in text makes 270 (4 epochs, with DVC's
cache), a text of many shards two more for each."""

CACHED = ("clean text", "packed tokens", "index", "weights of the epochs")
"""The parts of which DVC's cache holds a second copy if it cannot link."""


def check_params(project: Project) -> Iterator[Finding]:
    """Check that every value of params.yaml is allowed."""
    try:
        project.params = check_all(project.root / PARAMS_FILE)
    except UserError as error:
        yield problem("parameters", str(error), EDIT)
    else:
        yield ok("parameters", f"{PARAMS_FILE} is valid")


def check_text(project: Project) -> Iterator[Finding]:
    """Check that there is text to train on, in a place where all kinds of runs find it."""
    if project.params is None:
        return
    raw = project.params.data.raw
    root = project.root
    place = raw_text(raw, root)
    if place == root / paths.SAMPLE and not place.exists():
        count = project.params.sample.conversations
        yield ok("text", f"the built-in {count:,} conversations, made by the first stage")
        return
    try:
        project.raw = find_sources(place, FORMATS)
    except UserError as error:
        if dvc.lost(root):  # a finding of `check_repository`, which mends this, too
            return
        fix = command_of_dvc(place) or "dvc exp run -S data.raw=/path/to/texts"
        yield problem("text", str(error), fix)
        return
    sources = project.raw.sources
    total = sum(source.size for source in sources)
    text = f"{raw}: {counted(len(sources), 'file')}, {total:,} bytes"
    if not is_url(raw) and not Path(raw).is_absolute() and not holds(root, str(root / raw)):
        text += "; queued and --temp runs do not find a relative path outside"
        fix = f"dvc exp run {override('data.raw', str((root / raw).resolve()))}"
        yield warning("text", text, fix)
    else:
        yield ok("text", text)


def check_values(project: Project) -> Iterator[Finding]:
    """Check that no stage would refuse what the parameters name besides the text."""
    if project.params is None:
        return
    # `check_text` has already said if there is no text
    names = [source.name for source in project.raw.sources] if project.raw else []
    if wrong := problems_of_stages(project.params, project.root, names=names):
        yield problem("values", str(ParamsError(PARAMS_FILE, wrong)), EDIT)


def check_device(project: Project) -> Iterator[Finding]:
    """Say which device and precision `runtime.device` and `train.precision` mean on this
    machine."""
    if project.params is None:
        return
    precision = project.params.train.precision
    wanted = project.params.runtime.device
    try:
        compute = project.compute = choose_compute(wanted, precision)
    except UserError as error:
        other = "cpu" if wanted == "auto" else "auto"
        yield problem("device", str(error), f"set runtime.device to {other}")
        return
    chosen = compute.precision_name
    text = f"{compute.name}{_about_gpu(compute)}, {chosen}{_why_precision(compute, precision)}"
    if compute.emulates_precision:
        fix = "set train.precision to auto"
        yield warning("device", f"{text}, which this processor only emulates, very slowly", fix)
    else:
        yield ok("device", text)


def _about_gpu(compute: Compute) -> str:
    if compute.device.type != "cuda":
        return ""
    major, minor = torch.cuda.get_device_capability(compute.device)
    free, total = torch.cuda.mem_get_info(compute.device)
    several = f"{torch.cuda.device_count()} of them, " if torch.cuda.device_count() > 1 else ""
    return f" ({several}capability {major}.{minor}, {size(free)} of {size(total)} free)"


def _why_precision(compute: Compute, wanted: str) -> str:
    if wanted != "auto":
        return " (train.precision)"
    if compute.device.type == "cpu":
        if compute.precision == torch.bfloat16:
            return " (the processor multiplies it)"
        return " (no AVX512_BF16 or AMX in this processor)"
    if compute.device.type == "cuda" and compute.precision == torch.float16:
        return " (this GPU has no bfloat16)"
    return ""


def check_compiler(project: Project) -> Iterator[Finding]:
    """Check that torch.compile finds what it needs, if `runtime.compile` asks for it or a GPU would
    gain much by it."""
    if project.params is None or project.compute is None:
        return
    setting = project.params.runtime.compile
    device = project.compute.device
    if setting == "off" or (setting == "auto" and device.type != "cuda"):
        return
    missing = missing_compiler(device)
    fix = "mend that (apt install g++ python3-dev), or set runtime.compile to off"
    if missing is None:
        yield ok("compiler", "what torch.compile needs is there")
    elif setting != "auto":
        yield problem("compiler", f"torch.compile needs {missing}", fix)
    else:
        yield warning("compiler", f"torch.compile needs {missing}; steps will be slower", fix)


def check_memory(project: Project) -> Iterator[Finding]:
    """Check that the device's memory holds the model and the sequences of a micro-batch."""
    params = project.params
    compute = project.compute
    if params is None or compute is None:
        return
    config = ModelConfig.of(params.model, vocabulary(params, _tokens(project), project.root))
    work = Workload(config, params.train, tokens=0)  # the length of the text does not matter
    sequences = first_micro_batch(params.runtime.micro_batch_size, work, compute)
    sharded = compute.device.type == "cuda" and params.runtime.parallel == "fsdp"
    need = memory(
        work,
        sequences=sequences,
        precision=compute.precision,
        shards=torch.cuda.device_count() if sharded else 1,
        on_cpu=compute.device.type == "cpu",
    )
    free, total = device_memory(compute.device)
    text = (
        f"training takes about {size(need.total)} with {counted(sequences, 'sequence')} at a time, "
        f"{size(free)} of {size(total)} free"
    )
    if need.fixed > free:
        fix = "a smaller model, or another machine: `tokenmill plan` compares them"
        yield problem("memory", text, fix)
    elif need.total > free:
        fix = "set runtime.micro_batch_size to auto"
        yield warning("memory", f"{text}; training will take fewer sequences at a time", fix)
    else:
        yield ok("memory", text)


def check_disk(project: Project) -> Iterator[Finding]:
    """Check that what is to be written fits on its disk, with one finding for each disk."""
    params = project.params
    workspace = project.root
    if params is None:
        return
    tokens = _tokens(project)
    is_built_in = raw_text(params.data.raw, workspace) == workspace / paths.SAMPLE
    if tokens is None and project.raw is None and not is_built_in:
        return  # `check_text` has already said that there is no text
    text = CONVERSATION_BYTES * params.sample.conversations
    if project.raw:
        text = int(sum(one.size * UNPACKED[one.compression] for one in project.raw.sources))
    parts = bytes_to_write(
        params,
        text=text,
        tokens=tokens,
        vocab_size=vocabulary(params, tokens, workspace),
        outdated=project.pipeline.outdated if project.pipeline else None,
    )
    if not parts:
        yield ok("disk", f"nothing to write; {size(shutil.disk_usage(workspace).free)} free")
        return
    by_folder = {workspace: sum(parts.values())}
    if project.repo and not dvc.links(project.repo)[0]:
        cache = Path(project.repo.cache.local.path)
        same_disk = dvc.existing(cache).stat().st_dev == dvc.existing(workspace).stat().st_dev
        folder = workspace if same_disk else cache
        by_folder[folder] = by_folder.get(folder, 0) + sum(parts.get(name, 0) for name in CACHED)
    for folder, count in by_folder.items():
        yield _fits(folder, count, parts, is_estimate=tokens is None)


def check_files(project: Project) -> Iterator[Finding]:
    """Check that the disks of project and cache have room for files (inodes), which may end before
    their bytes do: writing then says «No space left on device», too."""
    folders = [project.root]
    if project.repo:
        folders.append(dvc.existing(Path(project.repo.cache.local.path)))
    for folder in {path.stat().st_dev: path for path in reversed(folders)}.values():
        disk = os.statvfs(folder) if hasattr(os, "statvfs") else None  # (not on Windows)
        # Some file systems do not count files
        if disk and disk.f_files and disk.f_favail < FEWEST_FILES:
            room = f"{disk.f_favail:,} more files, however small"
            move = "move the project and its cache to another disk (dvc cache dir FOLDER)"
            text = f"the disk of {folder.resolve()} has room for {room}"
            fix = f"remove files there (`df -i` counts them), or {move}"
            yield problem("files", text, fix)


def bytes_to_write(
    params: AllParams,
    *,
    text: int,
    tokens: TokenMetadata | None,
    vocab_size: int,
    outdated: Collection[str] | None = None,
) -> dict[str, int]:
    """The bytes that stages write, by kind of output.

    Args:
        params: all parameters.
        text: bytes of the raw text, only used without `tokens`.
        tokens: the tokens that training will see, if they are there already.
        vocab_size: the size of the tokenizer's vocabulary.
        outdated: names of the stages that will run; None means all.
    """
    if tokens is not None:
        train, val = tokens.train.file_bytes, tokens.val.file_bytes
        text = tokens.train.bytes + tokens.val.bytes
    else:
        plain = int(4 * text / BYTES_PER_TOKEN[params.tokenizer.type])
        val = int(params.tokenize.val_fraction * plain)
        train = plain - val
    is_indexed = train <= 4 * params.trace.max_tokens
    config = ModelConfig.of(params.model, vocab_size)
    weights = 4 * parameter_count(config)
    work = Workload(config, params.train, tokens=0)
    state = memory(work, sequences=1, precision=torch.float32).optimizer
    parts = {
        "clean text": ("clean", int(PARQUET * text)),
        "packed tokens": ("tokenize", int(PACKED[packed_dtype(vocab_size)] * (train + val))),
        "tokens": (
            "unpack",
            unpacked_bytes(train, val, vocab_size, compressed=params.runtime.is_compressed),
        ),
        "index": ("index", int(INDEX * text) if is_indexed else 0),
        "weights of the epochs": ("train", params.train.epochs * weights),
        # Besides those that are kept: the one before the decay, and the one that is being written.
        "checkpoints": ("train", (params.runtime.checkpoint.keep + 2) * (weights + state)),
    }
    return {
        name: count
        for name, (stage, count) in parts.items()
        if outdated is None or stage in outdated
    }


def vocabulary(params: AllParams, tokens: TokenMetadata | None, root: Path) -> int:
    """The size of the tokenizer's vocabulary, known or expected."""
    return tokens.vocab_size if tokens else expected_vocabulary(params, root)


def _tokens(project: Project) -> TokenMetadata | None:
    """The tokens that training will see; None if they are not made yet."""
    if project.pipeline is None or set(TOKEN_STAGES) & set(project.pipeline.outdated):
        return None
    try:
        return read_metadata(project.root / paths.TOKENS)
    except UserError:
        return None


def _fits(folder: Path, count: int, parts: dict[str, int], *, is_estimate: bool) -> Finding:
    free = shutil.disk_usage(dvc.existing(folder)).free
    largest = sorted(parts, key=lambda name: -parts[name])[:2]
    named = [f"{name} {size(parts[name])}" for name in largest] + ["estimated"] * is_estimate
    text = f"{size(count)} to write in {folder.resolve()} ({', '.join(named)}), {size(free)} free"
    fix = "make room, or move the project and its cache to a larger disk (dvc cache dir FOLDER)"
    if largest[0] == "tokens":
        fix += ", or set runtime.token_placement to compressed"
    if largest[0] in ("checkpoints", "weights of the epochs"):
        fix = (
            "make room, or train a smaller model or fewer epochs, "
            "or keep less (runtime.checkpoint.keep)"
        )
    if count > free:
        return problem("disk", text, fix)
    return warning("disk", text, fix) if count > FULL * free else ok("disk", text)


CHECKS: tuple[Check, ...] = (
    environment.check_python,
    environment.check_variables,
    environment.check_packages,
    environment.check_folder,
    environment.check_names,
    check_params,
    check_text,
    check_values,
    environment.check_git,
    environment.check_identity,
    dvc.check_repository,
    dvc.check_cache,
    dvc.check_remote,
    dvc.check_pipeline,
    dvc.check_frozen,
    dvc.check_model,
    environment.check_commit,
    environment.check_runs,
    check_device,
    check_compiler,
    check_memory,
    check_disk,
    check_files,
)
"""All checks, in the order in which a run would meet the problems, with those of the environment
first."""


WRITING = (dvc.check_cache, dvc.check_pipeline, check_disk)
"""The checks that write for a moment; `check_limits` has said why they cannot."""


def run_checks(root: Path, *, deep: bool = False) -> Iterator[Finding]:
    """Check the project in the folder `root`, and yield each finding as soon as it is known.

    `deep` also hashes all that dvc.lock names and DVC's cache holds.
    """
    project = Project(root)
    writable = is_writable(root)
    for check in (*CHECKS, objects.check_objects) if deep else CHECKS:
        if writable or check not in WRITING:
            yield from check(project)
