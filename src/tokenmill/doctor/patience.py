"""Work that may take long, for a while only."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class TooLong(Exception):  # noqa: N818 (it says what happened)
    """The time is over; the work goes on in a thread that ends with this process."""


class _Outcome(Generic[T]):
    value: T
    error: BaseException | None = None


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` gives or raises.

    Raises:
        TooLong: not within so many seconds.
    """
    outcome: _Outcome[T] = _Outcome()

    def run() -> None:
        try:
            outcome.value = work()
        except BaseException as error:
            outcome.error = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TooLong
    if outcome.error is not None:
        raise outcome.error
    return outcome.value
