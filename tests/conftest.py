"""Fixtures shared by all tests."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # several test processes share the cores
