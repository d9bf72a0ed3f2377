"""The way of the text, as pages show it: raw, read, kept, encoded; and what was dropped on it, and why."""

from tokenmill.describe.clean_report import CleanReport
from tokenmill.page.numbers import counted, decimal, size, whole

Step = tuple[str, str, list[str]]
"""A name, a number, lines of explanation."""


def steps(clean: CleanReport, tokens: int) -> list[Step]:
    """From the files to so many tokens, end-of-text included."""
    files, documents = clean.files, clean.documents
    skipped = [f"{whole(sum(files.skipped.values()))} skipped: {', '.join(files.skipped)}"] if files.skipped else []
    return [
        ("raw", size(files.bytes), [counted(files.read, "file"), *skipped]),
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
