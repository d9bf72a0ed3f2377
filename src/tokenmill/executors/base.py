"""What starts tasks: an executor, on whatever it runs them.

It changes how fast a data stage runs, never what the stage writes.
"""

import abc
import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Task:
    """A task that an executor has started."""

    future: Any
    """The future of a thread, or the reference of Ray to the result."""
    kept: tuple[Any, ...] = ()
    """What the caller has kept for this task, and, in tuples of their own, for those whose values
    it takes."""
    part: int | None = None
    """The place of this value, where the result of a thread is a tuple of values."""
    node: str | None = None
    """The node of a Ray cluster on which the task was to run."""


class Executor(abc.ABC):
    """Starts tasks, which are calls of functions. A task gives one value, or several.

    Functions, arguments and values must be picklable and functions pure: an executor may run a task
    on another machine, and again if a machine dies. A value stays where it was computed until
    `result` fetches it; a task that takes it as an argument gets it from there.
    """

    task_bytes: int
    """Bytes of text that a task should take, about. They bound its memory and that of its values;
    a small task takes the caller as much time as a large one."""
    wave_limits: int
    """How many times `limit()` the values are that may wait for a decision that is made for all of
    them at once."""

    @abc.abstractmethod
    def start(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        values: int = 1,
        group: int | None = None,
        keep: Sequence[Task] = (),
    ) -> tuple[Task, ...]:
        """Start `function(*arguments)` and return a task for each of its values.

        Args:
            arguments: one that is a `Task` stands for its value. A task runs on the machine that
                has most of them, if it can.
            values: above 1, the function returns a tuple of so many.
            group: tasks that follow one another with the same number run on one machine, if it
                lives. So does what takes their values.
            keep: arguments whose values are kept as long as those of this task. If a machine is
                lost with the latter, they are computed again from the former. Without these, all
                that they were made of is computed again, too.
        """

    @abc.abstractmethod
    def result(self, task: Task) -> Any:
        """Wait for a value and fetch it. An exception of the function is raised as it is."""

    @abc.abstractmethod
    def cancel(self, task: Task) -> None:
        """Give up a task."""

    @abc.abstractmethod
    def limit(self) -> int:
        """The number of tasks that keep everything busy; it bounds how many are under way."""

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Generator[Result, None, None]:
        """Yield `function(item)` for every item, in the order of the items.

        `items` is read in the caller's thread, with at most `limit()` items started and not yet
        yielded. An exception from `function` or `items` is raised after the results of the items
        before it. Closing the iterator cancels the items under way.
        """
        started = self.in_order(self.start(function, item) for item in items)
        with contextlib.closing(started):
            for (task,) in started:
                yield self.result(task)

    def in_order(
        self, started: Iterable[tuple[Task, ...]], limit: Callable[[], int] | None = None
    ) -> Generator[tuple[Task, ...], None, None]:
        """Yield the tasks of `started`, an iterator that starts them, in their order and with at
        most `limit()` under way, which is that of the executor if it is not given. See `map` for
        exceptions and closing."""
        limit = limit or self.limit
        under_way: deque[tuple[Task, ...]] = deque()
        failure = None
        try:
            try:
                for tasks in started:
                    under_way.append(tasks)
                    while len(under_way) >= limit():
                        yield under_way[0]
                        under_way.popleft()
            except Exception as error:
                failure = error
            while under_way:
                yield under_way[0]
                under_way.popleft()
            if failure is not None:
                raise failure
        finally:
            # The last ones first: none of them begins while an earlier one ends
            for tasks in reversed(under_way):
                self.cancel(tasks[0])
