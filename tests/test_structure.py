"""The code keeps its shape: no number in the table of `python -m tests.structure` may grow."""

import pytest

from tests import structure
from tests.imports import ROOT

# Upper bounds with a little room; lower them as the code shrinks. The marks are in
# tests/structure.py.
MODULES, LINES, STEP_MODULES, ANSWER_MODULES = 109, 20_703, 10, 12


def test_library_has_few_modules():
    assert len(structure.modules()) <= MODULES


def test_library_has_few_lines():
    assert structure.lines(*structure.modules()) <= LINES


def test_no_folder_is_a_corridor():
    folder, files = structure.largest_folder()
    assert files <= 20, folder


def test_functions_are_short():
    assert not structure.long_functions()


def test_names_of_tests_are_short():
    assert not structure.long_test_names()


def test_training_step_imports_few_modules():
    found = structure.training_step_modules()
    assert len(found) <= STEP_MODULES, found


def test_one_answer_passes_few_modules():
    found = structure.answer_modules()
    assert len(found) <= ANSWER_MODULES, found


def test_pipeline_and_readme_are_short():
    assert structure.pipeline_lines() <= 160
    assert structure.lines(ROOT / "README.md") <= 250


@pytest.mark.parametrize(("text", "expected"), [("a\nb\n", 2), ("a", 1), ("", 0)])
def test_lines_are_counted_with_or_without_a_last_line_end(text: str, expected: int, tmp_path):
    (tmp_path / "a.txt").write_text(text)
    assert structure.lines(tmp_path / "a.txt") == expected
