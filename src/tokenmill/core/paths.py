"""Where artefacts are, relative to the root of a project: the same in the work tree, in every
revision, in dvc.yaml."""

import os
from pathlib import Path

CHECKED = Path("data/checked.txt")
SAMPLE = Path("data/raw/sample")
PROMPTS_FILE = "prompts.yaml"
"""Directly in the folder `data.raw`, of any corpus: what `evaluate.prompts: auto` asks."""

CLEAN = Path("data/clean")
CLEAN_REPORT = Path("data/clean_report.json")
TOKENIZER = Path("data/tokenizer/tokenizer.json")
PACKED = Path("data/packed")
TOKENS = Path("data/tokens")

MODEL = Path("models/gpt")
STARTS = Path("models/start")
"""Where `tokenmill import` puts models to start from, each in a folder of its own that DVC
tracks."""

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
    """`.resume` in the main repository, also where DVC runs a stage in a temporary copy (it sets
    DVC_ROOT)."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".resume"
