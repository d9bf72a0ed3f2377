"""`tokenmill trace`: where a text stands in the training text, phrase by phrase."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.padding import Padding
from rich.text import Text

from tokenmill.cli.main import Parser, add_json, count
from tokenmill.core.errors import UserError
from tokenmill.display import console, note, print_blocks, print_columns, print_record, shortened
from tokenmill.words.units import counted

if TYPE_CHECKING:
    from tokenmill.evaluation.trace import Passage, Trace, TracedSpan

LONGEST_TEXT = 1 << 20
"""The most bytes that are read from a pipe."""

PHRASE_WIDTH = 100
"""The most columns that a phrase takes above its passages."""

EXAMPLES = """\
  tokenmill trace "The capital of France is Paris."          which phrases stand there
  tokenmill generate "Who wrote Hamlet?" | tokenmill trace   those of an answer
  tokenmill generate --trace "Who wrote Hamlet?"             the same in one
  cat essay.txt | tokenmill trace --words 8 --spans 3        the three rarest of eight words or more

A phrase is as long as can be: no word can be added to it. Rare ones come first. The stage `index`
makes what this reads.
"""


def add_arguments(parser: Parser) -> None:
    """Declare the text, and how much is shown of what is found."""
    parser.add_argument("text", nargs="?", metavar="TEXT", help="the text; without it, from a pipe")
    parser.add_argument(
        "--words",
        type=count,
        metavar="N",
        help="phrases of at least N words (default: trace.min_words in params.yaml)",
    )
    parser.add_argument(
        "--spans",
        type=count,
        default=10,
        metavar="N",
        help="show the N rarest phrases (default 10)",
    )
    parser.add_argument(
        "--passages", type=count, default=2, metavar="N", help="show N places of each (default 2)"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Trace the text, or what comes from stdin."""
    from tokenmill.evaluation.trace import Tracer

    text = options.text
    is_cut = False
    if text is None:
        if sys.stdin.isatty():
            raise UserError("trace needs a text, as an argument or from a pipe.")
        data = sys.stdin.buffer.read(LONGEST_TEXT + 1)
        is_cut = len(data) > LONGEST_TEXT
        text = data.decode("utf-8", "replace")
    if not text.strip():
        raise UserError("there is nothing to trace in an empty text.")
    text = as_cleaned(text)
    tracer = Tracer.of_project(Path(), min_words=options.words)
    trace = tracer.trace(text, passages=options.passages)
    if is_cut or len(trace.text) < len(tracer.tokenizer.known(text)):
        note(f"only the first {len(trace.text):,} characters of the text were searched")
    if options.json:
        print_record(trace.model_dump())
    else:
        print_trace(trace, spans=options.spans)


def as_cleaned(text: str) -> str:
    """A text that somebody types as `clean` writes it in the project in the current folder; outside
    a project, or if nothing would be left of it, as it stands."""
    from tokenmill.core.params import typed_mode

    is_clean = text.isascii() and text.isprintable() and "  " not in text
    if is_clean or (mode := typed_mode(Path())) == "none":
        return text
    from tokenmill.normalize import normalize_typed

    cleaned = normalize_typed(text, mode)
    return cleaned if cleaned.strip() else text


def print_trace(trace: "Trace", *, spans: int, out: TextIO | None = None) -> None:
    """Print the text with its phrases underlined, then the rarest ones with their passages."""
    screen = console(out)
    pieces = [(text, "underline" if span else "") for text, span in trace.pieces()]
    print_blocks([Text.assemble(*pieces), Text(_summary(trace), style="dim")], screen)
    for number, span in enumerate(trace.spans[:spans], start=1):
        passages = [Padding(_marked(one), (0, 0, 0, 4)) for one in span.passages]
        phrase = shortened(trace.text[span.start : span.stop], PHRASE_WIDTH)
        print_blocks([Text()], screen)
        print_columns([(f"{number:2}", f"{phrase}  ({_frequency(span)})")], out=out)
        print_blocks(passages, screen)
    if len(trace.spans) > spans:
        left = counted(len(trace.spans) - spans, "more phrase")
        print_blocks([Text(f"\n{left}: --spans N shows them", style="dim")], screen)


def _summary(trace: "Trace") -> str:
    if not trace.spans:
        return "no phrase of it stands in the training text"
    return (
        f"{trace.copied:,} of {counted(trace.words, 'word')} stand in the training text, "
        f"in {counted(len(trace.spans), 'phrase')}"
    )


def _frequency(span: "TracedSpan") -> str:
    places = counted(span.count, "place")
    if span.documents != span.count:
        places += f" in {counted(span.documents, 'document')}"
    return f"{counted(span.words, 'word')}, {places}"


def _marked(passage: "Passage") -> Text:
    where = f"{passage.source}, document {passage.document:,}: "
    shown = [" ".join(part.split()) for part in (passage.before, passage.text, passage.after)]
    before = f"{shown[0]} " if passage.before[-1:].isspace() else shown[0]
    after = f" {shown[2]}" if passage.after[:1].isspace() else shown[2]
    return Text.assemble((where, "dim"), before, (shown[1], "bold"), after)
