"""params.yaml with other values: nothing else in it changes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.imports import ROOT
from tokenmill.core.errors import UserError
from tokenmill.core.params import read_yaml
from tokenmill.planning.params_file import apply_override, text_with
from tokenmill.planning.presets import read_preset

TEXT = (ROOT / "params.yaml").read_text(encoding="utf-8")


def value_at(content: dict[str, Any], name: str) -> Any:
    for key in name.split("."):
        content = content[key]
    return content


MIXTURES = [
    "  mixture:",
    "  mixture: {a: 2, b: 0.5}",
    "  mixture: {a: 2, # twice\n   'b # c': 1}",
    "  mixture:  # how often\n    a: 2 # twice\n\n    # half\n    b: 0.5\n  # the end",
    '  mixture: # how often\n  # really\n    "a # b": 2\n    c:',
]
"""`data.mixture` as one may write it."""

COMMENTS = [" #", "   # mine: [1, *x, &y", "\n# at the left", "\n        # 'deep\n"]


@st.composite
def made_params(draw: st.DrawFn) -> str:
    """A params.yaml with more comments, in any of the ways to write one."""
    lines = TEXT.splitlines()
    numbers = st.integers(0, len(lines) - 1)
    for number, comment in draw(st.lists(st.tuples(numbers, st.sampled_from(COMMENTS)))):
        lines[number] += comment
    text = "\n".join(lines).replace("  mixture:", draw(st.sampled_from(MIXTURES)))
    text = draw(st.sampled_from(["", "\ufeff", "---\n"])) + text
    text += draw(st.sampled_from(["\n", "", "\n...\n"]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


@given(text=made_params())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_comments_order_and_line_ends_stay(tmp_path: Path, text: str):
    path = tmp_path / "params.yaml"
    path.write_bytes(text.encode())
    values = read_preset("phase3").values | {"data.mixture": None, "data.raw": "/a # b"}
    wanted = read_yaml(path)
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        value_at(wanted, section)[key] = value
    after = text_with(values, path)
    path.write_bytes(after.encode())
    assert json.dumps(read_yaml(path)) == json.dumps(wanted), "with names in the same order"
    assert comments_of(after) == comments_of(text)
    assert after.count("\r") == (after.count("\n") if "\r" in text else 0)
    assert (after[:3], after[-3:]) == (text[:3], text[-3:])
    assert 0 <= len(text.splitlines()) - len(after.splitlines()) <= 5, "those of the mixture"


def comments_of(text: str) -> list[str]:
    """The comments of a YAML text, without the signs in its values."""
    for value in ("'/a # b'", "'b # c'", '"a # b"'):
        text = text.replace(value, "")
    return re.findall(r"#[^\r\n]*", text)


def test_a_value_that_is_repeated_elsewhere_is_refused(params: Path):
    """Another number of layers would change that of the heads, too."""
    text = TEXT.replace("n_layer: 4", "n_layer: &n 4").replace("n_head: 4", "n_head: *n")
    params.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"params\.yaml"):
        text_with({"model.n_layer": 9}, params)
    assert "n_head: 2\n" in text_with({"model.n_head": 2}, params)


def test_a_text_that_only_c_reads_is_refused_with_its_line(params: Path):
    """Its first line has blanks alone, and the last one is indented more than the one before."""
    params.write_text(f"mine: |\n \n  one\n   two\n{TEXT}", encoding="utf-8")
    assert read_yaml(params)["mine"] == "\none\n two\n"
    with pytest.raises(UserError, match=r"params\.yaml .*\(line 3\)"):
        text_with({"model.n_layer": 12}, params)


def test_a_params_yaml_that_is_no_yaml_is_refused(params: Path):
    params.write_text("model: [", encoding="utf-8")
    with pytest.raises(UserError, match=r"params\.yaml .*YAML"):
        text_with(read_preset("phase1").values, params)


def test_override_reads_numbers_as_params_yaml_does():
    content = {"train": {"learning_rate": "auto"}}
    apply_override(content, "train.learning_rate=6e-4")
    assert content == {"train": {"learning_rate": 0.0006}}


@pytest.mark.parametrize("value", ["2024-13-45", "[1", "9" * 5000, "0x" + "f" * 5000, "!!int ''"])
def test_an_override_that_is_no_yaml_is_refused(value: str):
    with pytest.raises(UserError, match=r"-S train\.seed=.* is not valid YAML"):
        apply_override({"train": {"seed": 0}}, f"train.seed={value}")
