"""The way of the text, as pages show it: raw, read, kept, encoded; and what was dropped on it, and why.

reports/data.html: what there was, what was dropped, what the tokens are like.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from tokenmill.core.units import size
from tokenmill.reports import charts
from tokenmill.reports.data_stats import RARE, CleanReport, Measures
from tokenmill.reports.page import THIN, counted, decimal, flat, percent, render, whole

Step = tuple[str, str, list[str]]
"""A name, a number, lines of explanation."""


def steps(clean: CleanReport, tokens: int) -> list[Step]:
    """From the files to so many tokens, end-of-text included."""
    files, documents = clean.files, clean.documents
    skipped = [f"{whole(sum(files.skipped.values()))} skipped: {', '.join(files.skipped)}"] if files.skipped else []
    return [
        ("raw", size(files.bytes, THIN), [counted(files.read, "file"), *skipped]),
        ("read", whole(documents.read), ["documents", counted(clean.characters.into, "character")]),
        ("kept", whole(documents.kept), ["documents", counted(clean.characters.out, "character")]),
        ("encoded", whole(tokens), ["tokens", f"{decimal(tokens / max(1, documents.kept), 1)} a document"]),
    ]


def outcome(clean: CleanReport) -> list[tuple[str, int, str]]:
    """What became of all documents, as the parts of one bar: a name, a count, a colour."""
    reasons = dropped(clean)
    shown = [
        (name, count, colour)
        for (name, _, count), colour in zip(reasons, ("series-3", "series-4", "series-2"), strict=False)
    ]
    others = sum(count for *_, count in reasons[len(shown) :])
    return [("kept", clean.documents.kept, "series-1"), *shown, ("other reasons", others, "faint")]


def dropped(clean: CleanReport) -> list[tuple[str, str, int]]:
    """Reasons that applied: in words, explained, counted; the most frequent first."""
    rows = [(words(name), clean.meanings.get(name, ""), count) for name, count in clean.dropped.items() if count]
    return sorted(rows, key=lambda row: -row[2])


def words(reason: str) -> str:
    """A reason's name as words."""
    return reason.replace("_", " ")


TEMPLATE = Path(__file__).with_name("data_report.html")


FREQUENT = 40
"""Tokens in the ranking."""


EXAMPLES = 24
"""Rare and unused tokens shown."""


LANGUAGES = 20


SOURCES = 10
"""Sources shown before the others are folded away."""


LONG_TOKEN = 16
"""Bytes; longer tokens share a bar."""


POINTS = 200
"""Points of the line of ranks."""


@dataclass(frozen=True)
class Ranked:
    """A token and how often it occurs."""

    token: bytes
    count: int
    share: float


def render_report(
    measures: Measures,
    vocabulary: Sequence[bytes],
    *,
    tokenizer: Mapping[str, Any],
    tokens: Mapping[str, Any],
    params: Mapping[str, Mapping[str, Any]],
) -> str:
    """The whole page.

    Args:
        measures: the counts and what follows from them.
        vocabulary: the bytes of every token.
        tokenizer: metrics/tokenizer.json.
        tokens: metrics/tokens.json.
        params: the sections of params.yaml that made the data, by name.
    """
    unused = sorted(_unused(measures, vocabulary), key=lambda token: (-len(token), token))
    order = np.argsort(-measures.by_id, kind="stable")
    return render(
        TEMPLATE,
        m=measures,
        clean=measures.clean,
        metadata=measures.metadata,
        raw=params["data"]["raw"],
        parameters=[(name, value, "") for name, value in flat(params)],
        steps=steps(measures.clean, measures.metadata.train.tokens + measures.metadata.val.tokens),
        outcome=outcome(measures.clean),
        dropped=dropped(measures.clean),
        examples=_examples(measures.clean),
        never=[words(reason) for reason, count in measures.clean.dropped.items() if not count],
        languages=_languages(measures.clean.languages),
        asked=max(1, sum(measures.clean.languages.values())),
        sources=sorted(measures.clean.sources.items(), key=lambda item: (-item[1].read, item[0])),
        shown_sources=SOURCES,
        lengths=_lengths(measures),
        percentiles=[
            (f"{name} of the documents have at most", counted(measures.length_at(share), "token"), "")
            for name, share in (("a tenth", 0.1), ("half", 0.5), ("nine tenths", 0.9), ("all", 1))
        ],
        facts=_tokenizer_facts(measures, unused, tokenizer, tokens),
        frequent=[_ranked(measures, vocabulary, token_id) for token_id in order[:FREQUENT] if measures.by_id[token_id]],
        rare=_rare(measures, vocabulary, order),
        unused=unused[:EXAMPLES],
        rare_below=RARE,
        covered=_covered(measures),
        ranks=_ranks(measures),
        token_lengths=_token_lengths(measures, vocabulary),
    )


def _examples(clean: CleanReport) -> list[tuple[str, int, list[str]]]:
    """Beginnings of dropped documents by reason, with how often it applied; the most frequent first."""
    rows = [(words(name), clean.dropped.get(name, 0), texts) for name, texts in clean.examples.items() if texts]
    return sorted(rows, key=lambda row: -row[1])


def _languages(languages: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """The most frequent languages, and the others together."""
    rows = sorted(languages.items(), key=lambda item: (-item[1], item[0]))
    others = sum(count for _, count in rows[LANGUAGES:])
    shown = [(name, "", count) for name, count in rows[:LANGUAGES]]
    return [*shown, (counted(len(rows) - LANGUAGES, "other"), "", others)] if others else shown


def _lengths(measures: Measures) -> Markup:
    """The lengths of documents before and after."""
    found = measures.clean.lengths
    filled = [number for number, counts in enumerate(zip(found.read, found.kept, strict=True)) if any(counts)]
    bins = range(filled[0], filled[-1] + 1) if filled else range(1)
    ends = [*(edge - 1 for edge in found.edges[1:]), None]
    spans = [
        f"{whole(found.edges[i])} and more" if (end := ends[i]) is None else f"{whole(found.edges[i])} to {whole(end)}"
        for i in bins
    ]
    most = max(bins, key=lambda i: found.kept[i])
    return charts.bars(
        [_power_of_two(found.edges[i]) for i in bins],
        [
            charts.Series([found.read[i] for i in bins], colour=2),
            charts.Series([found.kept[i] for i in bins], colour=1),
        ],
        titles=[
            f"{span} characters: {whole(found.read[i])} read, {whole(found.kept[i])} kept"
            for i, span in zip(bins, spans, strict=True)
        ],
        x_label="characters, from … on (1k is 1024)",
        y_label="documents",
        alt=f"Histogram of document lengths; most kept documents have {spans[most - bins[0]]} characters.",
    )


def _power_of_two(edge: int) -> str:
    """A length as short as a tick's label must be: 512, 1k, 2k."""
    return str(edge) if edge < 1024 else f"{edge >> 10}k" if edge < 1 << 20 else f"{edge >> 20}M"


def _tokenizer_facts(
    measures: Measures, unused: Sequence[bytes], tokenizer: Mapping[str, Any], tokens: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """The tokenizer as rows of a name, a value and an explanation."""
    kind = {"bpe": "byte-level BPE", "char": "one token per character"}[tokenizer["type"]]
    asked = tokenizer["requested_vocab_size"]
    single = sum(len(token) == 1 for token in unused)
    fewer = f"{whole(asked)} were asked for; the text could not fill them" if tokenizer["corpus_too_small"] else ""
    return [
        ("kind", kind, f"learned from {counted(tokenizer['sample_bytes'], 'byte')} of clean text"),
        ("vocabulary", counted(tokenizer["vocab_size"], "token"), fewer),
        ("bytes per token", decimal(measures.bytes_per_token), "more: shorter sequences for the same text"),
        (
            "tokens per word",
            decimal(measures.tokens_per_word),
            f"fertility; {counted(measures.counts.words, 'word')} between white space",
        ),
        (
            "vocabulary used",
            percent(measures.used_share),
            f"{counted(len(unused), 'token')} never occur, {whole(single)} of them single bytes",
        ),
        (
            "rare tokens",
            whole(measures.rare),
            f"occur, but less than {RARE} times: a model will hardly learn what they mean",
        ),
        (
            "entropy",
            f"{decimal(measures.entropy)} bits",
            f"of a token drawn at random; {decimal(np.log2(max(2, len(measures.by_id))))} if all were equally frequent",
        ),
        (
            "bits per byte without a model",
            decimal(measures.unigram_bits_per_byte),
            "what knowing only how frequent each token is would give; training has to beat it",
        ),
        ("packed", f"{decimal(tokens['compression_ratio'])} times smaller", "compressed, against four bytes per token"),
    ]


def _ranked(measures: Measures, vocabulary: Sequence[bytes], token_id: int) -> Ranked:
    count = int(measures.by_id[token_id])
    return Ranked(vocabulary[int(token_id)], count, count / max(1, measures.tokens))


def _rare(measures: Measures, vocabulary: Sequence[bytes], order: np.ndarray) -> list[Ranked]:
    """The rarest tokens that occur, if they are rare, the rarest first."""
    return [_ranked(measures, vocabulary, token_id) for token_id in order[::-1] if 0 < measures.by_id[token_id] < RARE][
        :EXAMPLES
    ]


def _unused(measures: Measures, vocabulary: Sequence[bytes]) -> list[bytes]:
    """The tokens that never occur, end-of-text aside."""
    return [vocabulary[i] for i in np.flatnonzero(measures.by_id == 0).tolist() if i != measures.metadata.eot_id]


def _covered(measures: Measures) -> list[tuple[int, float]]:
    """How much of the text the most frequent tokens make up."""
    ordered = np.sort(measures.by_id)[::-1]
    return [(n, float(ordered[:n].sum()) / max(1, measures.tokens)) for n in (1, 10, 100) if n < len(ordered)]


def _ranks(measures: Measures) -> Markup:
    """How often the tokens occur, by rank; both axes logarithmic."""
    counts = np.sort(measures.by_id[measures.by_id > 0])[::-1]
    chosen = np.unique(np.geomspace(1, len(counts), POINTS).round().astype(np.int64))
    return charts.lines(
        [charts.Series(counts[chosen - 1].tolist(), colour=1, x=chosen.tolist())],
        log="xy",
        x_label="rank",
        y_label="occurrences",
        alt=f"Occurrences of tokens by rank, falling from {whole(int(counts[0]))} to {whole(int(counts[-1]))}.",
    )


def _token_lengths(measures: Measures, vocabulary: Sequence[bytes]) -> Markup:
    """How many bytes tokens have: in the text, and in the vocabulary."""
    lengths = np.minimum([len(token) for token in vocabulary], LONG_TOKEN)
    entries = np.bincount(lengths, minlength=2)[1:]
    uses = np.bincount(lengths, weights=measures.by_id, minlength=2)[1:]
    in_text, in_vocabulary = 100 * uses / max(1, uses.sum()), 100 * entries / max(1, entries.sum())
    names = [f"{n} and more" if n == LONG_TOKEN else str(n) for n in range(1, len(entries) + 1)]
    return charts.bars(
        [name.replace(" and more", "+") for name in names],
        [charts.Series(in_text.tolist(), colour=1), charts.Series(in_vocabulary.tolist(), colour=2)],
        titles=[
            f"{name} bytes: {percent(text / 100)} of the text's tokens, {percent(entry / 100)} of the vocabulary"
            for name, text, entry in zip(names, in_text, in_vocabulary, strict=True)
        ],
        x_label="bytes of a token",
        y_label="%",
        alt=f"Lengths of tokens; in the text {measures.bytes_per_token:.2f} bytes on the average.",
    )
