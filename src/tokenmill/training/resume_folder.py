"""Names in `.resume/`, the place for checkpoints, for those who look into it without loading PyTorch."""

import os
from pathlib import Path

RESUME_FOLDER = ".resume"
STEP = "step-"


def resume_root() -> Path:
    """The one place for checkpoints of all the ways DVC runs a stage: DVC_ROOT is the main repository in each."""
    return Path(os.environ.get("DVC_ROOT", ".")) / RESUME_FOLDER


def checkpoint_name(step: int) -> str:
    """The folder of a step's checkpoint; names sort as steps do."""
    return f"{STEP}{step:09d}"


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps that a configuration's folder has checkpoints of, whole or not, in order."""
    return sorted(int(path.name.removeprefix(STEP)) for path in folder.glob(f"{STEP}*"))
