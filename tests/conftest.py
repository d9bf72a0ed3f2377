"""Settings shared by all tests."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several test processes share the cores

# A busy machine is no bug; and a gate that draws other examples each time would fail on somebody else's change.
settings.register_profile("gate", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("gate")
