"""What a job is, and what it raises when a package is missing.

A module of its own, because `python -m bench.data.jobs` runs jobs.py as `__main__`: an exception that is defined there
would be another class for the modules that import it.
"""

import importlib.util
from collections.abc import Callable
from typing import Any, TypeAlias

Facts: TypeAlias = dict[str, Any]
"""What a job says about itself; `bytes`, if it did not work on the whole corpus."""


Work: TypeAlias = Callable[[], Facts]
"""The timed part of a job."""


STAGES = ("clean", "tokenizer", "tokenize", "unpack")


class MissingError(Exception):
    """Something that a job needs is not installed."""


def require(*packages: str) -> None:
    """Raise MissingError for the first package that is not there."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise MissingError(package)
