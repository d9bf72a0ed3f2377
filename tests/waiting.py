"""Wait for what another process does, as long as it takes on a busy machine."""

import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

MOST_SECONDS = 300

Found = TypeVar("Found")


def wait_for(
    what: Callable[[], Found | None], *, of: "subprocess.Popen[Any] | None" = None
) -> Found:
    """Ask again until the answer is neither None nor False. The process `of` must not end
    before."""
    end = time.monotonic() + MOST_SECONDS
    while not (found := what()):
        assert time.monotonic() < end, "waited in vain"
        assert of is None or of.poll() is None, "it has ended"
        time.sleep(0.01)
    return found
