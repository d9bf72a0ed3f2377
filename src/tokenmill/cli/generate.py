"""`tokenmill generate`: answers to one prompt, to the lines of a pipe, or in a chat.

Answers go to stdout, notes about them to stderr.
"""

import argparse
import contextlib
import dataclasses
import io
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.main import Parser, count
from tokenmill.cli.trace import as_cleaned, print_trace
from tokenmill.core.errors import UserError
from tokenmill.display import note, print_stream, rate

if TYPE_CHECKING:
    from tokenmill.evaluation.prompts import EvaluateParams
    from tokenmill.evaluation.sampling import Sampling
    from tokenmill.evaluation.trace import Tracer
    from tokenmill.model.gpt import GPT
    from tokenmill.runs.find import FoundModel
    from tokenmill.runs.writer import Stream, Writer

ONE_THREAD_UP_TO = 4_000_000
"""The number of parameters of a model up to which one CPU core is faster than several, which would
wait for each other at every product."""

TOKENS_WITHOUT_PARAMS = 64
"""The most tokens of an answer outside a project."""

SHOWN_SPANS = 3
"""The most phrases of an answer that `--trace` shows."""

CHAT_HELP = "/reset begins anew, /quit or Ctrl-D leaves, Ctrl-C stops an answer"

EXAMPLES = """\
  tokenmill generate "What is the capital of France?"       one answer of the last epoch
  tokenmill generate --text "ROMEO:" --samples 3            continue a text, three times
  tokenmill generate                                        chat; /reset begins anew, /quit leaves
  cat questions.txt | tokenmill generate > answers.txt      each line is a question
  tokenmill generate --epoch 1 "Who wrote Hamlet?"          an earlier epoch
  tokenmill generate --rev blest-jube "Who wrote Hamlet?"   another experiment or commit
  tokenmill generate --model models/gpt/epoch-2 --tokenizer data/tokenizer/tokenizer.json "Hello!"
  tokenmill generate --trace "Who wrote Hamlet?"            and where the answer comes from
  tokenmill generate --temperature 0 "What is 2 plus 3?"    the likeliest token each time

Values that are not given are those of `evaluate` in params.yaml. In a chat Ctrl-C stops the answer,
not the program.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the prompt, the model, and the sampling."""
    parser.add_argument(
        "prompt", nargs="?", metavar="QUESTION", help="a question; without it, chat"
    )
    parser.add_argument(
        "--text", metavar="TEXT", help="a beginning to continue as it stands, instead of a question"
    )
    add_model_arguments(parser)
    how = parser.add_argument_group("how it writes (default: evaluate in params.yaml)")
    how.add_argument(
        "--temperature",
        type=float,
        metavar="X",
        help="higher is more daring; 0: the likeliest token",
    )
    how.add_argument("--top-k", type=int, metavar="N", help="sample among the N likeliest tokens")
    how.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help="sample among the likeliest tokens that together have probability P",
    )
    how.add_argument(
        "--repetition-penalty", type=float, metavar="X", help="above 1: avoid tokens used before"
    )
    how.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="seed of the sampling; the same seed gives the same text",
    )
    how.add_argument(
        "--max-new-tokens", type=int, metavar="N", help="an answer has at most this many tokens"
    )
    how.add_argument(
        "--samples",
        type=count,
        default=1,
        metavar="N",
        help="write N answers, each with its own seed",
    )
    parser.add_argument(
        "--trace",
        action="store_true",
        help="show after each answer which phrases of it stand in the training text, and where",
    )


def add_model_arguments(parser: Parser) -> None:
    """Declare the options that name a model."""
    which = parser.add_argument_group("which model (default: the last epoch in models/gpt)")
    which.add_argument("--epoch", type=int, metavar="N", help="this epoch")
    which.add_argument(
        "--rev", metavar="REV", help="of another git revision or DVC experiment, or a ref epoch-N"
    )
    which.add_argument(
        "--model", type=Path, metavar="FOLDER", help="in a folder: config.json, model.safetensors"
    )
    which.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="for --model, if it is not in its folder"
    )


def model_of(options: argparse.Namespace) -> "FoundModel":
    """The model that these options name."""
    from tokenmill.runs.find import find_model

    which = {name: getattr(options, name) for name in ("epoch", "rev", "model", "tokenizer")}
    return find_model(Path(), **which)


def run(options: argparse.Namespace) -> None:
    """Answer the question or continue the text. Without either, answer what comes from stdin."""
    from tokenmill.evaluation.sampling import Sampling
    from tokenmill.runs.writer import Writer

    if options.prompt is not None and options.text is not None:
        raise UserError("give either a question or --text, not both.")
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(Sampling)}
    given = {name: value for name, value in given.items() if value is not None}
    sampling = dataclasses.replace(default_sampling(evaluate_params()), **given)
    tracer = None
    if options.trace:
        from tokenmill.evaluation.trace import Tracer

        tracer = Tracer.of_project(Path())
    checkpoint = model_of(options)
    writer = Writer.load(checkpoint)
    if writer.model.device.type == "cpu":
        _choose_threads(writer.model)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    answer = partial(_answer, writer, sampling, tracer, samples=options.samples)
    if options.text is not None:
        answer(options.text, chat=False)
    elif options.prompt is not None:
        answer(options.prompt, chat=True)
    elif not sys.stdin.isatty():
        for line in filter(None, map(str.strip, sys.stdin)):
            answer(line, chat=True)
    elif options.samples > 1:
        raise UserError("--samples needs a question, --text, or lines from a pipe.")
    else:
        _chat(writer, sampling, tracer, name=checkpoint.name)


def _choose_threads(model: "GPT") -> None:
    """Let a small model write on one core, and a larger one on all of them."""
    import torch

    from tokenmill.model.device import prepare_threads
    from tokenmill.model.gpt import parameter_count

    if parameter_count(model.config) <= ONE_THREAD_UP_TO:
        torch.set_num_threads(1)
    else:
        prepare_threads()


def evaluate_params() -> "EvaluateParams | None":
    """The section `evaluate` of the project in the current folder; None outside a project."""
    from tokenmill.core.params import PARAMS_FILE, Section, load
    from tokenmill.evaluation.prompts import EvaluateParams

    class Params(Section):
        evaluate: EvaluateParams

    return load(Params).evaluate if PARAMS_FILE.exists() else None


def default_sampling(evaluate: "EvaluateParams | None") -> "Sampling":
    """The default sampling. Outside a project it takes the likeliest tokens."""
    from tokenmill.evaluation.sampling import Sampling

    return Sampling.of(evaluate) if evaluate else Sampling(max_new_tokens=TOKENS_WITHOUT_PARAMS)


def _answer(
    writer: "Writer",
    sampling: "Sampling",
    tracer: "Tracer | None",
    prompt: str,
    *,
    chat: bool,
    samples: int,
) -> None:
    prompt = as_cleaned(prompt)
    if samples == 1:
        _show(writer.stream(prompt, sampling, chat=chat), tracer)
        return
    streams = writer.several(prompt, sampling, samples, chat=chat)
    note("\n".join(streams[0].notes))
    for stream in streams:
        print_stream(stream)
        _show_trace(stream, tracer)
    note(rate(sum(stream.tokens for stream in streams), max(stream.seconds for stream in streams)))


def _show(stream: "Stream", tracer: "Tracer | None") -> None:
    """Print a text while it is written, then its speed, and where it comes from."""
    note("\n".join(stream.notes))
    print_stream(stream)
    note(rate(stream.tokens, stream.seconds))
    _show_trace(stream, tracer)


def _show_trace(stream: "Stream", tracer: "Tracer | None") -> None:
    if tracer:
        print_trace(tracer.trace(stream.text), spans=SHOWN_SPANS, out=sys.stderr)


def _chat(writer: "Writer", sampling: "Sampling", tracer: "Tracer | None", *, name: str) -> None:
    """Chat until the user leaves. Lines have a history; Ctrl-C stops an answer, not the program."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (importing it gives `input` editing and history)
    note(f"{name}; {CHAT_HELP}")
    messages: list[dict[str, str]] = []
    while (line := _read_line()) is not None:
        if line == "/quit":
            return
        if line == "/reset":
            messages.clear()
        elif line == "/help":
            note(CHAT_HELP)
        elif line.startswith("/"):
            note(f"there is no {line.split()[0]}; {CHAT_HELP}")
        elif line:
            messages.append({"role": "user", "content": as_cleaned(line)})
            if answer := _reply(writer, messages, sampling, tracer):
                messages.append({"role": "assistant", "content": answer})
            else:
                messages.pop()


def _read_line() -> str | None:
    """The line that the user types next. It is empty after Ctrl-C, and None after Ctrl-D."""
    try:
        return input("> ").strip()
    except KeyboardInterrupt:
        print()
        return ""
    except EOFError:
        print()
        return None


def _reply(
    writer: "Writer",
    messages: list[dict[str, str]],
    sampling: "Sampling",
    tracer: "Tracer | None",
) -> str:
    """Print the answer and return it, or the part of it that was there before Ctrl-C."""
    stream = writer.reply(messages, sampling)
    try:
        _show(stream, tracer)
    except KeyboardInterrupt:
        print(flush=True)
        note("stopped")
    return stream.text
