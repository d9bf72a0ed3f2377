"""`tokenmill generate`."""

import argparse
from pathlib import Path

from tokenmill.cli.arguments import Commands, add_command, count
from tokenmill.openmp import sleep_soon_beside_others

EXAMPLES = """\
  tokenmill generate "What is the capital of France?"    one answer of the last epoch
  tokenmill generate --text "ROMEO:" --samples 3         continue a text as it stands, three times
  tokenmill generate                                     chat; /reset begins anew, /quit or Ctrl-D leaves
  cat questions.txt | tokenmill generate > answers.txt   each line is a question
  tokenmill generate --epoch 1 "Who wrote Hamlet?"       an earlier epoch
  tokenmill generate --rev blest-jube "Who wrote Hamlet?"     another experiment, branch, tag or commit
  tokenmill generate --model models/gpt/epoch-2 --tokenizer data/tokenizer/tokenizer.json "Hello!"
  tokenmill generate --temperature 0 "What is 2 plus 3?"      the likeliest token each time

What is not given is that of evaluate in params.yaml. In a chat Ctrl-C stops the answer, not the program.
"""


def add(commands: Commands) -> None:
    """Add the command."""
    add = add_command(
        commands,
        "generate",
        _run,
        help_="let a trained model answer, continue a text, or chat",
        examples=EXAMPLES,
    )
    add.add_argument("prompt", nargs="?", metavar="QUESTION", help="a question; without it, chat")
    add.add_argument("--text", metavar="TEXT", help="a beginning to continue as it stands, instead of a question")
    which = add.add_argument_group("which model (default: the last epoch in models/gpt)")
    which.add_argument("--epoch", type=int, metavar="N", help="this epoch")
    which.add_argument("--rev", metavar="REV", help="of another git revision or DVC experiment, or a ref epoch-N")
    which.add_argument("--model", type=Path, metavar="FOLDER", help="in a folder: config.json, model.safetensors")
    which.add_argument("--tokenizer", type=Path, metavar="FILE", help="for --model, if it is not in its folder")
    how = add.add_argument_group("how it writes (default: evaluate in params.yaml)")
    how.add_argument("--temperature", type=float, metavar="X", help="higher is more daring; 0: the likeliest token")
    how.add_argument("--top-k", type=int, metavar="N", help="draw among the N likeliest tokens")
    how.add_argument(
        "--top-p", type=float, metavar="P", help="draw among the likeliest that together have probability P"
    )
    how.add_argument("--repetition-penalty", type=float, metavar="X", help="above 1: shun tokens used before")
    how.add_argument("--seed", type=int, metavar="N", help="of the draws; the same seed gives the same text")
    how.add_argument("--max-new-tokens", type=int, metavar="N", help="an answer ends here at the latest")
    how.add_argument(
        "--samples", type=count, default=1, metavar="N", help="so many answers, with seeds one after another"
    )


def _run(options: argparse.Namespace) -> None:
    sleep_soon_beside_others()
    from tokenmill.commands import generate  # noqa: PLC0415 (PyTorch takes seconds to load)

    names = ("temperature", "top_k", "top_p", "repetition_penalty", "seed", "max_new_tokens")
    generate.run(
        Path(),
        question=options.prompt,
        text=options.text,
        where={name: getattr(options, name) for name in ("epoch", "rev", "model", "tokenizer")},
        how={name: value for name in names if (value := getattr(options, name)) is not None},
        samples=options.samples,
    )
