"""The rules of Gopher and FineWeb once more, a document at a time and as plainly as can be."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from tokenmill.data.filters import FilterParams

STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}


def speaks(character: str) -> bool:
    return character != "" and unicodedata.category(character)[0] in "LMN"


def joins(text: str, at: int) -> bool:
    """Whether a joiner stands between two letters, marks or numbers."""
    return text[at] in "\u200c\u200d" and speaks(text[at - 1]) and speaks(text[at + 1 : at + 2])


def words(text: str) -> list[str]:
    found = []
    at = 0
    while at < len(text):
        end = at + 1
        if text[at] in "'’" or speaks(text[at]):
            while end < len(text) and (speaks(text[end]) or joins(text, end)):
                end += 1
        elif not text[at].isspace():
            while end < len(text) and not (
                speaks(text[end]) or text[end].isspace() or text[end] in "'’"
            ):
                end += 1
        if not text[at].isspace():
            found.append(text[at:end])
        at = end
    return found


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def repeats(parts: list[str]) -> list[str]:
    return [part for place, part in enumerate(parts) if part in parts[:place]]


def quality(text: str, params: FilterParams) -> str | None:  # noqa: PLR0911 (one for each rule)
    every = words(text)
    rows = lines(text)
    spoken = [word for word in every if any(map(speaks, word))]
    if not params.gopher_min_words <= len(spoken) <= 100_000:
        return "gopher_words"
    if not 3 <= sum(map(len, spoken)) / len(spoken) <= 10:
        return "gopher_word_length"
    if (
        text.count("#") / len(every) > 0.1
        or (text.count("...") + text.count("…")) / len(every) > 0.1
    ):
        return "gopher_symbols"
    bullets = [
        row for row in rows if row.lstrip().startswith(("•", "‣", "◦", "●", "▪", "∙", "- ", "* "))
    ]
    if len(bullets) / len(rows) > 0.9:
        return "gopher_bullets"
    if sum(row.rstrip().endswith(("...", "…")) for row in rows) / len(rows) > 0.3:
        return "gopher_ellipsis"
    if (
        sum(any(unicodedata.category(sign)[0] == "L" for sign in word) for word in every)
        / len(every)
        < 0.8
    ):
        return "gopher_alphabetic"
    if len(STOP_WORDS & set(re.findall(r"\w+", text))) < params.gopher_stop_words:
        return "gopher_stop_words"
    return None


def fineweb(text: str) -> str | None:
    rows = lines(text)
    count = max(len(rows), 1)
    chars = max(sum(map(len, rows)), 1)
    if sum(row.endswith(tuple(".!?…\"'”’»。")) for row in rows) / count <= 0.12:
        return "fineweb_punctuation"
    if sum(len(row) < 30 for row in rows) / count >= 0.67:
        return "fineweb_short_lines"
    return "fineweb_repeated_lines" if sum(map(len, repeats(rows))) / chars >= 0.1 else None


def repetition(text: str) -> str | None:
    paragraphs = [part for part in re.split(r"\n{2,}", text.strip("\n")) if part.strip()]
    for reason, parts in (("repeated_paragraphs", paragraphs), ("repeated_lines", lines(text))):
        if len(repeats(parts)) / max(len(parts), 1) > 0.3:
            return reason
        if sum(map(len, repeats(parts))) / max(len(text), 1) > 0.2:
            return reason
    every = words(text)
    for n, limit in ((2, 0.2), (3, 0.18), (4, 0.16)):
        if top_chars(every, n) / max(len(text), 1) > limit:
            return "top_ngrams"
    for n, limit in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.1)):
        if sum(duplicates(every, n)) / max(len(text), 1) > limit:
            return "duplicate_ngrams"
    return None


def top_chars(every: list[str], n: int) -> int:
    counts = Counter(" ".join(every[at : at + n]) for at in range(len(every) - n + 1))
    gram, count = max(counts.items(), key=lambda pair: pair[1], default=("", 0))
    return len(gram) * count if count > 1 else 0


def duplicates(every: list[str], n: int) -> Iterator[int]:
    """Characters of each n-gram that stood before, from left to right, none overlapping."""
    seen = set()
    at = 0
    while at + n <= len(every):
        gram = tuple(every[at : at + n])
        if gram in seen:
            yield sum(map(len, gram))
        at += n if gram in seen else 1
        seen.add(gram)
