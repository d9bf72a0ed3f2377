"""`tokenmill plan`: what the training in params.yaml would take, before anything runs."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.main import Parser, add_json, amount, count, positive, share
from tokenmill.display import console, print_columns, print_record
from tokenmill.planning.presets import PRESETS, read_preset
from tokenmill.words.units import counted, duration, money, si, size

if TYPE_CHECKING:
    from tokenmill.planning.plan import Plan, PlanRow
    from tokenmill.training.size import Memory

EXAMPLES = """\
  tokenmill plan                   the training in params.yaml, on the tokens there are
  tokenmill plan --hardware here   the same, by some steps measured on this machine now
  tokenmill plan --preset phase3   a known configuration, without writing it (`tokenmill preset`)
  tokenmill plan --tokens 2.8e9 --vocab-size 32000 \\
      -S model.n_layer=12 -S model.n_embd=768 -S model.n_head=12
  tokenmill plan --hardware A100 H100 --devices 8 --price-per-hour 2
  tokenmill plan --hardware A100 --step-seconds 0.1    what share of the peak that would be
"""

OTHER_TOKENS = (
    "those are of another text or tokenizer; `dvc repro unpack` makes those of params.yaml, or "
    "give --tokens"
)


def add_arguments(parser: Parser) -> None:
    """Declare what to plan, and for which hardware."""
    add = parser.add_argument
    add(
        "--preset",
        choices=PRESETS,
        metavar="PRESET",
        help=f"instead of params.yaml: {', '.join(PRESETS)}",
    )
    add("--tokens", type=amount, metavar="N", help="to train on (default: those of data/tokens)")
    add("--vocab-size", type=amount, metavar="N", help="of the tokenizer (default: by params.yaml)")
    add(
        "--hardware",
        nargs="+",
        default=[],
        metavar="NAME",
        help="GPUs to plan for (default: all known); `here` measures this machine for some seconds",
    )
    add("--devices", type=count, default=1, metavar="N", help="GPUs in one machine (default 1)")
    add(
        "--utilisation",
        type=share,
        metavar="X",
        help="share of the peak that a GPU reaches, if not as assumed",
    )
    add(
        "--step-seconds",
        type=positive,
        metavar="S",
        help="print what share of the peak such a step reaches",
    )
    add(
        "--price-per-hour",
        type=positive,
        metavar="X",
        help="of one GPU, or of `here` alone, in runtime.cost.currency",
    )
    add(
        "-S",
        dest="overrides",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Print the plan of the project in the current folder."""
    from tokenmill.core.params import PARAMS_FILE
    from tokenmill.planning.params_file import params_with
    from tokenmill.planning.plan import UTILISATION, plan_training

    preset = read_preset(options.preset) if options.preset else None
    utilisation = options.utilisation or UTILISATION
    tokens = options.tokens
    vocab_size = options.vocab_size
    if preset:
        tokens = tokens or preset.tokens
        vocab_size = vocab_size or preset.vocab_size
    plan = plan_training(
        Path(),
        params_with(preset.values if preset else {}, PARAMS_FILE, options.overrides),
        tokens=tokens,
        vocab_size=vocab_size,
        hardware=options.hardware,
        devices=options.devices,
        utilisation=utilisation,
        price_per_hour=options.price_per_hour,
    )
    seconds = options.step_seconds
    reached = _reached(plan, seconds, devices=options.devices) if seconds else None
    if options.json:
        print_record(_record(plan, utilisation) | {"reached": reached})
        return
    _print_facts(plan)
    print()
    _print_memory(plan)
    print()
    _print_rows(plan)
    if plan.gpus:
        is_float32 = plan.work.train.precision == "float32"
        slower = "; train.precision (float32) takes several times as long" if is_float32 else ""
        console().print(
            f"at {utilisation:.0%} of each GPU's half-precision peak, which is assumed "
            f"(--utilisation); a small model or batch does not keep a GPU that busy{slower}"
        )
    if plan.source:
        console().print(plan.source)
    if reached:
        print()
        console().print(_in_words(reached))


def _record(plan: "Plan", utilisation: float) -> dict[str, Any]:
    """The plan for programs."""
    work = plan.work
    rows = [
        {
            "name": row.name,
            "step_seconds": row.step_seconds,
            "tokens_per_second": work.tokens_per_step / row.step_seconds,
            "total_seconds": row.total_seconds,
            "money": row.money,
            "sequences": row.sequences,
        }
        for row in plan.rows
    ]
    return {
        "model": work.config.model_dump(),
        "parameters": plan.parameters,
        "tokens": work.tokens,
        "has_other_tokens": plan.has_other_tokens,
        "epochs": work.train.epochs,
        "steps": work.steps,
        "mixture": [asdict(one) for one in work.seen],
        "tokens_per_step": work.tokens_per_step,
        "flops_per_token": plan.flops_per_token,
        "optimizer_share": plan.optimizer_share,
        "memory": {
            name: asdict(need) | {"total": need.total} for name, need in _memory(plan).items()
        },
        "rows": rows,
        "utilisation": utilisation,
        "currency": plan.currency,
    }


def _print_facts(plan: "Plan") -> None:
    from tokenmill.formats.mixture import seen_in_words
    from tokenmill.model.gpt import model_in_words

    work = plan.work
    train = plan.work.train
    operations = work.tokens_per_epoch * train.epochs * plan.flops_per_token
    update = ""
    if plan.optimizer_share > 0.005:
        update = f", and {plan.optimizer_share:.0%} more for {train.optimizer}"
    epochs = f"{work.steps_per_epoch:,} steps an epoch, {work.steps:,} in all"
    rows = [
        ("model", model_in_words(work.config)),
        ("text", f"{work.tokens:,} tokens x {counted(train.epochs, 'epoch')}"),
        ("", OTHER_TOKENS if plan.has_other_tokens else ""),
        ("", _verdict(plan)),
        ("mixture", seen_in_words(work.seen)),
        ("step", f"{work.tokens_per_step:,} tokens, {epochs}"),
        ("work", f"{plan.flops_per_token:.4g} operations a token, {operations:.3g} in all{update}"),
    ]
    print_columns([row for row in rows if row[1]])


def _verdict(plan: "Plan") -> str:
    """A sentence about whether the text is enough for the model. More training than is best may pay
    off for a small model, because it is cheap to use."""
    from tokenmill.planning.fit import ENOUGH, REPEATS

    learned = plan.work.tokens_per_epoch * plan.work.train.epochs
    seen = learned / plan.parameters
    text = sum(one.tokens for one in plan.work.seen if one.weight) or plan.work.tokens
    fitting = min(learned, text * REPEATS) / ENOUGH
    best = f"the {ENOUGH:.0f} that make best use of the computation"
    if fitting < plan.parameters / 4:
        size = si(fitting, space="")
        said = f"little text for this model; take more, or a model of about {size} parameters"
    elif seen < ENOUGH / 2:
        said = f"fewer than {best}; train longer, or a smaller model"
    elif seen <= 4 * ENOUGH:
        said = f"near {best}"
    else:
        said = f"more than {best}; good for a small model that is used much"
    return f"{seen:.3g} tokens per parameter: {said}"


def _memory(plan: "Plan") -> "dict[str, Memory]":
    """The memory of one device that takes a whole batch at a time, by the precision of products: of
    this machine, if it is among the rows."""
    import torch

    from tokenmill.training.size import memory

    is_here = any(row.wanted is None for row in plan.rows)
    return {
        str(precision).removeprefix("torch."): memory(
            plan.work,
            sequences=plan.work.train.batch_size,
            precision=precision,
            on_cpu=is_here and not torch.accelerator.is_available(),
        )
        for precision in (torch.bfloat16, torch.float32)
    }


def _print_memory(plan: "Plan") -> None:
    parts = ("weights", "gradients", "optimizer", "activations", "logits", "total")
    rows = [["memory", *parts]]
    for precision, need in _memory(plan).items():
        rows.append([precision, *(size(getattr(need, part)) for part in parts)])
    print_columns(rows, right=range(1, 7))


def _print_rows(plan: "Plan") -> None:
    cells = [["on", "step", "tokens/s", "training", "money", "memory"]]
    for row in plan.rows:
        step = f"{row.step_seconds:.3g} s"
        if row.step_seconds < 0.1:
            step = f"{row.step_seconds * 1000:.3g} ms"
        price = "" if row.money is None else money(row.money, plan.currency)
        speed = f"{plan.work.tokens_per_step / row.step_seconds:,.0f}"
        cells.append([row.name, step, speed, duration(row.total_seconds), price, _fits(row)])
    if not any(row.money is not None for row in plan.rows):
        for row in cells:
            del row[4]
    print_columns(cells, right=range(1, len(cells[0]) - 1))


def _fits(row: "PlanRow") -> str:
    if row.sequences is None:
        return ""
    if row.sequences == row.wanted:
        return "fits"
    return f"fits {counted(row.sequences, 'sequence')} at a time" if row.sequences else "too small"


def _reached(plan: "Plan", seconds: float, *, devices: int) -> dict[str, Any]:
    """What a step in so many seconds means."""
    rate = plan.work.tokens_per_step * plan.flops_per_token / seconds / devices
    return {
        "step_seconds": seconds,
        "flops_per_second": rate,
        "total_seconds": seconds * plan.work.full_steps,
        "shares": [{"name": gpu.name, "share": rate / gpu.flops} for gpu in plan.gpus],
    }


def _in_words(reached: dict[str, Any]) -> str:
    shares = [f"{one['share']:.0%} of {one['name']}" for one in reached["shares"]]
    speed = f"{reached['flops_per_second'] / 1e12:.3g}e12 operations a second"
    total = duration(reached["total_seconds"])
    return f"a step in {reached['step_seconds']:g} s: {', '.join([speed, *shares])}; {total} in all"
