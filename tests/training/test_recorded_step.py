"""What is around the recording of a step. Here a recording runs the step, and repeating it runs it
again."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest
import torch

from tests.training.tiny import CONTEXT, model_config, train_params
from tokenmill.core.errors import UserError
from tokenmill.training.compile import WARM_UP_STEPS, RecordedStep
from tokenmill.training.loop import step_function
from tokenmill.training.schedule import Workload
from tokenmill.training.step import Batch, StepResult, batch_at

CPU = torch.device("cpu")


class Graph:
    """Repeats the update that ran inside `record`."""

    def __init__(self) -> None:
        self.replay = mock.Mock()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """All graphs that were recorded."""
    made: list[Graph] = []
    streams: list[mock.Mock] = []

    @contextlib.contextmanager
    def record(graph: Graph, *, stream: object, capture_error_mode: str) -> Iterator[None]:
        assert [stream] == streams, "the stream of the steps before"
        assert capture_error_mode == "thread_local", "another thread may use the GPU"
        made.append(graph)
        yield

    def new_stream() -> mock.Mock:
        streams.append(mock.Mock())
        return streams[-1]

    for name, value in {
        "CUDAGraph": Graph,
        "graph": record,
        "Stream": new_stream,
        "stream": lambda _: contextlib.nullcontext(),
        "current_stream": mock.Mock,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    return made


class Update:
    """A step whose results lie where those of the step before lay, as in a graph."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.loss = torch.zeros(())
        self.norm = torch.zeros(())

    def __call__(self, batch: Batch) -> StepResult:
        assert isinstance(batch.index, torch.Tensor)
        self.index = batch.index
        self.again()
        return StepResult(self.loss, self.norm)

    def again(self) -> None:
        self.seen.append(self.index.tolist())
        self.loss.copy_(self.index.sum())
        self.norm.copy_(self.index.max())


def test_each_step_has_its_own_sequences_and_results(graphs: list[Graph]):
    update = Update()
    step = RecordedStep(update, sequences=2, device=CPU)
    for n in range(WARM_UP_STEPS):
        step(Batch(np.array([n, n + 1])))
    assert not graphs, "nothing is recorded while PyTorch still compiles"
    update.again = mock.Mock(side_effect=lambda: Update.again(update))  # type: ignore[method-assign]
    results = []
    for n in (10, 20, 30):
        if graphs:
            graphs[0].replay.side_effect = update.again
        results.append(step(Batch(np.array([n, n + 1]))))
    assert len(graphs) == 1
    assert update.seen == [[0, 1], [1, 2], [2, 3], [10, 11], [20, 21], [30, 31]]
    assert [float(result.loss) for result in results] == [21, 41, 61]
    assert [float(result.gradient_norm) for result in results] == [11, 21, 31]


@pytest.mark.usefixtures("graphs")
def test_ordinary_steps_wait_and_are_waited_for(monkeypatch: pytest.MonkeyPatch):
    """They run on a stream of their own, but read and write what other streams do."""
    order: list[str] = []
    for name, stream in (("Stream", "own"), ("current_stream", "usual")):
        waits = mock.Mock(side_effect=lambda _, stream=stream: order.append(f"the {stream} waits"))
        monkeypatch.setattr(torch.cuda, name, mock.Mock(return_value=mock.Mock(wait_stream=waits)))
    result = StepResult(torch.zeros(()), torch.zeros(()))
    step = RecordedStep(lambda _: order.append("step") or result, sequences=1, device=CPU)
    step(Batch(np.array([0])))
    assert order == ["the own waits", "step", "the usual waits"]


def test_a_short_step_is_an_ordinary_one(graphs: list[Graph]):
    short = Batch(np.array([7]))
    seen: list[Batch] = []
    result = StepResult(torch.zeros(()), torch.zeros(()))
    step = RecordedStep(lambda batch: seen.append(batch) or result, sequences=2, device=CPU)
    for _ in range(WARM_UP_STEPS + 2):
        assert step(short) is result
    assert seen == [short] * (WARM_UP_STEPS + 2)
    assert not graphs


def test_steps_of_a_short_text_are_recorded():
    """Its epoch is one step, which sees fewer sequences than fit."""
    work = Workload(model_config(), train_params(batch_size=9), tokens=5 * CONTEXT + 1)
    run = mock.Mock(work=work)
    run.compute.device = CPU
    step = step_function(run)
    assert isinstance(step, RecordedStep)
    assert len(step._index) == len(batch_at(work, 0).index) == 5


def test_what_no_graph_holds_is_done_before_each_step(graphs: list[Graph]):
    said: list[str] = []
    recordings: list[int] = []
    step = RecordedStep(
        Update(),
        sequences=1,
        device=CPU,
        before=lambda: said.append("waited"),
        before_recording=lambda: recordings.append(len(graphs)),
    )
    for number in range(WARM_UP_STEPS + 3):
        step(Batch(np.array([number]), dropout_seed=(0, number)))
        said.append(str(torch.rand(()).item()))
    assert said[::2] == ["waited"] * (WARM_UP_STEPS + 3)
    assert recordings == [0], "once, before the recording"
    assert len(set(said[1::2])) == WARM_UP_STEPS + 3, "each step draws its own dropout"


def test_what_cannot_be_recorded_is_a_sentence(
    graphs: list[Graph], monkeypatch: pytest.MonkeyPatch
):
    step = RecordedStep(Update(), sequences=1, device=CPU)
    for _ in range(WARM_UP_STEPS):
        step(Batch(np.array([0])))
    monkeypatch.setattr(
        torch.cuda,
        "graph",
        mock.Mock(side_effect=RuntimeError("operation not permitted\nand more")),
    )
    with pytest.raises(UserError, match=r"runtime\.compile \(reduce-overhead\)") as refused:
        step(Batch(np.array([0])))
    assert "(operation not permitted)" in str(refused.value)
    full = mock.Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory."))
    monkeypatch.setattr(torch.cuda, "graph", full)
    with pytest.raises(torch.OutOfMemoryError):  # the next run takes a smaller micro-batch
        step(Batch(np.array([0])))
