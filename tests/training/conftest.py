"""Tokens on disk, a place for checkpoints, and a process that can be killed."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.model.conftest import model
from tests.training.fork_server import ForkServer
from tests.training.tiny import write_tokens
from tokenmill.progress import TrainingDisplay
from tokenmill.training import run

__all__ = ["model"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small only lose by sharing the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def forgetful_compiler() -> None:
    """PyTorch compiles a function for a few models of a process; for others it runs as it is."""
    torch.compiler.reset()


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """19 sequences: five steps of four, the last one short."""
    return write_tokens(tmp_path_factory.mktemp("tokens") / "tokens", sequences=19)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What trainings in this process tell people."""
    out = io.StringIO()
    monkeypatch.setattr(run, "TrainingDisplay", lambda: TrainingDisplay(out))
    return out


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as started:
        yield started
