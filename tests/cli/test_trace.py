"""`tokenmill trace` and `generate --trace`: phrases of a text in the training text of a project."""

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.project import Project
from tokenmill.cli.main import main

QUESTION = "What is the capital of France?"
PASSAGE = re.compile(r"^    train\.jsonl, document [\d,]+: .*capital of France", re.MULTILINE)


@pytest.fixture
def typed(
    finished_template: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    """What a command in a finished project, which it only reads, says on stdout and on stderr."""
    monkeypatch.chdir(finished_template)

    def run(*arguments: str, stdin: bytes = b"") -> tuple[str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        main([*arguments])
        said = capsys.readouterr()
        return said.out, said.err

    return run


Typed = Callable[..., tuple[str, str]]


@pytest.mark.slow
def test_phrases_are_shown_with_their_passages(typed: Typed):
    for arguments, stdin in ((["trace", QUESTION], b""), (["trace"], QUESTION.encode())):
        out, _ = typed(*arguments, stdin=stdin)
        assert out.startswith(f"{QUESTION}\n6 of 6 words")
        assert PASSAGE.search(out)


@pytest.mark.slow
def test_an_answer_goes_to_stdout_and_its_trace_to_stderr(typed: Typed):
    arguments = ("generate", "--temperature", "0", QUESTION)
    plain, _ = typed(*arguments)
    traced, notes = typed(*arguments, "--trace")
    assert traced == plain
    assert plain.strip() in notes
    assert "stand" in notes


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_is_refused(text: str, typed: Typed):
    with pytest.raises(SystemExit):
        typed("trace", text)
    with pytest.raises(SystemExit):
        typed("trace", stdin=text.encode())


@pytest.mark.slow
def test_a_text_that_is_too_long_has_no_traces(
    finished: Project, typed: Typed, monkeypatch: pytest.MonkeyPatch
):
    """The report says so, and the command names the parameter."""
    monkeypatch.chdir(finished.root)
    finished.set(trace__max_tokens=10)
    finished.repro("-s", "index", "trace", "report")
    assert "trace.max_tokens" in (finished.root / "reports/index.html").read_text()
    with pytest.raises(SystemExit) as refused:
        typed("trace", QUESTION)
    assert "trace.max_tokens" in str(refused.value)


@pytest.mark.slow
def test_a_typed_text_is_traced_as_clean_writes_it(typed: Typed):
    out, _ = typed("trace", "What is the\xa0capital of France\u200b?")
    assert out.startswith(f"{QUESTION}\n6 of 6 words")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["evaluation.trace.MOST_TOKENS", "cli.trace.LONGEST_TEXT"])
def test_how_much_of_a_long_text_is_searched_is_said(
    place: str, typed: Typed, monkeypatch: pytest.MonkeyPatch
):
    assert "only" not in typed("trace", stdin=QUESTION.encode())[1]
    monkeypatch.setattr(f"tokenmill.{place}", 4)
    out, notes = typed("trace", "--json", stdin=QUESTION.encode())
    searched = json.loads(out)["text"]
    assert QUESTION.startswith(searched)
    assert f"only the first {len(searched)} characters" in notes
