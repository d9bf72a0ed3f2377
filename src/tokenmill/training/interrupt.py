"""When to stop between two steps: Ctrl-C, a polite kill, the session's limit, or the death of the process above us.

A stage that was told to stop must not exit 0, or DVC takes half a result for a whole one.
"""

import os
import signal
import time
from types import FrameType, TracebackType

BEGAN = "TOKENMILL_SESSION_BEGAN"
"""The environment variable that tells a fresh process of the same session when that began."""


def session_began() -> float:
    """When this session began, on the clock of `time.monotonic`: now, unless an earlier process of it tells."""
    return float(os.environ.get(BEGAN, time.monotonic()))


class Interrupt:
    """While active, remembers the first reason to stop; a second Ctrl-C stops at once."""

    def __init__(self, *, max_minutes: float | None):
        """Also stop once `max_minutes` have passed since the session began; None is no limit."""
        self._max_minutes, self._began = max_minutes, session_began()
        self._signal: int | None = None
        self._parent = os.getppid()
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "Interrupt":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _remember(self, number: int, _: FrameType | None) -> None:
        if self._signal is not None:
            raise KeyboardInterrupt
        self._signal = number

    @property
    def signal(self) -> int | None:
        """The signal that came, if one did."""
        return self._signal

    @property
    def reason(self) -> str | None:
        """Why to stop, or None. Asked between steps."""
        if self._signal is not None:
            return f"stopped by {signal.Signals(self._signal).name}"
        if os.getppid() != self._parent:
            return "the process that started this training is gone"
        if self._max_minutes is not None and time.monotonic() - self._began >= 60 * self._max_minutes:
            return f"stopped by runtime.max_minutes ({self._max_minutes:g})"
        return None
