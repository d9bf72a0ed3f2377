"""The parameters of the stage `clean`: where the raw text is, and what becomes of it."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tokenmill.params import Section

Mode = Literal["strict", "balanced", "lenient", "none"]
Unit = Literal["file", "paragraph", "line"]


class DataParams(Section):
    """Where the raw text is."""

    raw: Annotated[str, Field(min_length=1)]
    """A file or a folder (read recursively) of .txt .md .jsonl .json .csv .parquet, each also .gz .zst .bz2 .xz.

    Outside the repository give an absolute path, or queued experiments do not find it.
    """


class CleanParams(Section):
    """How raw records become documents."""

    mode: Mode
    """Which characters stay: `strict` ASCII, `balanced` Latin-1, `lenient` all of Unicode but emoji and control
    characters, `none` the text as it is. The first three also normalise Unicode (NFC) and white space."""

    columns: Annotated[list[str], Field(min_length=1)] | None
    """Columns or keys that hold the text, joined by a line break; null finds the usual shapes by itself."""

    text_file: Unit
    """What one document is in a .txt or .md file: the `file` (cut at line breaks beyond 2 MiB), a `paragraph`
    (between blank lines) or a `line`."""

    min_chars: Annotated[int, Field(ge=1)]
    """Characters that a cleaned document has at least; shorter ones are dropped as `too_short`."""

    max_chars: Annotated[int, Field(ge=1)] | None
    """Characters that a cleaned document has at most; longer ones are dropped as `too_long`; null is no limit."""

    deduplicate: bool
    """Whether a document whose cleaned text was seen before is dropped as `duplicate`. Costs 8 to 16 bytes of
    memory a document."""

    @model_validator(mode="after")
    def _bounds(self) -> "CleanParams":
        if self.max_chars is not None and self.max_chars < self.min_chars:
            raise ValueError(
                f"clean.max_chars ({self.max_chars}) is below clean.min_chars ({self.min_chars}) and would drop all; "
                "raise it or set it to null."
            )
        return self
