"""Write reports/data.html: the text, the dropped documents with their reasons, and statistics of
the tokens."""

from collections.abc import Mapping, Sequence

import numpy as np

from tokenmill.formats.metrics import CleanReport, Example, TokenizerMetrics, TokensMetrics
from tokenmill.reports.charts import Chart, Series, bar_chart, line_chart
from tokenmill.reports.data_stats import RARE, DataStats
from tokenmill.reports.page import THIN, flat, integer, percent, render, significant
from tokenmill.words.cleaning import (
    damage_warning,
    held_out_in_words,
    letters_warning,
    skipped_in_words,
    unread_warning,
)
from tokenmill.words.units import counted, size

FREQUENT = 40
"""The number of tokens in the ranking."""

EXAMPLES = 24
"""The number of rare and unused tokens that are shown."""

LANGUAGES = 20
"""The number of languages that are shown; the others are added up."""

SOURCES = 10
"""The number of files, and of sources, that are shown; the others are folded away."""

LONG_TOKEN = 16
"""The length in bytes beyond which tokens share a bar."""

POINTS = 200
"""The number of points of the line over ranks."""


def text_flow(clean: CleanReport, tokens: int) -> list[tuple[str, str, list[str]]]:
    """Key numbers from the raw files to the tokens, end-of-text included; for each its name, number
    and notes."""
    files = clean.files
    documents = clean.documents
    skipped = [f"skipped: {skipped_in_words(files.skipped)}"] if files.skipped else []
    held_out = [f"held out: {counted(files.held_out, 'file')}"] if files.held_out else []
    into, out = (
        ["documents", counted(count, "character")]
        for count in (clean.characters.into, clean.characters.out)
    )
    mean = f"{significant(tokens / max(1, documents.kept))} a document"
    return [
        ("raw", size(files.bytes, THIN), [counted(files.read, "file"), *skipped, *held_out]),
        ("read", integer(documents.read), into),
        ("kept", integer(documents.kept), out),
        ("encoded", integer(tokens), ["tokens", mean]),
    ]


def documents_by_reason(clean: CleanReport) -> list[tuple[str, str, int]]:
    """The reasons that applied, the most frequent first; for each its name, explanation and number
    of documents."""
    rows = [
        (_words(name), clean.meanings.get(name, ""), count)
        for name, count in clean.dropped.items()
        if count
    ]
    return sorted(rows, key=lambda row: -row[2])


def kept_and_dropped(clean: CleanReport) -> list[tuple[str, int, str]]:
    """The segments of one bar for all documents; for each its name, number of documents and CSS
    class."""
    reasons = documents_by_reason(clean)
    classes = ("series-3", "series-4", "series-2")
    shown = [
        (name, count, class_) for (name, _, count), class_ in zip(reasons, classes, strict=False)
    ]
    others = sum(count for *_, count in reasons[len(shown) :])
    return [("kept", clean.documents.kept, "series-1"), *shown, ("other reasons", others, "faint")]


def render_data_report(
    stats: DataStats,
    tokenizer: TokenizerMetrics,
    tokens: TokensMetrics,
    *,
    mixture: Mapping[str, float],
) -> str:
    """The whole page. `mixture` is `data.mixture`, empty where there is none."""
    clean = stats.clean
    vocabulary = stats.vocabulary
    params = clean.params | {
        "tokenizer": {"type": tokenizer.type, "vocab_size": tokenizer.requested_vocab_size},
        "tokenize": {"split": tokens.split, "val_fraction": tokens.val_fraction},
    }
    files = sorted(clean.sources.items(), key=lambda item: (-item[1].read, item[0]))
    unused = sorted(
        (vocabulary[i] for i in stats.unused_ids), key=lambda token: (-len(token), token)
    )
    return render(
        "data_report.html",
        stats=stats,
        clean=clean,
        metadata=stats.metadata,
        parameters=list(flat(params)),
        text_flow=text_flow(clean, stats.metadata.train.tokens + stats.metadata.val.tokens),
        kept_and_dropped=kept_and_dropped(clean),
        drop_reasons=documents_by_reason(clean),
        examples=_examples(clean),
        never_dropped_as=[_words(reason) for reason, count in clean.dropped.items() if not count],
        languages=_languages(clean.languages),
        language_sample=max(1, sum(clean.languages.values())),
        sources=stats.sources[:SOURCES],
        more_sources=stats.sources[SOURCES:],
        files=files[:SOURCES],
        more_files=files[SOURCES:],
        mixture=mixture,
        held_out=held_out_in_words(clean),
        letters_warning=letters_warning(clean.letters, clean.mode),
        warnings=filter(None, (unread_warning(clean), damage_warning(clean))),
        lengths=_document_lengths(clean),
        tokenizer=tokenizer,
        tokens=tokens,
        frequent=_ranked(stats, stats.ranking[:FREQUENT]),
        rare=_ranked(stats, _rarest(stats)),
        unused=unused,
        examples_shown=EXAMPLES,
        rare_below=RARE,
        coverage=[(n, stats.coverage(n)) for n in (1, 10, 100) if n < len(vocabulary)],
        zipf=_zipf(stats),
        token_lengths=_token_lengths(stats),
    )


def _words(reason: str) -> str:
    return reason.replace("_", " ")


def _examples(clean: CleanReport) -> list[tuple[str, int, list[Example]]]:
    """The dropped documents by reason, the most frequent reason first: reason, number, and a
    few of them."""
    rows = [
        (_words(name), clean.dropped.get(name, 0), examples)
        for name, examples in clean.examples.items()
        if examples
    ]
    return sorted(rows, key=lambda row: -row[1])


def _languages(languages: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """Rows of a table: the most frequent languages, then the sum of the others."""
    rows = sorted(languages.items(), key=lambda item: (-item[1], item[0]))
    others = sum(count for _, count in rows[LANGUAGES:])
    shown = [(name, "", count) for name, count in rows[:LANGUAGES]]
    return [*shown, (counted(len(rows) - LANGUAGES, "other"), "", others)] if others else shown


def _document_lengths(clean: CleanReport) -> Chart:
    """A histogram of the documents read and kept, from the first to the last bin that is not
    empty."""
    edges = clean.lengths.edges
    read = clean.lengths.read
    kept = clean.lengths.kept
    filled = [i for i in range(len(edges)) if read[i] or kept[i]]
    bins = range(filled[0], filled[-1] + 1) if filled else range(1)
    ends = [f"to {integer(edge - 1)}" for edge in edges[1:]] + ["and more"]
    spans = {i: f"{integer(edges[i])} {ends[i]}" for i in bins}
    most = spans[max(bins, key=kept.__getitem__)]
    titles = [
        f"{spans[i]} characters: {integer(read[i])} read, {integer(kept[i])} kept" for i in bins
    ]
    return bar_chart(
        [_power_of_two(edges[i]) for i in bins],
        [
            Series([read[i] for i in bins], colour=2, name="read", titles=titles),
            Series([kept[i] for i in bins], colour=1, name="kept", titles=titles),
        ],
        x_label="characters, from … on (1k is 1024)",
        y_label="documents",
        alt=f"Histogram of document lengths; most kept documents have {most} characters.",
    )


def _power_of_two(edge: int) -> str:
    """A length as a short label: 512, 1k, 2k."""
    return str(edge) if edge < 1024 else f"{edge >> 10}k" if edge < 1 << 20 else f"{edge >> 20}M"


def _ranked(stats: DataStats, ids: Sequence[int] | np.ndarray) -> list[tuple[bytes, int]]:
    """The bytes of these tokens and how often they occur, without tokens that never do."""
    return [(stats.vocabulary[i], int(stats.occurrences[i])) for i in ids if stats.occurrences[i]]


def _rarest(stats: DataStats) -> np.ndarray:
    """The ids of the least frequent tokens that occur, if they are rare."""
    ids = stats.ranking[::-1]
    counts = stats.occurrences[ids]
    return ids[(counts > 0) & (counts < RARE)][:EXAMPLES]


def _zipf(stats: DataStats) -> Chart:
    """A line of the tokens' occurrences by rank; both axes are logarithmic."""
    counts = np.sort(stats.occurrences[stats.occurrences > 0])[::-1]
    ranks = np.unique(np.geomspace(1, len(counts), POINTS).round().astype(np.int64))
    return line_chart(
        [Series(counts[ranks - 1].tolist(), colour=1, x=ranks.tolist())],
        log="xy",
        x_label="rank",
        y_label="occurrences",
        alt=(
            "Occurrences of tokens by rank, "
            f"falling from {integer(int(counts[0]))} to {integer(int(counts[-1]))}."
        ),
    )


def _token_lengths(stats: DataStats) -> Chart:
    """Bars of the lengths of tokens in bytes: of all tokens in the text, and of the vocabulary."""
    lengths = np.minimum([len(token) for token in stats.vocabulary], LONG_TOKEN)
    entries = np.bincount(lengths, minlength=2)[1:]
    uses = np.bincount(lengths, weights=stats.occurrences, minlength=2)[1:]
    in_text = 100 * uses / max(1, uses.sum())
    in_vocabulary = 100 * entries / max(1, entries.sum())
    titles = [
        f"{n}{' and more' if n == LONG_TOKEN else ''} bytes: {percent(text / 100)} of the text's "
        f"tokens, {percent(entry / 100)} of the vocabulary"
        for n, (text, entry) in enumerate(zip(in_text, in_vocabulary, strict=True), start=1)
    ]
    return bar_chart(
        [f"{n}+" if n == LONG_TOKEN else str(n) for n in range(1, len(entries) + 1)],
        [
            Series(in_text.tolist(), 1, "tokens of the text", titles=titles),
            Series(in_vocabulary.tolist(), 2, "tokens of the vocabulary", titles=titles),
        ],
        x_label="bytes of a token",
        y_label="%",
        alt=f"Lengths of tokens; in the text {stats.bytes_per_token:.2f} bytes on average.",
    )
