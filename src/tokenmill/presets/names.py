"""The names of the presets; apart from their values, for every command line begins with them."""

from pathlib import Path

FOLDER = Path(__file__).parent
DEFAULT = "default"


def names() -> list[str]:
    """All there are, in the order of their size."""
    order = [DEFAULT, "phase1", "phase2", "phase3", "modern-124m", "gpt2-medium"]
    return sorted((path.stem for path in FOLDER.glob("*.yaml")), key=order.index)
