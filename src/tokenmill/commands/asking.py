"""What a command that asks a model begins with: the section `evaluate` of params.yaml, where there is one."""

from pathlib import Path
from typing import Any

from tokenmill.core.params import PARAMS_FILE, Section, load
from tokenmill.evaluation.params import EvaluateParams

WITHOUT_PARAMS = {"max_new_tokens": 64}
"""Outside a project: the likeliest tokens, so many."""


class _Params(Section):
    evaluate: EvaluateParams


def evaluate_params(root: Path) -> EvaluateParams | None:
    """The section `evaluate` of the project at `root`; None outside of one.

    Raises:
        UserError: it is wrong.
    """
    return load(_Params, root / PARAMS_FILE).evaluate if (root / PARAMS_FILE).exists() else None


def sampling_values(evaluate: EvaluateParams | None) -> dict[str, Any]:
    """Values for `Sampling`, where no others are given."""
    if evaluate is None:
        return dict(WITHOUT_PARAMS)
    return evaluate.model_dump(include={"temperature", "top_k", "seed", "max_new_tokens"})
