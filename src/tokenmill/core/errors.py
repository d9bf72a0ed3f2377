"""The one exception that a user may see: a sentence with the name, the value and the way out."""


class UserError(Exception):
    """A problem that a user can cause and fix: one sentence, no traceback, exit code 1.

    Invariants that only this code can break are `assert`s instead.
    """


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its type if it has no message."""
    return (str(error).splitlines() or [type(error).__name__])[0]
