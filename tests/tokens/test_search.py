"""The spans of a text that stand in the training text are those that a search of the text itself
finds, and the index is the same however it is made."""

import functools
import itertools
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokens.clean_text import write_clean
from tests.tokens.packing import index_here
from tokenmill.formats.chat import render_chat
from tokenmill.formats.token_index import open_index
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.tokens import index as index_module
from tokenmill.tokens import overlap as overlap_module
from tokenmill.tokens import search as search_module
from tokenmill.tokens.overlap import Overlap
from tokenmill.tokens.params import TokenizeParams
from tokenmill.tokens.search import MatchingSpan, Search

LAST = "a"
"""What is training text of the last document."""

TAIL = TokenizeParams(split="tail", val_fraction=1e-9)
"""Everything but the last character is training text."""

WORD = re.compile(r"[^\W\d_]+|\d+|(?:[^\w\s]|_)+")
"""A word: letters, digits, or other signs. (Python's \\d is not all of Unicode's numbers.)"""


def indexed(
    folder: Path,
    texts: Sequence[str],
    tokenizer: Path,
    *,
    sources: Sequence[str] = (),
    part_bytes: int = index_module.PART_BYTES,
) -> Search:
    """A search of these documents; a last one, which is cut, comes behind them."""
    named = sources or ["a.txt"] * len(texts)
    clean = write_clean(folder / "clean", [*texts, 2 * LAST], sources=[*named, named[-1]])
    index = index_here(folder, clean, tokenizer, TAIL, part_bytes=part_bytes)
    return Search(open_index(index, folder / "tokens"), read_tokenizer(tokenizer))


def places_in(text: str, phrase: str) -> list[int]:
    """Where a phrase stands in a text as whole words."""
    if phrase not in text:
        return []
    bounds = {edge for match in WORD.finditer(text) for edge in match.span()}
    return [
        match.start()
        for match in re.finditer(f"(?={re.escape(phrase)})", text)
        if {match.start(), match.start() + len(phrase)} <= bounds
    ]


def spans_by_reading(text: str, documents: Sequence[str], min_words: int) -> list[tuple]:
    """The maximal spans of a text, their counts and documents, by reading all documents."""
    words = [match.span() for match in WORD.finditer(text)]
    found = []
    reached = 0
    for number, (start, _) in enumerate(words):
        stops = [
            stop
            for _, stop in words[number:]
            if any(places_in(document, text[start:stop]) for document in documents)
        ]
        if stops and stops[-1] > reached:
            reached = stops[-1]
            phrase = text[start:reached]
            counts = [len(places_in(document, phrase)) for document in documents]
            count = sum(word[0].isalnum() for word in WORD.findall(phrase))
            if count >= min_words:
                found.append((phrase, count, sum(counts), sum(map(bool, counts))))
    return found


def described(search: Search, ids: Sequence[int], spans: Sequence[MatchingSpan]) -> list[tuple]:
    """The same of spans."""
    return [
        (
            search.text_of(ids[one.start : one.stop]).strip(),
            one.words,
            one.count,
            len(one.documents),
        )
        for one in spans
    ]


WORDS = ["to", "be", "or", "not", "tobe", "7", "77", "To", "Ünder"]
GAPS = [" ", " ", " ", ", ", ". ", "\n", "  ", "-", "...", "\n\n", " (", ""]
TEXTS = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from(GAPS)), min_size=1, max_size=14
).map(lambda parts: "".join(itertools.chain(*parts)).strip())


@pytest.fixture(scope="module")
def documents() -> list[str]:
    draws = random.Random(0)
    return [
        "".join(
            draws.choice(WORDS) + draws.choice(GAPS) for _ in range(draws.randint(1, 12))
        ).strip()
        for _ in range(60)
    ]


@pytest.fixture(
    scope="module",
    params=[(200, 1 << 16), (10**6, 5)],
    ids="{0[0]} bytes a part, {0[1]} samples".format,
)
def search(
    request: pytest.FixtureRequest,
    documents: list[str],
    bpe_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Search]:
    folder = tmp_path_factory.mktemp("search")
    part_bytes, samples = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "SAMPLES", samples)
        patch.setattr(search_module, "BLOCK", 7)
        patch.setattr(search_module, "COMPARED", 2)
        patch.setattr(search_module, "STRIDES", (6, 2, 1))
        patch.setattr(overlap_module, "BLOCK", 13)
        yield indexed(folder, documents, bpe_file, part_bytes=part_bytes)


@settings(max_examples=50)
@given(text=TEXTS, min_words=st.integers(1, 4))
def test_spans_are_those_that_reading_finds(
    search: Search, documents: list[str], text: str, min_words: int
) -> None:
    """However the training text is divided into parts, sampled, and looked at in blocks."""
    ids = search.tokenizer.encode(text)
    spans = search.spans(ids, min_words=min_words)
    assert described(search, ids, spans) == spans_by_reading(text, [*documents, LAST], min_words)
    for span in spans:
        assert (np.diff(span.places[:, 0]) > 0).all(), "in the order of the text"


@functools.cache
def ngrams(text: str, words: int) -> set[str]:
    """All runs of so many words of a text, with the signs between them, without white space."""
    found = WORD.findall(text)
    counted = [number for number, word in enumerate(found) if word[0].isalnum()]
    edges = zip(counted, counted[words - 1 :], strict=False)
    return {"\0".join(found[first : last + 1]) for first, last in edges}


@settings(max_examples=50)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), words=st.integers(1, 4))
def test_overlaps_are_those_that_reading_finds(
    search: Search, documents: list[str], texts: list[str], words: int
) -> None:
    """Whatever white space is between words."""
    eot = search.tokenizer.eot_id
    ids = np.array([one for text in texts for one in [*search.tokenizer.encode(text), eot]])
    overlap = Overlap(search, ids, words)
    found = np.unique(np.searchsorted(np.flatnonzero(ids == eot), overlap.starts))
    every = set().union(*(ngrams(document, words) for document in [*documents, LAST]))
    shared = [not every.isdisjoint(ngrams(text, words)) for text in texts]
    assert found.tolist() == np.flatnonzero(shared).tolist()
    passages = overlap.passages(5)
    assert [one.words for one in overlap.passages(2)] == [one.words for one in passages[:2]]
    assert len(passages) <= 5
    for longer, shorter in itertools.combinations(passages, 2):
        assert longer.words >= shorter.words
        assert not longer.start <= shorter.start < shorter.stop <= longer.stop
    for span in passages:
        (passage,) = ngrams(search.text_of(ids[span.start : span.stop].tolist()), span.words)
        counts = [passage in ngrams(document, span.words) for document in [*documents, LAST]]
        assert (len(span.documents), span.count >= len(span.documents)) == (sum(counts), True)
        for place in span.places.tolist():
            assert ngrams(
                search.text_of(search.index.tokens[slice(*place)].tolist()), span.words
            ) == {passage}


def test_a_text_of_the_training_text_is_one_span(search: Search, documents: list[str]) -> None:
    longest = max(documents, key=len)
    (span,) = search.spans(search.tokenizer.encode(longest), min_words=1)
    ((first, behind),) = span.places.tolist()
    document = int(search.index.document_of(np.array(first)))
    assert documents[document] == longest
    assert search.index.documents[document] == first
    assert search.text_of(search.index.tokens[first:behind].tolist()) == longest


def test_a_text_that_ends_in_half_a_word(search: Search, documents: list[str]) -> None:
    """Of every phrase that ends with it, the last word is left out."""
    ids = search.tokenizer.encode(max(documents, key=len))
    starts = np.flatnonzero(search.words.starts(np.array(ids)))
    halves = [stop for stop in range(1, len(ids)) if stop not in starts]
    assert halves
    for stop in halves:
        text = search.text_of(ids[:stop])
        spans = search.spans(ids[:stop], min_words=1)
        expected = spans_by_reading(text, [*documents, LAST], 1)
        assert described(search, ids[:stop], spans) == expected


def test_keys_do_not_overflow(
    bpe_file: Path, char_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those of exact integers, also of the last token of the vocabulary."""
    monkeypatch.setattr(search_module, "COMPARED", 99)
    for number, file in enumerate((bpe_file, char_file)):
        search = indexed(tmp_path / str(number), ["to be"], file)
        size = search.tokenizer.vocab_size
        columns = len(search._weights)
        exact = sum(size * (size + 1) ** column for column in range(columns))
        assert search._key(np.full((1, columns), size - 1)).tolist() == [exact]
        assert (size + 1) ** (columns + 1) > 2**63, "as many tokens as fit"


def test_nothing_is_found_of_nothing(search: Search) -> None:
    for text in ("", " ", "\n", "unheard"):
        assert search.spans(search.tokenizer.encode(text), min_words=1) == []


def test_a_turn_ends_a_span(bpe_file: Path, tmp_path: Path) -> None:
    """So a question and its answer are two spans: between them stand special tokens."""
    chat = render_chat([("user", "to be"), ("assistant", "or not")])
    search = indexed(tmp_path, [chat], bpe_file)
    ids = search.tokenizer.encode("to be or not")
    spans = search.spans(ids, min_words=1)
    assert [search.text_of(ids[one.start : one.stop]).strip() for one in spans] == [
        "to be",
        "or not",
    ]


def test_characters_are_tokens_too(char_file: Path, prose: Path, tmp_path: Path) -> None:
    texts = ["the cat sat", "the cats sat"]
    search = indexed(tmp_path, texts, char_file)
    for text in ("the cat sat", "a cats sat", "he cat"):
        ids = search.tokenizer.encode(text)
        spans = search.spans(ids, min_words=1)
        assert described(search, ids, spans) == spans_by_reading(text, [*texts, LAST], 1)


def test_overlaps_of_characters(char_file: Path, tmp_path: Path) -> None:
    search = indexed(tmp_path, ["the cat\nsat on it"], char_file)
    texts = ["a cat sat", "", "the cats sat", "cat.sat"]
    eot = search.tokenizer.eot_id
    ids = np.array([one for text in texts for one in [*search.tokenizer.encode(text), eot]])
    assert Overlap(search, ids, 2).starts.tolist() == [len("a ")]


def test_sources_of_documents(bpe_file: Path, tmp_path: Path) -> None:
    sources = ["a.txt", "a.txt", "b/c.txt", "a.txt"]
    search = indexed(tmp_path, ["one", "two", "three", "four"], bpe_file, sources=sources)
    assert [search.index.source_of(number) for number in range(4)] == sources
