"""Room: the disk against what the parameters will write, memory against what training holds."""

import shutil
from pathlib import Path

import psutil
import torch

from tokenmill.display.units import size
from tokenmill.doctor.finding import Finding, ok, problem, warning
from tokenmill.doctor.needs import Needs
from tokenmill.model.config import ModelConfig
from tokenmill.schema import AllParams
from tokenmill.training.device import Compute
from tokenmill.training.estimate import memory
from tokenmill.training.memory import windows_that_fit

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
    """Whether the device holds the model, and how many windows at a time beside it."""
    config = ModelConfig.of(params.model, vocab_size)
    wish = params.runtime.micro_batch_size
    windows = windows_that_fit(config, params.train.batch_size, compute.device) if wish == "auto" else wish
    shards = torch.cuda.device_count() if compute.device.type == "cuda" and params.runtime.parallel == "fsdp" else 1
    need = memory(
        config,
        windows=windows,
        precision="float32" if compute.precision == torch.float32 else "half",
        optimizer=params.train.optimizer,
        shards=shards,
    )
    free, total = _memory(compute)
    text = (
        f"training takes about {size(need.total)} with {windows} windows at a time, {size(free)} of {size(total)} free"
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
