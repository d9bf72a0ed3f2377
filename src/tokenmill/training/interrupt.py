"""Reasons to stop between two steps: Ctrl-C, SIGTERM, the session's time limit, or the death of the parent process.

A stage that was told to stop must not exit with 0, or DVC takes half a result for a whole one.
"""

import os
import signal
import time
from types import FrameType, TracebackType


class Interrupt:
    """While active, remembers the first signal to stop; a second one stops at once."""

    def __init__(self, *, max_minutes: float | None):
        """Also stop once `max_minutes` have passed from now; None is no limit."""
        self._max_minutes, self._began = max_minutes, time.monotonic()
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
    def reason(self) -> str | None:
        """Why to stop, or None."""
        if self._signal is not None:
            return f"stopped by {signal.Signals(self._signal).name}"
        if os.getppid() != self._parent:
            return "the process that started this training is gone"
        if self._max_minutes is not None and time.monotonic() - self._began >= 60 * self._max_minutes:
            return f"stopped by runtime.max_minutes ({self._max_minutes:g})"
        return None
