"""Where artefacts are, relative to the root of a project. The paths are the same in the work tree,
in every revision, and in dvc.yaml."""

import os
from pathlib import Path

CHECKED = Path("data/checked.txt")
SAMPLE = Path("data/raw/sample")
PROMPTS_FILE = "prompts.yaml"
"""The name of the file of prompts directly in the folder `data.raw`, for any corpus. With
`evaluate.prompts: auto` the models answer these prompts."""

CLEAN = Path("data/clean")
CLEAN_REPORT = Path("data/clean_report.json")
TOKENIZER = Path("data/tokenizer/tokenizer.json")
PACKED = Path("data/packed")
TOKENS = Path("data/tokens")

MODEL = Path("models/gpt")
STARTS = Path("models/start")
"""The folder in which `tokenmill import` puts each model to start from, in a folder of its own that
DVC tracks."""

FINETUNED = Path("models/finetuned")
MODELS = MODEL.parent

LIVE = Path("live")

METRICS = Path("metrics")
TRAIN_METRICS = METRICS / "train.json"
HISTORY = METRICS / "history.csv"
FINETUNED_METRICS = METRICS / "finetuned"

REPORTS = Path("reports")
EVALUATION = Path("reports/evaluation.json")
SAMPLES = Path("reports/samples.md")
FINETUNED_REPORT = Path("reports/finetuned.md")
HELD_OUT = Path("reports/finetuned_held_out.json")
"""Chats that `finetune` did not learn from, for `evaluate_finetuned` to ask."""
DATA_REPORT = Path("reports/data.html")
RUN_REPORT = Path("reports/index.html")


def resume_root() -> Path:
    """The folder `.resume` of the main repository. DVC may run a stage in a temporary copy; there
    it sets DVC_ROOT to the main repository."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".resume"
