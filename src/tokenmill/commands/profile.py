"""`tokenmill profile`: what binds the training in params.yaml, in a sentence, a table and a trace."""

from pathlib import Path

from tokenmill.core import paths
from tokenmill.core.params import PARAMS_FILE
from tokenmill.planning.profile import Profile, profile_training
from tokenmill.schema import check_all

TOP = 12
"""Operations in the table."""


def render(root: Path, *, steps: int, trace: Path) -> str:
    """Profile `steps` training steps of the project in the folder `root`.

    Raises:
        UserError: parameters are wrong, or there are no tokens.
    """
    params = check_all(root / PARAMS_FILE)
    result = profile_training(
        model=params.model,
        train=params.train,
        runtime=params.runtime,
        tokens=root / paths.TOKENS,
        steps=steps,
        trace=trace,
    )
    return "\n".join([result.sentence, *_rates(result), "", *_table(result), "", f"trace: {trace}"])


def _rates(result: Profile) -> list[str]:
    rate, best = result.flops / result.seconds, result.product_rate
    step, speed = result.seconds / result.steps * 1000, result.tokens / result.seconds
    return [
        f"a step takes {step:.3g} ms under the profiler, {speed:,.0f} tokens/s",
        f"that is {rate:.3g} operations a second, {rate / best:.1%} of what one large product reaches ({best:.3g})",
    ]


def _table(result: Profile) -> list[str]:
    head = f"{'share':>6}{'ms a step':>11}{'calls':>8}  operation"
    rows = [
        f"{o.seconds / result.seconds:>6.1%}{o.seconds / result.steps * 1000:>11.3f}{o.calls / result.steps:>8.0f}  "
        f"{o.name[:70]} ({o.kind})"
        for o in result.operations[:TOP]
    ]
    return [head, *rows]
