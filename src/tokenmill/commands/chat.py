"""A chat in the terminal: lines with history, answers as they come, Ctrl-C for the answer and not for the program."""

import contextlib

from tokenmill.display.writing import show, tell
from tokenmill.model.sampler import Sampling
from tokenmill.models.writer import Writer

PROMPT = "> "


HELP = "/reset begins anew, /quit or Ctrl-D leaves, Ctrl-C stops an answer"


def chat(writer: Writer, sampling: Sampling, *, name: str) -> None:
    """Talk with the model called `name` until the user leaves."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401, PLC0415 (importing it gives `input` editing and history, where there is one)
    tell(f"{name}; {HELP}")
    messages: list[dict[str, str]] = []
    while (line := _line()) is not None:
        if line == "/quit":
            return
        if line == "/reset":
            messages.clear()
        elif line == "/help":
            tell(HELP)
        elif line.startswith("/"):
            tell(f"there is no {line.split()[0]}; {HELP}")
        elif line:
            messages.append({"role": "user", "content": line})
            answer = _reply(writer, messages, sampling)
            if answer:
                messages.append({"role": "assistant", "content": answer})
            else:
                messages.pop()


def _line() -> str | None:
    """What the user types next; nothing after Ctrl-C, None after Ctrl-D."""
    try:
        return input(PROMPT).strip()
    except KeyboardInterrupt:
        print()
        return ""
    except EOFError:
        print()
        return None


def _reply(writer: Writer, messages: list[dict[str, str]], sampling: Sampling) -> str:
    """Show the answer; give it, or as much of it as there was before Ctrl-C."""
    pieces: list[str] = []
    try:
        show(writer.reply(messages, sampling), said=pieces.append)
    except KeyboardInterrupt:
        print(flush=True)
        tell("stopped")
    return "".join(pieces)
