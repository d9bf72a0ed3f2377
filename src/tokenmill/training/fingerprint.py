"""What makes two trainings the same: all that changes their numbers, but how long they go on and where they go back."""

import hashlib
import json
from typing import Any

from tokenmill.model.config import ModelConfig
from tokenmill.tokenization.metadata import SPLITS, TokenMetadata
from tokenmill.training.params import TrainParams

NUMERICS = 7
"""Raised whenever a change of this code changes what a step computes; then no old checkpoint is continued."""

HORIZON: dict[str, Any] = {"epochs": True, "schedule": {"horizon_epochs"}, "divergence": True}
"""What a run may change and still go on from a checkpoint; `resume.choose` says from which one."""


def fingerprint(model: ModelConfig, train: TrainParams, tokens: TokenMetadata) -> str:
    """Sixteen hexadecimal digits that two runs share when one can go on where the other stopped."""
    content = {
        "numerics": NUMERICS,
        "model": model.model_dump(),
        "train": train.model_dump(exclude=HORIZON),
        "tokens": {name: tokens.split(name).sha256 for name in SPLITS},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
