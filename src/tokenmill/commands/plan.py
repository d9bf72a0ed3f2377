"""`tokenmill plan`: what the training in params.yaml would take, before anything runs."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, YAMLError

from tokenmill.display.training import duration
from tokenmill.errors import UserError
from tokenmill.files import read_json
from tokenmill.model.build import parameter_count
from tokenmill.model.config import ModelConfig
from tokenmill.params import PARAMS_FILE, read_yaml, validate
from tokenmill.schema import AllParams
from tokenmill.tokenization.metadata import METADATA_FILE
from tokenmill.tokenization.token_file import read_metadata
from tokenmill.training.estimate import Memory, Precision, memory, optimizer_flops, step, verdict
from tokenmill.training.flops import flops_per_token
from tokenmill.training.hardware import HARDWARE, Hardware
from tokenmill.training.manifest import read_manifest
from tokenmill.training.timing import read_timing


@dataclass(frozen=True)
class Wish:
    """What was asked for beside params.yaml."""

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


@dataclass(frozen=True)
class Run:
    """A training, as far as numbers follow from it."""

    config: ModelConfig
    params: AllParams
    tokens: int
    """To train on, once."""

    @property
    def tokens_per_step(self) -> int:
        """That one update sees."""
        train = self.params.train
        return train.batch_size * train.gradient_accumulation_steps * self.config.context_length

    @property
    def steps_per_epoch(self) -> int:
        """The last one may be short."""
        windows = (self.tokens - 1) // self.config.context_length
        return -(-windows * self.config.context_length // self.tokens_per_step)

    @property
    def steps(self) -> int:
        """Of the whole run."""
        return self.steps_per_epoch * self.params.train.epochs


def render(root: Path, wish: Wish) -> str:
    """The plan of the project in the folder `root`.

    Raises:
        UserError: parameters are wrong, or nothing says how many tokens there are.
    """
    run = _run(root, wish)
    lines = [*_about(run), "", *_table(run, wish, _measured(root))]
    if wish.step_seconds is not None:
        lines += ["", *_reached(run, wish)]
    return "\n".join(lines)


def _run(root: Path, wish: Wish) -> Run:
    content = read_yaml(root / PARAMS_FILE)
    for change in wish.changes:
        _change(content, change)
    params = validate(AllParams, content, root / PARAMS_FILE)
    tokens, vocabulary = _data(root)
    tokens = int(wish.tokens) if wish.tokens is not None else tokens
    if tokens is None:
        raise UserError("there are no tokens yet; give their number (`tokenmill plan --tokens 2.8e9`), or `dvc repro`.")
    vocabulary = wish.vocab_size or vocabulary or params.tokenizer.vocab_size
    return Run(ModelConfig.of(params.model, vocabulary), params, tokens)


def _change(content: dict[str, Any], change: str) -> None:
    """Put `model.n_layer=12` into the content of params.yaml."""
    name, equals, value = change.partition("=")
    *parents, key = name.split(".")
    section: Any = content
    for parent in parents:
        section = section.get(parent) if isinstance(section, dict) else None
    if not equals or not isinstance(section, dict):
        raise UserError(f"-S {change} is not NAME=VALUE with the name of a parameter, as in -S model.n_layer=12.")
    try:
        section[key] = YAML(typ="safe", pure=True).load(value)
    except YAMLError:
        raise UserError(f"-S {change}: the value is not YAML.") from None


def _data(root: Path) -> tuple[int | None, int | None]:
    """Training tokens and vocabulary size, from the tokens themselves or from the metrics about them."""
    if (root / "data/tokens" / METADATA_FILE).exists():
        metadata = read_metadata(root / "data/tokens")
        return metadata.train.tokens, metadata.vocab_size
    metrics = root / "metrics"
    if (metrics / "tokens.json").exists() and (metrics / "tokenizer.json").exists():
        tokens, tokenizer = read_json(metrics / "tokens.json"), read_json(metrics / "tokenizer.json")
        return tokens["train_tokens"], tokenizer["vocab_size"]
    return None, None


def _measured(root: Path) -> float | None:
    """Operations a second that the last training on this machine reached, or None."""
    rows = read_timing(root / "metrics/timing.csv")
    if not rows or not (root / "models/gpt/manifest.json").exists():
        return None
    model = read_manifest(root / "models/gpt").model
    return statistics.median(row.tokens_per_second for row in rows) * flops_per_token(model)


def _about(run: Run) -> list[str]:
    config, train, tokens = run.config, run.params.train, run.tokens
    parameters = parameter_count(config)
    work = run.steps * run.tokens_per_step * flops_per_token(config)
    update = optimizer_flops(config, train.optimizer) / (run.tokens_per_step * flops_per_token(config))
    shape = f"{config.n_layer} layers, {config.n_head} heads, {config.n_embd} wide, context {config.context_length}"
    return [
        f"model   {config.architecture}, {parameters:,} parameters: {shape}, vocabulary {config.vocab_size:,}",
        f"text    {tokens:,} tokens x {train.epochs} epochs",
        f"        {verdict(parameters=parameters, tokens=tokens, epochs=train.epochs)}",
        f"step    {run.tokens_per_step:,} tokens, {run.steps_per_epoch:,} steps an epoch, {run.steps:,} in all",
        f"work    {flops_per_token(config):.4g} operations a token, {work:.3g} in all"
        + (f", and {update:.0%} more for {train.optimizer}" if update > 0.005 else ""),
        f"memory  {_memory_line(_memory(run, 'half'))} (half precision)",
        f"        {_memory_line(_memory(run, 'float32'))} (float32)",
    ]


def _memory(run: Run, precision: Precision, windows: int | None = None) -> Memory:
    train = run.params.train
    return memory(run.config, windows=windows or train.batch_size, precision=precision, optimizer=train.optimizer)


def _memory_line(need: Memory) -> str:
    return (
        f"weights {size(need.weights)}, gradients {size(need.gradients)}, optimizer {size(need.optimizer)}, "
        f"activations {size(need.activations)}, logits {size(need.logits)}: {size(need.total)}"
    )


def size(count: float) -> str:
    """Bytes in the unit that says something."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count / 1e3:.3g} kB"


def _table(run: Run, wish: Wish, measured: float | None) -> list[str]:
    """Step, hours, money and memory on some hardware."""
    per_device = "" if wish.devices == 1 else f"{wish.devices} x "
    head = f"{'on':<18}{'step':>9}{'tokens/s':>12}{'training':>10}{'money':>12}  memory"
    lines = [head]
    if measured:
        lines.append(_row("this machine", run, rate=measured, devices=1, price=run.params.runtime.cost.price_per_hour))
    for entry in _chosen(wish.hardware):
        rate, room = entry.teraflops * 1e12 * wish.utilisation, _room(run, entry)
        name = per_device + entry.name
        lines.append(_row(name, run, rate=rate, devices=wish.devices, price=wish.price_per_hour, entry=entry) + room)
    lines.append(f"at {wish.utilisation:.0%} of each GPU's half-precision peak, which is assumed (--utilisation);")
    lines.append("a small model or batch does not keep a GPU that busy")
    if measured:
        lines.append(f"this machine: {measured:.3g} operations a second, as measured in its last training")
    return lines


def _row(name: str, run: Run, *, rate: float, devices: int, price: float | None, entry: Hardware | None = None) -> str:
    one = step(
        run.config,
        tokens=run.tokens_per_step,
        optimizer=run.params.train.optimizer,
        rate=rate,
        devices=devices,
        parallel="ddp",
        precision="half",
        bandwidth=entry.link_gb_per_second * 1e9 if entry else 1.0,
    )
    # A measured rate has the update in it.
    seconds = one.seconds if entry else run.tokens_per_step * flops_per_token(run.config) / rate
    total = seconds * run.steps
    cost = "" if price is None else f"{total / 3600 * price * devices:,.2f} {run.params.runtime.cost.currency}"
    return f"{name:<18}{_seconds(seconds):>9}{run.tokens_per_step / seconds:>12,.0f}{duration(total):>10}{cost:>12}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{seconds * 1000:.3g} ms"


def _room(run: Run, entry: Hardware) -> str:
    """Whether a batch fits, or the largest part of it that does."""
    windows = run.params.train.batch_size
    while windows and _memory(run, "half", windows).total > 0.9 * entry.memory_gb * 1e9:
        windows //= 2
    if windows == run.params.train.batch_size:
        return "  fits"
    return f"  fits {windows} windows at a time" if windows else "  too small"


def _chosen(names: Sequence[str]) -> list[Hardware]:
    known = {entry.name.lower(): entry for entry in HARDWARE}
    for name in names:
        if name.lower() not in known:
            raise UserError(f"--hardware {name} is not known; known are {', '.join(e.name for e in HARDWARE)}.")
    return [known[name.lower()] for name in names] or HARDWARE


def _reached(run: Run, wish: Wish) -> list[str]:
    """What share of each peak a step of so many seconds would be."""
    seconds = wish.step_seconds or 0.0
    rate = run.tokens_per_step * flops_per_token(run.config) / seconds / wish.devices
    shares = ", ".join(f"{rate / entry.teraflops / 1e12:.0%} of {entry.name}" for entry in _chosen(wish.hardware))
    total = seconds * run.steps
    return [f"a step in {seconds:g} s: {rate / 1e12:.3g}e12 operations a second, {shares}; {duration(total)} in all"]
