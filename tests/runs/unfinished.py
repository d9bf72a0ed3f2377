"""A project in the middle of a training, without a trainer."""

import json
import shutil
from pathlib import Path

from tests.evaluation.trained import make_tokenizer_file
from tests.training.tiny import model_config, runtime_params, train_params, workload
from tokenmill.core import paths
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.gpt import build
from tokenmill.model.manifest import WEIGHTS
from tokenmill.training.checkpoints.store import CheckpointStore
from tokenmill.training.history import EpochRow, RunState, StepRow, ValidationRow
from tokenmill.training.live import LIVE_RUN, LiveFiles

FINGERPRINT = "0123456789abcdef"
STEPS = [StepRow(step, step / 10, 5 - step / 10, 0.01, 1.0) for step in range(3, 19, 3)]
END = EpochRow(1, 10, 80, 0.01, 4.5, 4.25, 70.1, 2.0)


def begin(
    root: Path, folder: Path | None = None, *, fingerprint: str = FINGERPRINT, epochs: int = 1
) -> None:
    """Ten steps an epoch, two epochs, step 18: files in `folder`, checkpoints in `root`."""
    folder = folder or root
    (folder / paths.TOKENIZER).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(make_tokenizer_file(root.parent / "made", "bpe"), folder / paths.TOKENIZER)
    config = model_config(
        vocab_size=read_tokenizer(folder / paths.TOKENIZER).vocab_size, context_length=128
    )
    model = build(config, seed=1)
    store = CheckpointStore(root / ".resume" / fingerprint)
    ends = [END][:epochs]
    weights = [store.save_epoch(row.epoch, model)[WEIGHTS] for row in ends]
    state = RunState(
        step=15,
        steps=STEPS,
        epochs=ends,
        validations=[ValidationRow(15, 1.5, 3.75, 1.75)],
        epoch_weights=weights,
    )
    store.save(state, model, {}, {"epochs": 2, "schedule": {}})
    LiveFiles(folder / paths.LIVE).start(
        state,
        workload(train_params(epochs=2), steps_per_epoch=10),
        fingerprint=fingerprint,
        plan=[("model", "modern, 5,000 parameters"), ("device", "cpu")],
        cost=runtime_params(cost={"price_per_hour": 3.6}).cost,
    )


def stop(folder: Path, **values: str) -> None:
    """End that training; `values` are further ones of its run.json."""
    path = folder / paths.LIVE / LIVE_RUN
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"started": content["started"] + 1000} | values))
