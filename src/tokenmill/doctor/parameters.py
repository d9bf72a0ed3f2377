"""params.yaml and the text that it names."""

from pathlib import Path

from tokenmill.doctor.finding import Finding, ok, problem, warning
from tokenmill.documents.sources import Found, find
from tokenmill.errors import UserError
from tokenmill.params import PARAMS_FILE
from tokenmill.schema import AllParams, check_all

BUILT_IN = "data/raw/sample"
"""What the stage `sample` writes."""
BUILT_IN_BYTES = 125
"""Of a conversation in it, about."""


def check_params(root: Path) -> tuple[Finding, AllParams | None]:
    """Whether every value is one that the pipeline takes, and the values."""
    try:
        params = check_all(root / PARAMS_FILE)
    except UserError as error:
        return problem(
            "parameters", str(error), f"edit {PARAMS_FILE} as it says (`tokenmill params` explains each)"
        ), None
    return ok("parameters", f"{PARAMS_FILE} is valid"), params


def check_raw(root: Path, params: AllParams) -> tuple[Finding, Found | None]:
    """Whether there is text to read, and the files."""
    raw = params.data.raw
    if raw == BUILT_IN and not (root / raw).exists():
        return ok("text", f"the built-in {params.sample.conversations:,} conversations, made by the first stage"), None
    try:
        found = find(root / raw)
    except UserError as error:
        return problem("text", str(error), "dvc exp run -S data.raw=/path/to/texts"), None
    size = f"{sum(source.size for source in found.sources):,} bytes"
    text = f"{raw}: {len(found.sources):,} files, {size}"
    if not Path(raw).is_absolute() and not (root / raw).resolve().is_relative_to(root.resolve()):
        mend = f"dvc exp run -S data.raw={(root / raw).resolve()}"
        return warning("text", f"{text}; queued and --temp runs do not find a relative path outside", mend), found
    return ok("text", text), found
