"""The code keeps its shape; `python -m tests.structure` prints the figures."""

from tests import structure


def test_no_folder_is_a_corridor():
    folder, files = structure.largest_folder()
    assert files <= 20, f"{folder} has {files} modules; divide it into folders"


def test_functions_are_short():
    assert not structure.long_functions()


def test_names_of_tests_are_short():
    assert not structure.long_test_names()
