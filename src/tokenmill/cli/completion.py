"""`tokenmill completion`."""

import argparse

import shtab

from tokenmill.cli.arguments import Commands, add_command

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


def add(commands: Commands) -> None:
    """Add the command."""
    add = add_command(
        commands, "completion", _run, help_="print a script by which the shell completes commands", examples=EXAMPLES
    )
    add.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def _run(options: argparse.Namespace) -> None:
    from tokenmill.cli.main import parser  # noqa: PLC0415 (which adds this command)

    print(shtab.complete(parser(), options.shell))
