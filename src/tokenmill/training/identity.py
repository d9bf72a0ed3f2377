"""What decides the numbers of a run, and its fingerprint: two runs have the same one if one can
continue from the other's checkpoints.

`.resume/<fingerprint>/identity.json` keeps it, so that another version of TokenMill can say why it
does not continue such a run.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from tokenmill.core.errors import UserError
from tokenmill.core.params import Epochs, dotted
from tokenmill.core.paths import step_folders
from tokenmill.formats.records import read_record
from tokenmill.model.config import ModelConfig
from tokenmill.training.params import TrainParams

NUMERICS_VERSION = 13
"""The version of what a step computes, raised by hand when a change of the code changes it.
Checkpoints of other versions are not continued."""

IDENTITY = "identity.json"
"""The name of the file in a run's folder."""


class ResumableSchedule(BaseModel):
    """The part of `train.schedule` that a run may change."""

    horizon_epochs: Epochs | None


class Resumable(BaseModel):
    """The parameters of `train` that a run may change and still continue from its checkpoints;
    `find_checkpoint` decides from which one."""

    epochs: Epochs
    schedule: ResumableSchedule
    validate_every_steps: int | None
    early_stopping: int | None
    target_loss: float | None


RESUMABLE_KEYS: dict[str, Any] = dict.fromkeys(Resumable.model_fields, True) | {
    "schedule": set(ResumableSchedule.model_fields)
}
"""The names of these parameters, in the form of pydantic's argument `include`."""

Identity = dict[str, Any]
"""What decides the numbers of a run, as JSON holds it: the version `numerics` of what a step
computes, `model`, the parameters in `train` that a run may not change, the hashes in `tokens` of
the two splits, and whatever else does."""


def identity_of(
    model: ModelConfig, train: TrainParams, text: dict[str, str], **more: object
) -> Identity:
    """The identity of a run on a text with these hashes; `more` is what else decides its
    numbers."""
    content = {
        "numerics": NUMERICS_VERSION,
        "model": model.model_dump(),
        "train": train.model_dump(exclude=RESUMABLE_KEYS),
        "tokens": text,
    }
    return to_jsonable_python(content | more)


def fingerprint(identity: Identity) -> str:
    """Sixteen hexadecimal digits that follow from an identity, and name the run's folder."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def read_identity(folder: Path) -> Identity:
    """The identity of the run in a folder of checkpoints; empty if the folder does not tell."""
    try:
        return read_record(folder / IDENTITY, Identity, way_out="it is not used")
    except (UserError, OSError):
        return {}


def run_of_other_version(root: Path, identity: Identity) -> str:
    """A sentence about a run in `root` that has checkpoints and is that of `identity`, but by a
    version of TokenMill with other numerics or other parameters. Empty if there is none."""
    own = dict(dotted(identity))
    for folder in sorted(root.glob("*/")):
        steps, found = step_folders(folder), dict(dotted(read_identity(folder)))
        others = sorted(own.keys() ^ found.keys())
        changed = {name for name in own.keys() & found.keys() if own[name] != found[name]}
        is_same = changed <= {"numerics"} and all(
            name.startswith(("model.", "train.")) for name in others
        )
        if steps and is_same and (others or changed):
            newest, checkpoint = steps[-1]
            why = "whose steps computed other numbers"
            if others:
                why = f"whose parameters were others ({', '.join(others)})"
            return (
                f"{checkpoint} is step {newest:,} of this run by another version of TokenMill, "
                f"{why}; only a checkout of that version continues it"
            )
    return ""
