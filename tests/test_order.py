"""The order of the tests."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.imports import ROOT


def order(config: pytest.Config, seed: int | None) -> list[tuple[Path, int]]:
    """Nine tests of each of some files, in the order in which they would run."""
    items = [
        SimpleNamespace(path=ROOT / f"tests/{path}.py", number=number, get_closest_marker={}.get)
        for path in ("a/a", "a/b", "a/c", "b/a", "b/b", "c/a", "d/a")
        for number in range(9)
    ]
    settings = config.pluginmanager.get_plugin(str(ROOT / "tests/conftest.py"))
    asked = SimpleNamespace(getoption={"seed": seed}.get)
    settings.pytest_collection_modifyitems(asked, items)  # type: ignore[attr-defined]
    return [(item.path, item.number) for item in items]


def test_a_seed_shuffles_folders_files_and_the_tests_of_each(pytestconfig: pytest.Config) -> None:
    plain, shuffled = order(pytestconfig, None), order(pytestconfig, 7)
    assert plain == sorted(plain)
    assert sorted(shuffled) == plain
    assert shuffled == order(pytestconfig, 7)
    files = [path for path, _ in itertools.groupby(path for path, _ in shuffled)]
    folders = [folder for folder, _ in itertools.groupby(path.parent for path in files)]
    numbers = [number for _, number in shuffled[:9]]
    for found, count in ((folders, 4), (files, 7), (numbers, 9)):
        assert len(found) == len({*found}) == count
        assert found != sorted(found)
