"""`tokenmill completion`: a script by which bash, zsh or tcsh completes command lines."""

import argparse

from tokenmill.cli.main import Parser, build_parser

SHELLS = ("bash", "zsh", "tcsh")

EXAMPLES = """\
  bash, with the package bash-completion (each new terminal then has it):
    mkdir -p ~/.local/share/bash-completion/completions
    tokenmill completion bash > ~/.local/share/bash-completion/completions/tokenmill
  bash, this terminal only:
    eval "$(tokenmill completion bash)"
  zsh, into a folder of its $fpath (before `compinit` in ~/.zshrc: fpath=(~/.zfunc $fpath)):
    mkdir -p ~/.zfunc && tokenmill completion zsh > ~/.zfunc/_tokenmill
  tcsh:
    tokenmill completion tcsh > ~/.tokenmill.completion.tcsh
    echo 'source ~/.tokenmill.completion.tcsh' >> ~/.tcshrc
"""


def add_arguments(parser: Parser) -> None:
    """Declare the shell."""
    parser.add_argument(
        "shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}"
    )


def run(options: argparse.Namespace) -> None:
    """Print the completion script."""
    import shtab

    paths = {"FILE": shtab.FILE, "FOLDER": shtab.DIRECTORY}
    parser = build_parser()
    for command in parser.commands().values():
        for action in command.arguments():
            if action.metavar in paths:
                # shtab reads it
                action.complete = paths[action.metavar]  # type: ignore[attr-defined]
    print(shtab.complete(parser, options.shell))
