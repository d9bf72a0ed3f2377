"""The models that write in these tests."""

from tests.model.conftest import model

__all__ = ["model"]
