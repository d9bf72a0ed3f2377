"""What libraries leave to the garbage collector fails no test.

The collector comes by in whatever test runs then, and finds what libraries left in cycles, such as
open connections; a finalizer's exception or warning would be an error of that test. What our code
lets go of itself ends at once, in the test to blame.
"""

import gc
import sys
import threading

COLLECTING = threading.local()
"""Whether the collector is at work in this thread, in `on`."""


def pytest_sessionstart() -> None:
    """Report no exception of a finalizer that the collector runs."""
    report = sys.unraisablehook

    def unless_collecting(unraisable: "sys.UnraisableHookArgs") -> None:
        if not getattr(COLLECTING, "on", False):
            report(unraisable)

    sys.unraisablehook = unless_collecting
    gc.callbacks.append(lambda phase, _: setattr(COLLECTING, "on", phase == "start"))
