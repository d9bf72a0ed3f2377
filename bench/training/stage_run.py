"""A run of the stage `train` in this process, on random tokens."""

import numpy as np

from bench.harness import section
from bench.training.text import write_tokens
from tokenmill.core import paths
from tokenmill.model.config import ModelParams
from tokenmill.training.job import training_job
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.run import run_job

VOCABULARY = 1024

DRAWN = 64
"""Different tokens that are drawn."""

VALIDATED = 64
"""Sequences of the validation text."""


def train_here(model: dict[str, int], *, steps: int, epochs: int, every_steps: int) -> None:
    """Train as the stage does in the current folder, which is empty, uncompiled.

    Args:
        model: what differs in the section `model`.
        steps: those of an epoch.
        epochs: the number of them.
        every_steps: steps between two checkpoints.
    """
    params = ModelParams.model_validate(section("model", **model))
    train = TrainParams.model_validate(section("train", epochs=epochs, learning_rate=1e-3))
    length = params.context_length
    ids = np.random.default_rng(0).integers(DRAWN, size=steps * train.batch_size * length + 1)
    write_tokens(paths.TOKENS, train=ids, val=ids[: VALIDATED * length], vocabulary=VOCABULARY)
    every = {"every_seconds": None, "every_steps": every_steps}
    checkpoint = section("runtime")["checkpoint"] | every
    runtime = RuntimeParams.model_validate(section("runtime", compile="off", checkpoint=checkpoint))
    job = training_job(params, train, paths.TOKENS, paths.TOKENIZER)
    run_job(job, runtime=runtime, output=paths.MODEL, metrics=paths.METRICS, live=paths.LIVE)
