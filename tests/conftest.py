"""Settings shared by all tests."""

import os
import signal

import pytest
from hypothesis import settings

# What a script starts in the background ignores Ctrl-C, and so would the processes that tests start to send them one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several test processes share the cores

# A busy machine is no bug; and a gate that draws other examples each time would fail on somebody else's change.
settings.register_profile("gate", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("gate")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests go first, so that there are short ones to take from others until the end.

    Of the short ones those go last that need the finished project, which a slow one makes meanwhile.
    """

    def place(item: pytest.Item) -> tuple[bool, bool]:
        is_short = item.get_closest_marker("slow") is None
        return is_short, is_short and "finished_template" in getattr(item, "fixturenames", ())

    items.sort(key=place)
