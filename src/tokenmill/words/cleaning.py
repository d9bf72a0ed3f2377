"""What the stage `clean` did, in sentences for the terminal, the pages and the errors."""

from collections.abc import Mapping

from tokenmill.formats.metrics import CleanReport, Letters
from tokenmill.words.units import counted

NOTICEABLE = 0.01
"""The fraction of the letters that a mode may remove without a warning."""


def cleaning_in_words(report: CleanReport) -> str:
    """The report as a few lines of text."""
    documents = report.documents
    characters = report.characters
    kept = f"{documents.kept:,} of {documents.read:,} documents kept"
    dropped = f"dropped: {dropped_in_words(report.dropped) or 'none'}"
    skipped = skipped_in_words(report.files.skipped)
    files = counted(report.files.read, "file")
    lines = [
        f"clean: {kept} from {files}, {characters.into:,} -> {characters.out:,} characters",
        f"{dropped}; skipped: {skipped}" if skipped else dropped,
        held_out_in_words(report),
        _most_dropped(report),
        _encodings_in_words(report),
        unread_warning(report),
        damage_warning(report),
        letters_warning(report.letters, report.mode),
    ]
    return "\n       ".join(filter(None, lines))


def skipped_in_words(skipped: Mapping[str, int]) -> str:
    """The files of unknown format, counted by extension.

    Example:
        >>> skipped_in_words({"": 1, ".pdf": 2})
        '1 file without an ending, 2 .pdf files'
    """
    return ", ".join(
        counted(count, f"{ending} file")
        if ending
        else counted(count, "file without an ending", "files without an ending")
        for ending, count in skipped.items()
    )


def held_out_in_words(report: CleanReport) -> str:
    """A sentence that names the test files, of which nothing is trained on; empty if there are
    none."""
    if not report.held_out:
        return ""
    files = counted(report.files.held_out, "file")
    names = ", ".join(report.held_out[:3]) + (", …" if report.files.held_out > 3 else "")
    return f"held out: {files} named test ({names}); no training or validation text is from there"


def dropped_in_words(dropped: Mapping[str, int]) -> str:
    """The reasons for which documents were dropped, with their counts."""
    return ", ".join(f"{count:,} {reason}" for reason, count in dropped.items() if count)


def letters_warning(letters: Letters | None, mode: str) -> str:
    """A warning if the alphabet of `mode` removes many letters; otherwise an empty string."""
    if letters is None or letters.taken <= NOTICEABLE * letters.read:
        return ""
    share = f"{letters.taken / letters.read:.1%}"
    part = f"{letters.taken:,} of {letters.read:,} letters ({share})"
    return f"clean.mode {mode} takes {part}; balanced keeps the letters of every script"


def unread_warning(report: CleanReport) -> str:
    """What was left out of conversations, in words; an empty string if nothing was."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in report.unread.items())
    return f"left out of conversations (docs/own-text.md): {kinds}" if kinds else ""


def damage_warning(report: CleanReport) -> str:
    """A warning if some bytes could not be decoded as text; otherwise an empty string."""
    if not report.invalid_utf8:
        return ""
    return (
        f"{report.invalid_utf8:,} of {report.documents.read:,} documents have bytes that are no "
        "text in their file's encoding; if the text looks wrong, name the encoding in "
        "data.encoding"
    )


def _most_dropped(report: CleanReport) -> str:
    """The most frequent reason for dropping, if fewer than half of the documents are kept;
    otherwise an empty string."""
    if 2 * report.documents.kept >= report.documents.read:
        return ""
    reason = max(report.dropped, key=report.dropped.__getitem__)
    part = f"{report.dropped[reason] / report.documents.read:.0%}"
    return (
        f"{part} were dropped as {reason} ({report.meanings[reason]}); the section clean decides it"
    )


def _encodings_in_words(report: CleanReport) -> str:
    """The encodings other than UTF-8, with an example of each; an empty string if there are
    none."""
    example = {encoding: file for file, encoding in reversed(report.encoded.items())}
    counts = ", ".join(
        f"{counted(count, 'file')} in {encoding}"
        + (f" (such as {example[encoding]})" if encoding in example else "")
        for encoding, count in report.encodings.items()
    )
    return f"not in UTF-8: {counts}; data.encoding overrides what was found" if counts else ""
