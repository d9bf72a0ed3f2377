"""What the documents name is there, and what is there they name."""

import itertools
import json
import re
import tomllib
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


@pytest.mark.parametrize(
    ("document", "heading"), [("reliability.md", "Licences"), ("decisions.md", "Dependencies")]
)
def test_every_package_is_named(document: str, heading: str) -> None:
    page = (ROOT / "docs" / document).read_text(encoding="utf-8")
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = itertools.chain(*project["optional-dependencies"].values())
    wanted = [*project["dependencies"], *extras]
    packages = {re.split(r"[^\w.-]", requirement)[0] for requirement in wanted} - {"tokenmill"}
    assert packages <= set(re.findall(r"\w[\w.-]*\w", section))


def commented() -> dict[str, str]:
    """The comment behind each value of params.yaml, by the parameter's name."""
    found, names = dict[str, str](), list[str]()
    for line in (ROOT / "params.yaml").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"( *)(\w+):[^#]*(?:# (.*))?", line):
            indent, name, comment = match.groups()
            names[len(indent) // 2 :] = [name]
            found[".".join(names)] = comment or ""
    return found


def test_a_comment_lists_every_choice_of_its_parameter() -> None:
    page = (ROOT / "docs/parameters.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `([\w.]+)` \| [^|]* \| (`[\w-]+`(?:, `[\w-]+`)+) \|", page, re.MULTILINE
    )
    choices = {name: " | ".join(re.findall(r"[\w-]+", cell)) for name, cell in rows}
    comments = commented()
    assert {"model.architecture", "train.optimizer"} <= choices.keys()
    assert {name: re.split("[:;]", comments[name])[0] for name in choices} == choices


@pytest.mark.parametrize(
    "file", sorted(set(ROOT.glob("metrics/*.json")) - {ROOT / "metrics/benchmarks.json"})
)
def test_every_metric_has_a_meaning(file: Path) -> None:
    families = r"^(dropped|sampled_language)_.*"
    names = {re.sub(families, r"\1_…", name) for name in json.loads(file.read_bytes())}
    page = (ROOT / "docs/comparing.md").read_text(encoding="utf-8")
    first_cells = " ".join(re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE))
    assert names <= set(re.findall(r"`([^`]+)`", first_cells))
