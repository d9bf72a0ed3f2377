"""How many times an epoch sees each source of the training text, as `data.mixture` says."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tokenmill.core.errors import UserError
from tokenmill.formats.token_file import MAX_SOURCES, SourceRun

NAMED = 10
"""The most sources that an error message names."""


@dataclass(frozen=True)
class Stretch:
    """Tokens of the training text that follow each other and are seen equally often."""

    source: str | None
    """Where they come from; None: from sources that `data.mixture` does not name, seen once."""
    tokens: int
    weight: float
    """How many times an epoch sees them."""

    def sequences(self, context_length: int) -> int:
        """The sequences that an epoch sees of it: its weight times those that it is cut into, to
        the nearest whole number, and at least one unless the weight is 0."""
        whole = (self.tokens - 1) // context_length
        return max(1, round(self.weight * whole)) if self.weight else 0


@dataclass(frozen=True)
class Seen:
    """How much of a source an epoch sees."""

    source: str | None
    """None: all the sources that `data.mixture` does not name."""
    weight: float
    tokens: int
    """Tokens of it in the training text."""
    seen: int
    """Tokens of it that an epoch learns from, each counted as often as it is seen."""


def stretches_of(
    runs: Sequence[SourceRun], mixture: Mapping[str, float] | None, context_length: int
) -> tuple[Stretch, ...]:
    """The training text in stretches, each of which is cut into sequences by itself; none if all of
    it is seen once.

    Args:
        runs: the sources of the training text, in its order.
        mixture: `data.mixture`.
        context_length: tokens of a sequence.

    Raises:
        UserError: a name is that of no source, sources are not told apart, nothing is left, or a
            stretch is too short for a sequence.
    """
    if not mixture or not mixes(mixture):
        return ()
    check_mixture(mixture, {run.source for run in runs}, "the training text")
    stretches: list[Stretch] = []
    for named, some in itertools.groupby(
        runs, lambda run: run.source if mixture.get(run.source or "", 1) != 1 else None
    ):
        of = list(some)
        weight = mixture[named] if named is not None else 1.0
        stretch = Stretch(named, sum(run.tokens for run in of), weight)
        if weight and stretch.tokens <= context_length:
            raise UserError(
                f"{', '.join(str(run.source) for run in of[:NAMED])} has {stretch.tokens:,} tokens "
                "of training text between sources of other weights in data.mixture, not more than "
                f"model.context_length ({context_length}), so no sequence fits; give it the weight "
                "0, or put it into a folder with more text."
            )
        stretches.append(stretch)
    return tuple(stretches)


def mixes(mixture: Mapping[str, float] | None) -> bool:
    """Whether `data.mixture` changes how often a source is seen; a weight of 1 does not."""
    return any(weight != 1 for weight in (mixture or {}).values())


def check_mixture(
    mixture: Mapping[str, float], sources: Collection[str | None], where: str
) -> None:
    """Refuse a name that is none of these sources, which are those of `where`, and weights that
    leave none of them.

    Raises:
        UserError: also if they are not told apart.
    """
    if None in sources or len(sources) > MAX_SOURCES:
        raise UserError(
            f"data.mixture needs sources that are told apart, and {where} has more than "
            f"{MAX_SOURCES:,}; put its files into fewer folders, or set data.mixture to null."
        )
    for name in mixture:
        if name not in sources:
            known = sorted(str(source) for source in sources)
            more = f" and {len(known) - NAMED:,} more" if len(known) > NAMED else ""
            raise UserError(
                f"data.mixture.{name} is no source of {where}; its sources, the folders and files "
                f"that lie in data.raw, are {', '.join(known[:NAMED])}{more}."
            )
    if not any(mixture.get(source or "", 1) for source in sources):
        raise UserError(
            "data.mixture gives every source the weight 0, so there is nothing to train on; give "
            "one of them another."
        )


def seen_of(stretches: Sequence[Stretch], context_length: int) -> list[Seen]:
    """How much an epoch sees of each source, in the order of their names, the others last."""
    ordered = sorted(stretches, key=lambda one: (one.source is None, one.source or ""))
    found = []
    for source, some in itertools.groupby(ordered, lambda one: one.source):
        of = list(some)
        seen = sum(one.sequences(context_length) for one in of) * context_length
        found.append(Seen(source, of[0].weight, sum(one.tokens for one in of), seen))
    return found


def seen_in_words(seen: Sequence[Seen]) -> str:
    """How much an epoch sees of each source, in one line; of many sources only some are named."""
    total = sum(one.seen for one in seen)
    parts = [
        f"{'others' if one.source is None else one.source} x {one.weight:g} = "
        f"{one.seen:,} tokens ({one.seen / total:.0%})"
        for one in (*seen[:NAMED], *seen[NAMED:][-1:])
    ]
    more = [f"{len(seen) - NAMED - 1:,} more"] if len(seen) > NAMED + 1 else []
    return ", ".join([*parts[:NAMED], *more, *parts[NAMED:]])
