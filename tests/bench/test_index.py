"""The benchmark of the index measures a project's index, and says that infini-gram is missing."""

import importlib.util
import json
from pathlib import Path

import pytest

from bench.data.project import make_project
from tests.bench.conftest import Bench
from tests.tokens.clean_text import PROSE, write_clean
from tests.tokens.packing import pack_here
from tokenmill.tokens.params import TokenizeParams, TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer
from tokenmill.tokens.unpack import unpack

TAIL = TokenizeParams(split="tail", val_fraction=0.3)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_jobs")
def test_making_and_asking_are_measured(bench: Bench, tmp_path: Path) -> None:
    project = tmp_path / "project"
    make_project(project, Path("raw"), {"tokenize": TAIL.model_dump()})
    data = project / "data"
    clean = write_clean(data / "clean", PROSE)
    tokenizer = data / "tokenizer/tokenizer.json"
    params = TokenizerParams(type="bpe", vocab_size=300, sample_bytes=10**6)
    train_tokenizer(clean, tokenizer, params)
    pack_here(clean, tokenizer, data / "packed", TAIL)
    unpack(data / "packed", data / "tokens")
    bench("index", "--project", project, "--json", tmp_path / "f.json")
    jobs = json.loads((tmp_path / "f.json").read_text())["jobs"]
    assert jobs["index"]["bytes"] == sum(path.stat().st_size for path in (data / "index").iterdir())
    contenders = {"TokenMill"}
    if importlib.util.find_spec("infini_gram"):
        contenders.add("infini-gram")
    else:
        assert jobs["infini-gram index"]["missing"] == "infini_gram"
    for kind, took in jobs["queries"]["ms"].items():
        assert set(took) == contenders
        assert len(took["TokenMill"]["clock"]) == 50
        assert took["TokenMill"]["spans"] > 0 or kind == "mixed"


@pytest.mark.slow
@pytest.mark.usefixtures("forked_jobs")
def test_a_small_vocabulary_has_an_index_too(bench: Bench, tmp_path: Path) -> None:
    """Its tokens are short, so the text has more of them than were asked for."""
    asked = 20_000
    bench("index", "--tokens", str(asked), "--vocabulary", "300", "--json", tmp_path / "f.json")
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures["text"]["tokens"] > 2 * asked
    assert figures["jobs"]["index"]["bytes"] > 0
