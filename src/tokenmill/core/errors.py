"""The one exception that a user may see: a sentence with the name, the value and the way out."""


class UserError(Exception):
    """Something a user can cause and mend; printed as a sentence, without a traceback, exit code 1.

    Invariants that only this code can break are `assert`s instead.
    """
