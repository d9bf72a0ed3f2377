"""Where a text comes from: its spans that stand in the training text, each with the passages around
it; and what of the fixed prompts and of the validation text stands there."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokenmill.core.params import PARAMS_FILE, Section, load
from tokenmill.core.paths import INDEX, TOKENIZER, TOKENS, VALIDATION_DOCUMENTS, damaged
from tokenmill.evaluation.results import Evaluation
from tokenmill.formats.chat import readable
from tokenmill.formats.measured import measured_text
from tokenmill.formats.records import rounded
from tokenmill.formats.token_file import read_metadata
from tokenmill.formats.token_index import open_index
from tokenmill.formats.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.tokens.overlap import Overlap
from tokenmill.tokens.params import TraceParams
from tokenmill.tokens.search import MatchingSpan, Search

if TYPE_CHECKING:
    import polars as pl

PASSAGE_CHARS = 80
"""The most characters of training text that a passage shows on either side of a span."""

MOST_PASSAGES = 2
"""The most passages of a span in a report."""

MOST_TOKENS = 20_000
"""The most tokens of a text whose spans are searched."""

MOST_DOCUMENTS = 1_000
"""The most documents that have a prompt and are read for its expected text. Of more, so many are
read at even distances."""

MOST_OVERLAPS = 5
"""The most overlaps of validation text with training text that are kept."""


class Passage(Section):
    """A place of the training text at which a span stands."""

    source: str
    """The file, relative to `data.raw`."""
    document: int
    """The number of the document among those of the training text, from 1."""
    before: str
    """What stands before the span in its document; it begins with `…` if more does."""
    text: str
    """The span."""
    after: str
    """What stands behind it; it ends with `…` if more does."""


class TracedSpan(Section):
    """A part of a text that stands in the training text, and that no word can be added to."""

    start: int
    """Its first character in the text."""
    stop: int
    """The character behind its last one."""
    words: int
    count: int
    """How often it stands in the training text."""
    documents: int
    """In how many documents."""
    passages: list[Passage]


class Trace(Section):
    """A text, and what of it stands in the training text."""

    text: str
    words: int
    copied: int
    """The number of words that lie in spans."""
    spans: list[TracedSpan]
    """The spans, the least frequent first."""

    def pieces(self) -> list[tuple[str, int]]:
        """The text in pieces, each with the number of its span in `spans`, counted from 1; 0 for
        what is in none. Where spans overlap, the rarer one has it."""
        owner = np.zeros(len(self.text), dtype=np.int64)
        for number in range(len(self.spans), 0, -1):
            owner[self.spans[number - 1].start : self.spans[number - 1].stop] = number
        edges = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), len(self.text)]
        return [
            (self.text[start:stop], int(owner[start]))
            for start, stop in itertools.pairwise(edges)
            if start < stop
        ]


class PromptTrace(Section):
    """What of a fixed prompt and its last answer stands in the training text."""

    prompt_documents: int
    """In how many documents of the training text all words of the prompt stand in a row."""
    is_known: bool | None
    """Whether one of them has the expected text, too; None if none is expected, or if they are more
    than MOST_DOCUMENTS and none that was read has it."""
    answer: Trace
    """The answer that the report shows first, at the last epoch."""


class Traces(Section):
    """What the last answers, the prompts and the validation text share with the training text."""

    min_words: int
    overlap_words: int
    prompts: list[PromptTrace]
    """One for each fixed prompt, in order."""
    validation_documents: int
    """The documents on which the validation loss is measured."""
    overlapping_documents: int
    """Those of them with `overlap_words` words in a row that stand in the training text, whatever
    white space is between them."""
    overlaps: list[TracedSpan]
    """The longest of these passages."""
    clean_bits_per_byte: float | None
    """The loss of the last epoch on the other documents; None if there are none, or too many to
    know the loss of each."""

    @property
    def known(self) -> tuple[int, int]:
        """The prompts that stand in the training text together with their expected text, and all of
        which it is known whether they do."""
        found = [prompt.is_known for prompt in self.prompts if prompt.is_known is not None]
        return found.count(True), len(found)

    def metrics(self) -> dict[str, float]:
        """The contents of `metrics/trace.json`."""
        words = sum(prompt.answer.words for prompt in self.prompts)
        copied = sum(prompt.answer.copied for prompt in self.prompts)
        shares = {
            "answers_copied": (copied, words),
            "expected_in_training": self.known,
            "validation_overlap": (self.overlapping_documents, self.validation_documents),
        }
        found = {name: rounded(part / whole) for name, (part, whole) in shares.items() if whole}
        if self.clean_bits_per_byte is not None:
            found["clean_bits_per_byte"] = rounded(self.clean_bits_per_byte)
        return found


@dataclass(frozen=True)
class Tracer:
    """Traces texts to the training text of one project."""

    search: Search
    min_words: int

    @classmethod
    def open(cls, index: Path, tokens: Path, tokenizer_file: Path, *, min_words: int) -> "Tracer":
        """Open the index, the training text and its tokenizer, which must belong together."""
        tokenizer = read_tokenizer(tokenizer_file)
        read_metadata(tokens).check_tokenizer(tokenizer.sha256, str(tokenizer_file))
        return cls(Search(open_index(index, tokens), tokenizer), min_words)

    @classmethod
    def of_project(cls, root: Path, *, min_words: int | None = None) -> "Tracer":
        """Open those of the project at `root`. Without `min_words` its `trace.min_words` counts."""

        class Params(Section):
            trace: TraceParams

        least = min_words or load(Params, root / PARAMS_FILE).trace.min_words
        places = (root / place for place in (INDEX, TOKENS, TOKENIZER))
        return cls.open(*places, min_words=least)

    @property
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer of the training text."""
        return self.search.tokenizer

    def trace(self, text: str, *, passages: int = MOST_PASSAGES) -> Trace:
        """Trace a text. What the tokenizer does not know of it, and what is beyond MOST_TOKENS, is
        left out.

        Args:
            text: a text without marks of turns.
            passages: the most passages for each span.
        """
        ids = self._encode(text)[:MOST_TOKENS]
        spans = self.search.spans(ids, min_words=self.min_words)
        chars = np.append(0, np.cumsum(self.search.chars[np.array(ids, dtype=np.int64)]))
        traced = [
            self._traced(span, ids[span.start : span.stop], int(chars[span.start]), passages)
            for span in spans
        ]
        starts = self._words(ids)
        copied = np.zeros(len(ids), dtype=np.bool_)
        for span in spans:
            copied[span.start : span.stop] = True
        return Trace(
            text=self.search.text_of(ids),
            words=len(starts),
            copied=int(copied[starts].sum()),
            spans=sorted(traced, key=lambda span: (span.count, span.start)),
        )

    def prompt(self, prompt: str, expect: str | None, answer: str) -> PromptTrace:
        """Trace a prompt, as `clean` writes it, and the answer to it."""
        ids = self._encode(prompt)
        spans = self.search.spans(ids, min_words=max(len(self._words(ids)), 1))
        documents = sorted({number for span in spans for number in span.documents.tolist()})
        return PromptTrace(
            prompt_documents=len(documents),
            is_known=None if expect is None else self._have(documents, expect),
            answer=self.trace(answer),
        )

    def _have(self, documents: Sequence[int], expect: str) -> bool | None:
        """Whether one of the documents has a text; None if there are too many to know."""
        read = documents[:: max(1, math.ceil(len(documents) / MOST_DOCUMENTS))]
        found = any(expect in self._shown(*self._bounds(number)) for number in read)
        return None if not found and len(read) < len(documents) else found

    def shared(self, texts: Sequence[str], min_words: int) -> tuple[np.ndarray, list[TracedSpan]]:
        """See `overlap`; of texts as they are typed."""
        ids = [token for text in texts for token in [*self._encode(text), self.tokenizer.eot_id]]
        return self.overlap(np.array(ids), min_words)

    def overlap(self, ids: np.ndarray, min_words: int) -> tuple[np.ndarray, list[TracedSpan]]:
        """Whether each document has `min_words` words in a row that stand in the training text,
        whatever white space is between them, (documents,) bool; and the longest of these passages.

        Args:
            ids: documents, each followed by end-of-text.
            min_words: the fewest words of a passage.
        """
        overlap = Overlap(self.search, ids, min_words)
        ends = np.flatnonzero(ids == self.tokenizer.eot_id)
        overlaps = np.zeros(len(ends), dtype=np.bool_)
        overlaps[np.searchsorted(ends, overlap.starts)] = True
        traced = [
            self._traced(span, ids[span.start : span.stop].tolist(), 0, 1)
            for span in overlap.passages(MOST_OVERLAPS)
        ]
        return overlaps, traced

    def _traced(
        self, span: MatchingSpan, ids: Sequence[int], before: int, passages: int
    ) -> TracedSpan:
        """A span with its passages.

        Args:
            span: the span.
            ids: its tokens.
            before: the number of characters in front of it.
            passages: the most passages.
        """
        whole = self.search.text_of(ids)
        start = before + len(whole) - len(whole.lstrip())
        return TracedSpan(
            start=start,
            stop=before + len(whole),
            words=span.words,
            count=span.count,
            documents=len(span.documents),
            passages=[self._passage(*place) for place in span.places[:passages].tolist()],
        )

    def _passage(self, first: int, behind: int) -> Passage:
        number = int(self.search.index.document_of(np.array(first)))
        begin, end = self._bounds(number)
        text = self._shown(first, behind)
        gap = text[: len(text) - len(text.lstrip())]
        # A token has one byte at least, a character four at most
        before = self._shown(max(begin, first - 4 * PASSAGE_CHARS), first)
        after = self._shown(behind, min(end, behind + 4 * PASSAGE_CHARS))
        return Passage(
            source=self.search.index.source_of(number),
            document=number + 1,
            before=_last_words(before.lstrip("\n")) + gap,
            text=text.lstrip(),
            after=_first_words(after),
        )

    def _words(self, ids: Sequence[int]) -> np.ndarray:
        """The first token of each word that is not signs."""
        tokens = np.array(ids, dtype=np.int64)
        words = self.search.words
        return np.flatnonzero(words.starts(tokens) & words.counted(tokens))

    def _encode(self, text: str) -> list[int]:
        """The tokens of a text, without characters that the tokenizer does not know."""
        return self.tokenizer.encode(self.tokenizer.known(text))

    def _bounds(self, document: int) -> tuple[int, int]:
        """The first token of a document, and its end-of-text."""
        firsts = self.search.index.documents
        is_last = document + 1 == len(firsts)
        end = len(self.search.index.tokens) if is_last else int(firsts[document + 1])
        return int(firsts[document]), end - 1

    def _shown(self, first: int, behind: int) -> str:
        """A part of a document as people see it, with the white space at its ends."""
        tokens = self.search.index.tokens[first:behind].tolist()
        return readable(f".{self.tokenizer.decode_document(tokens)}.")[1:-1]


def _last_words(text: str) -> str:
    """The last words of a text, or its characters without spaces; at most PASSAGE_CHARS."""
    if len(text) <= PASSAGE_CHARS:
        return text
    cut = text[-PASSAGE_CHARS:]
    return f"… {cut.partition(' ')[2] or cut}"


def _first_words(text: str) -> str:
    """The first words of a text, or its characters without spaces; at most PASSAGE_CHARS."""
    if len(text) <= PASSAGE_CHARS:
        return text
    cut = text[:PASSAGE_CHARS]
    return f"{cut.rpartition(' ')[0] or cut} …"


class TracesFile(Section):
    """The contents of `reports/answer_traces.json`."""

    traces: Traces | None
    """None if the training text has no index."""


def trace_evaluation(
    evaluation: Evaluation,
    prompts: Sequence[str],
    documents: "pl.DataFrame",
    tracer: Tracer,
    *,
    tokens: Path,
    tokenizer_file: Path,
    overlap_words: int,
    validation_bytes: int | None,
) -> Traces:
    """Trace the answers of the last epoch, the prompts, and the validation text that the losses are
    measured on.

    Args:
        evaluation: the answers of every epoch.
        prompts: the prompts of its questions, as `clean` writes them.
        documents: the loss of each validation document (evaluation/document_losses.py).
        tracer: for the training text of `tokens`.
        tokens: what `unpack` wrote, `data/tokens`.
        tokenizer_file: the tokenizer of these tokens.
        overlap_words: words in a row by which a document counts as overlapping.
        validation_bytes: as for the losses; None for the whole of the validation text.
    """
    last = evaluation.epochs[-1]
    answers = zip(evaluation.questions, prompts, last.answers, strict=True)
    val = measured_text(tokens, "val", tokenizer_file, at_most=validation_bytes).ids[1:]
    overlaps, passages = tracer.overlap(val, overlap_words)
    return Traces(
        min_words=tracer.min_words,
        overlap_words=overlap_words,
        prompts=[
            tracer.prompt(prompt, question.expect, question.in_order(answer)[0])
            for question, prompt, answer in answers
        ],
        validation_documents=len(overlaps),
        overlapping_documents=int(overlaps.sum()),
        overlaps=passages,
        clean_bits_per_byte=_bits_per_byte(
            documents.filter(documents["epoch"] == last.epoch), ~overlaps
        ),
    )


def _bits_per_byte(documents: "pl.DataFrame", chosen: np.ndarray) -> float | None:
    """The loss on some of the measured documents.

    Args:
        documents: the loss of each; none if there are too many.
        chosen: whether to count each of them; (documents,) bool.
    """
    if documents.is_empty():
        return None
    if len(documents) != len(chosen):
        raise damaged(
            VALIDATION_DOCUMENTS,
            f"has {len(documents):,} documents, the measured text {len(chosen):,}",
        )
    sums = documents.filter(chosen).select("loss", "bytes").sum()
    size = sums["bytes"].item()
    return sums["loss"].item() / (math.log(2) * size) if size else None
