"""What the documents name is there."""

import re
from pathlib import Path

import pytest

from tests.imports import ROOT, SOURCE

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "bench/README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/*.md")),
]
EXAMPLES = {"utils.py", "stages/NAME.py"}


def quoted(document: Path) -> set[str]:
    """What stands between backticks in the lines of prose and tables."""
    return set(re.findall(r"`([^`\n]+)`", document.read_text(encoding="utf-8")))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_files_of_code_that_are_named_exist(document: Path) -> None:
    named = {
        word for text in quoted(document) for word in re.findall(r"(?<![\w*}])[\w/]+\.py\b", text)
    }
    places = [
        ROOT,
        document.parent,
        ROOT / "src",
        SOURCE,
        ROOT / "tests",
        *(path for path in SOURCE.iterdir() if path.is_dir()),
    ]
    assert not {
        name for name in named - EXAMPLES if not any((place / name).exists() for place in places)
    }
