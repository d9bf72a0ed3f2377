"""A step whose loss or gradient is no longer finite: what is said about it, and where training goes back to, if it may.

The place follows from the step alone, so that a run that was killed on its way comes to the same end: the newest
checkpoint on a mark, a step divisible by `train.divergence.every_steps`, at least so many steps before.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tokenmill.training.batches import EpochOrder
from tokenmill.training.history import Return, RunState
from tokenmill.training.params import DivergenceParams, TrainParams
from tokenmill.training.resume import Beginning, is_exact
from tokenmill.training.store import Store

SOME_WINDOWS = 8
"""How many of a step's windows are named where it diverges."""


@dataclass
class Diverged(Exception):  # noqa: N818 (a state of the training, not yet an error)
    """The step after `step` steps gave a loss or a gradient norm that is not finite; its update was not made."""

    step: int
    loss: float
    norm: float

    def describe(self, order: EpochOrder, learning_rate: float) -> str:
        """Which step it was, on what, at which rate; a sentence."""
        epoch, position = divmod(self.step, order.steps_per_epoch)
        windows = ", ".join(map(str, order.at(self.step)[:SOME_WINDOWS]))
        return (
            f"training diverged in step {self.step + 1:,}, epoch {epoch + 1}, batch {position + 1:,} of "
            f"{order.steps_per_epoch:,} (windows {windows}, …): loss {self.loss}, gradient norm {self.norm}, learning "
            f"rate {learning_rate:.3g}. Its update was not made"
        )


def marks(step: int, divergence: DivergenceParams) -> set[int]:
    """The steps whose checkpoints a run that has come to `step` may have to go back to; none if it may not."""
    if not divergence.returns:
        return set()
    return set(range(_mark_before(step, divergence), step + 1, divergence.every_steps))


def _mark_before(step: int, divergence: DivergenceParams) -> int:
    every = divergence.every_steps
    return max(0, (step // every - 1) * every)


def where_to_return(
    store: Store, train: TrainParams, state: RunState, *, steps_per_epoch: int, say: Callable[[str], None]
) -> Beginning | None:
    """Where a run that diverged after `state` begins again, at a lower rate; None if it may not, or there is nothing.

    Where the mark's checkpoint is gone (the parameter was set only now, or it is damaged), another earlier one serves,
    and this is said: as far as there is one before the mark, else the oldest.
    """
    divergence = train.divergence
    if len(state.returns) >= divergence.returns:
        return None
    mark = _mark_before(state.step, divergence)
    earlier = [
        checkpoint
        for checkpoint in store.checkpoints(say)
        if checkpoint.step < state.step
        and state.descends_from(checkpoint.state)
        and is_exact(checkpoint, train, steps_per_epoch=steps_per_epoch)
    ]
    if not earlier:
        return None
    checkpoint = next((each for each in earlier if each.step <= mark), earlier[-1])
    returns = [*state.returns, Return(diverged=state.step, to=checkpoint.step)]
    gone = "" if checkpoint.step == mark else f" (that of step {mark:,} is gone, so the result is not repeatable)"
    return Beginning(
        replace(checkpoint, state=replace(checkpoint.state, returns=returns)),
        f"going back to the checkpoint of step {checkpoint.step:,}{gone} and on with "
        f"{divergence.rate_factor ** len(returns):.3g} of the learning rate (return {len(returns)} of "
        f"{divergence.returns})",
    )


def advice(train: TrainParams, *, returns: int) -> str:
    """What a user can do about it."""
    again = f" It had gone back {returns} time{'s' * (returns > 1)}." if returns else ""
    return (
        f"{again} Lower train.learning_rate ({train.peak}), raise train.schedule.warmup_steps "
        f"({train.schedule.warmup_steps}), take another train.precision ({train.precision}), or let training go back "
        f"by itself and on with a lower rate (train.divergence.returns, {train.divergence.returns})."
    )
