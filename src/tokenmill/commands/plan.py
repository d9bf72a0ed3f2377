"""`tokenmill plan`: what the training in params.yaml would take, before anything runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.commands.changes import change
from tokenmill.commands.plan_table import Measured, memory_of, reached, table
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_json
from tokenmill.core.params import PARAMS_FILE, read_yaml, validate
from tokenmill.core.token_file import METADATA_FILE, read_metadata
from tokenmill.costs import TIMING, read_timing
from tokenmill.display.terminal import size
from tokenmill.model.build import parameter_count
from tokenmill.model.config import ModelConfig
from tokenmill.model.manifest import MANIFEST, read_manifest
from tokenmill.model.size import Memory, flops_per_token
from tokenmill.planning.benchmark import measure
from tokenmill.planning.estimate import optimizer_flops, verdict
from tokenmill.planning.presets import Preset, put_into, read
from tokenmill.schema import AllParams
from tokenmill.training.schedule import Workload

HERE = "here"
"""Among the names of hardware: this machine, measured now."""


@dataclass(frozen=True)
class Wish:
    """What was asked for beside params.yaml."""

    preset: str | None
    tokens: float | None
    vocab_size: int | None
    hardware: Sequence[str]
    devices: int
    utilisation: float
    step_seconds: float | None
    price_per_hour: float | None
    """Of one device."""
    changes: Sequence[str]
    """NAME=VALUE each, as for `dvc exp run -S`."""


def render(root: Path, wish: Wish) -> str:
    """The plan of the project in the folder `root`.

    Raises:
        UserError: parameters are wrong, or nothing says how many tokens there are.
    """
    preset = read(wish.preset) if wish.preset else None
    params = _params(root / PARAMS_FILE, preset, wish.changes)
    work = _workload(root, params, preset, wish)
    gpus = [name for name in wish.hardware if name.lower() != HERE]
    here = _here(work, params) if len(gpus) < len(wish.hardware) else _last_training(root, work)
    rows = table(
        work,
        gpus if gpus or not wish.hardware else None,
        here=here,
        devices=wish.devices,
        utilisation=wish.utilisation,
        price_per_hour=wish.price_per_hour,
        cost=params.runtime.cost,
    )
    lines = [*_about(work), "", *rows]
    if wish.step_seconds is not None:
        lines += ["", reached(work, gpus, seconds=wish.step_seconds, devices=wish.devices)]
    return "\n".join(lines)


def _params(path: Path, preset: Preset | None, changes: Sequence[str]) -> AllParams:
    content: dict[str, Any] = put_into(path, preset).content if preset else read_yaml(path)
    for wish in changes:
        change(content, wish)
    return validate(AllParams, content, path)


def _workload(root: Path, params: AllParams, preset: Preset | None, wish: Wish) -> Workload:
    there, vocabulary = (int(preset.tokens), preset.vocab_size) if preset else _data(root)
    tokens = int(wish.tokens) if wish.tokens is not None else there
    if tokens is None:
        raise UserError("there are no tokens yet; give their number (`tokenmill plan --tokens 2.8e9`), or `dvc repro`.")
    vocabulary = wish.vocab_size or vocabulary or params.tokenizer.vocab_size
    return Workload(ModelConfig.of(params.model, vocabulary), params.train, tokens)


def _data(root: Path) -> tuple[int | None, int | None]:
    """Training tokens and vocabulary size, from the tokens themselves or from the metrics about them."""
    if (root / paths.TOKENS / METADATA_FILE).exists():
        metadata = read_metadata(root / paths.TOKENS)
        return metadata.train.tokens, metadata.vocab_size
    metrics = root / paths.METRICS
    if (metrics / "tokens.json").exists() and (metrics / "tokenizer.json").exists():
        tokens, tokenizer = read_json(metrics / "tokens.json"), read_json(metrics / "tokenizer.json")
        return tokens["train_tokens"], tokenizer["vocab_size"]
    return None, None


def _here(work: Workload, params: AllParams) -> Measured:
    """This machine, as some steps of this very training go now."""
    speed = measure(work, params.runtime)
    return Measured(HERE, speed.seconds, f"here: {speed.measured}, measured just now on {speed.device}")


def _last_training(root: Path, work: Workload) -> Measured | None:
    """This machine at the operations a second of its last training, or None."""
    rows = read_timing(root / paths.METRICS / TIMING)
    if rows.empty or not (root / paths.MODEL / MANIFEST).exists():
        return None
    model = read_manifest(root / paths.MODEL).model
    rate = float(rows.loc[:, "tokens_per_second"].median()) * flops_per_token(model)
    # What the update takes is in the rate.
    seconds = work.tokens_per_step * flops_per_token(work.config) / rate
    told = f"this machine: {rate:.3g} operations a second, as measured in its last training"
    return Measured("this machine", seconds, told)


def _about(work: Workload) -> list[str]:
    config, train, tokens = work.config, work.train, work.tokens
    parameters = parameter_count(config)
    operations = work.steps * work.tokens_per_step * flops_per_token(config)
    update = optimizer_flops(config, train.optimizer) / (work.tokens_per_step * flops_per_token(config))
    shape = f"{config.n_layer} layers, {config.n_head} heads, {config.n_embd} wide, context {config.context_length}"
    return [
        f"model   {config.architecture}, {parameters:,} parameters: {shape}, vocabulary {config.vocab_size:,}",
        f"text    {tokens:,} tokens x {train.epochs} epochs",
        f"        {verdict(parameters=parameters, tokens=tokens, epochs=train.epochs)}",
        f"step    {work.tokens_per_step:,} tokens, {work.steps_per_epoch:,} steps an epoch, {work.steps:,} in all",
        f"work    {flops_per_token(config):.4g} operations a token, {operations:.3g} in all"
        + (f", and {update:.0%} more for {train.optimizer}" if update > 0.005 else ""),
        f"memory  {_memory_line(memory_of(work, 'half'))} (half precision)",
        f"        {_memory_line(memory_of(work, 'float32'))} (float32)",
    ]


def _memory_line(need: Memory) -> str:
    return (
        f"weights {size(need.weights)}, gradients {size(need.gradients)}, optimizer {size(need.optimizer)}, "
        f"activations {size(need.activations)}, logits {size(need.logits)}: {size(need.total)}"
    )
