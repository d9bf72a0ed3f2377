"""A stream that says it is a terminal, and keeps what is written."""

import io


class Terminal(io.StringIO):
    """Standard output or error of somebody who sits there."""

    def isatty(self) -> bool:
        """Somebody does."""
        return True
