"""The one exception that a user may see: a sentence with the name, the value and the way out."""

import difflib
import sys
from collections.abc import Iterable


class UserError(Exception):
    """A problem that a user can cause and fix: one sentence, no traceback, exit code 1.

    Invariants that only this code can break are `assert`s instead.
    """


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its type if it has no message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def missing_package(error: ModuleNotFoundError) -> str | None:
    """What a user does about a package that this Python lacks; None if the module is one of this
    project, or not named."""
    if not error.name or error.name.partition(".")[0] in {"tokenmill", "stages"}:
        return None
    return (
        f"{sys.executable} lacks {error.name}; activate the environment first: "
        ". .venv/bin/activate (`make repro` creates it, and brings it up to date)."
    )


def did_you_mean(word: str, known: Iterable[str], before: str = "") -> str:
    """The text `did you mean plan?`, with the known word that is most like `word`; empty if none is
    like it. `before` is what stands before both words."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {before}{near[0]}?" if near else ""
