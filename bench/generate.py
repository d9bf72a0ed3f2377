"""Writing text beside transformers' `generate` on the same weights: `python -m bench.generate`.

One text and sixteen, the likeliest tokens and drawn ones (temperature 0.8, top-k 40), each
architecture, at the default size and at that of GPT-2 Small (12 layers, 768 wide, vocabulary
50,257, context 1,024), with random weights. Both write alternately in one process, after prompts of
16 tokens; figures are medians. The likeliest ids must be the same. With `--gpu` both write on CUDA.
Without transformers TokenMill writes alone.
"""

import importlib.util
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import torch

from bench.harness import Steps, here, in_turns, section
from bench.program import RowFile, command_line, verdict
from tokenmill.evaluation.generate import generate_batch, transpose_in_memory
from tokenmill.evaluation.sampling import Sampling
from tokenmill.model.config import Architecture, ModelConfig
from tokenmill.model.gpt import GPT, build
from tokenmill.model.huggingface import save_weights
from tokenmill.runs.model_code import write_code
from tokenmill.stage import report_errors

SMALL = {"n_layer": 12, "n_head": 12, "n_embd": 768, "context_length": 1024, "vocab_size": 50257}

SIZES: dict[str, dict[str, int]] = {"default": {"vocab_size": 1024}, "GPT-2 Small": SMALL}

TINY = {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 32, "vocab_size": 64}

PROMPT = 16
TEXTS = (1, 16)

HOW: dict[str, dict[str, Any]] = {"likeliest": {}, "drawn": {"temperature": 0.8, "top_k": 40}}

NEVER = -1
"""An end-of-text that no model gives."""

Row = dict[str, Any]


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__, tiny="a few tokens of next to nothing")
    parser.add_argument(
        "--tokens",
        type=int,
        default=64,
        help="tokens a text and round, as far as the context goes (default 64)",
    )
    parser.add_argument("--rounds", type=int, default=7, help="turns of each (default 7)")
    parser.add_argument("--threads", type=int, help="of both; else PyTorch's choice")
    parser.add_argument("--size", choices=SIZES, nargs="+", default=list(SIZES))
    parser.add_argument("--gpu", action="store_true", help="on CUDA, if there is a device")
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    if options.threads:
        torch.set_num_threads(options.threads)
    sizes = {"tiny": TINY} if options.tiny else {name: SIZES[name] for name in options.size}
    device = here() if options.gpu else torch.device("cpu")
    file = RowFile(options.json)
    report_errors(
        lambda: run(sizes, device, tokens=options.tokens, rounds=options.rounds, file=file)
    )


def run(
    sizes: dict[str, dict[str, int]],
    device: torch.device,
    *,
    tokens: int,
    rounds: int,
    file: RowFile,
) -> None:
    """A line for each model, number of texts and way of choosing."""
    print(f"{torch.get_num_threads()} threads, tokens a second, all texts together")
    print(
        f"{'model':20}{'texts':>6}  "
        f"{'tokens':10}{'transformers':>13}{'TokenMill':>11}{'times':>7}  target: faster"
    )
    for size, changes in sizes.items():
        for architecture in get_args(Architecture):
            for row in measure(architecture, changes, device, tokens=tokens, rounds=rounds):
                file.add({"model": f"{architecture}, {size}"} | row)
                print(_line(file.rows[-1]), flush=True)


def measure(
    architecture: str, changes: dict[str, int], device: torch.device, *, tokens: int, rounds: int
) -> Iterator[Row]:
    """Both on one model."""
    values = section("model", architecture=architecture, **changes)
    model = with_random_weights(ModelConfig.model_validate(values))
    tokens = min(tokens, model.config.context_length - PROMPT)
    theirs = published(model).to(device) if importlib.util.find_spec("transformers") else None
    model.to(device)
    if device.type == "cpu":
        transpose_in_memory(model)
    draws = torch.Generator().manual_seed(0)
    for texts in TEXTS:
        prompts = torch.randint(model.config.vocab_size, (texts, PROMPT), generator=draws)
        for name, how in HOW.items():
            seen: dict[str, list[list[int]]] = {}
            contenders = {"TokenMill": tokenmill_steps(model, prompts, how, seen)}
            if theirs is not None:
                contenders = {
                    "transformers": transformers_steps(theirs, prompts.to(device), how, seen)
                } | contenders
            timed = in_turns(contenders, rounds=rounds, steps=tokens, warm_up=tokens)
            row: Row = {"texts": texts, "tokens": name} | {
                n: round(texts / t.seconds, 1) for n, t in timed.items()
            }
            if theirs is not None:
                same = seen["transformers"] == seen["TokenMill"]
                assert how or same or device.type != "cpu", (
                    f"{architecture}: transformers writes other tokens"
                )
                times = timed["TokenMill"].times(timed["transformers"])
                row |= {"times": round(times, 2), "same": same}
            yield row


def with_random_weights(config: ModelConfig) -> GPT:
    """A model in which no weight is zero."""
    model = build(config, seed=0)
    draws = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(
                torch.randn(parameter.shape, generator=draws), alpha=0.5 * config.n_embd**-0.5
            )
    return model.eval()


def published(model: GPT) -> Any:
    """The same weights in transformers."""
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM  # noqa: PLC0415 (takes seconds to load)
    from transformers.utils import logging  # noqa: PLC0415

    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        save_weights(model, Path(folder))
        write_code(model.config, Path(folder))
        return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()


def tokenmill_steps(
    model: GPT, prompts: torch.Tensor, how: dict[str, Any], seen: dict[str, Any]
) -> Steps:
    """Ours, as a function of how many tokens."""
    ids = prompts.tolist()

    def steps(count: int) -> None:
        seen["TokenMill"] = generate_batch(
            model, ids, ends={NEVER}, sampling=Sampling(max_new_tokens=count, **how)
        )

    return steps


def transformers_steps(
    model: Any, prompts: torch.Tensor, how: dict[str, Any], seen: dict[str, Any]
) -> Steps:
    """Theirs."""
    options = {"do_sample": bool(how), "eos_token_id": None, "pad_token_id": 0} | how
    mask = torch.ones_like(prompts)

    def steps(count: int) -> None:
        with torch.inference_mode():
            whole = model.generate(prompts, attention_mask=mask, max_new_tokens=count, **options)
        seen["transformers"] = whole[:, PROMPT:].tolist()

    return steps


def _line(row: Row) -> str:
    start = f"{row['model']:20}{row['texts']:>6}  {row['tokens']:10}"
    if "times" not in row:
        return f"{start}{'':13}{row['TokenMill']:>11,.1f}"
    rates = f"{row['transformers']:>13,.1f}{row['TokenMill']:>11,.1f}"
    return f"{start}{rates}{row['times']:>6.2f}x  {verdict(row['times'] > 1)}"


if __name__ == "__main__":
    main()
