"""What is in a folder."""

from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of its files by their names."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
