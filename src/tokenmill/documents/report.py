"""What happened to the documents: counted while cleaning, then frozen."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

REASONS = ("empty", "too_short", "too_long", "duplicate", "invalid_record", "no_text")
"""Why a document is dropped; the first that applies counts.

empty           nothing is left of it, or a conversation without an answer
too_short       fewer characters than clean.min_chars
too_long        more characters than clean.max_chars
duplicate       the same cleaned text came before
invalid_record  a line that is no JSON, a row with more fields than the header
no_text         a record of no known shape
"""


@dataclass
class Tally:
    """The counts so far."""

    dropped: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    characters_in: int = 0
    characters_out: int = 0
    invalid_utf8: int = 0


@dataclass(frozen=True)
class CleanReport:
    """What the stage `clean` read, kept and dropped."""

    documents_read: int
    documents_kept: int
    dropped: Mapping[str, int]
    """Documents by reason; every one of REASONS is there."""
    characters_in: int
    """Characters of all texts that were found, before cleaning."""
    characters_out: int
    """Characters of the documents kept, after cleaning."""
    invalid_utf8: int
    """Documents in which something that is no valid Unicode was replaced by U+FFFD."""
    files_read: int
    files_skipped: Mapping[str, int]
    """Files of unknown format, by extension."""

    @classmethod
    def of(cls, tally: Tally, files_read: int, files_skipped: Mapping[str, int]) -> "CleanReport":
        """The report of a finished tally."""
        return cls(
            documents_read=tally.kept + tally.dropped.total(),
            documents_kept=tally.kept,
            dropped={reason: tally.dropped[reason] for reason in REASONS},
            characters_in=tally.characters_in,
            characters_out=tally.characters_out,
            invalid_utf8=tally.invalid_utf8,
            files_read=files_read,
            files_skipped=dict(files_skipped),
        )

    def flat(self) -> dict[str, int]:
        """The report as the metrics file holds it."""
        return {
            "documents_read": self.documents_read,
            "documents_kept": self.documents_kept,
            **{f"dropped_{reason}": count for reason, count in self.dropped.items()},
            "characters_in": self.characters_in,
            "characters_out": self.characters_out,
            "invalid_utf8": self.invalid_utf8,
            "files_read": self.files_read,
            "files_skipped": sum(self.files_skipped.values()),
        }

    def summary(self) -> str:
        """The report in two lines."""
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items() if count) or "none"
        skipped = ", ".join(f"{count:,} {ending}" for ending, count in self.files_skipped.items())
        return (
            f"clean: {self.documents_kept:,} of {self.documents_read:,} documents kept from {self.files_read:,} files, "
            f"{self.characters_in:,} -> {self.characters_out:,} characters\n"
            f"       dropped: {dropped}; invalid UTF-8 replaced in {self.invalid_utf8:,} documents"
            + (f"; files skipped: {skipped}" if skipped else "")
        )
