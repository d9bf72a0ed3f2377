"""The sections `data` and `clean` of params.yaml: where the raw text is, and how it is cleaned."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from tokenmill.core.params import MixtureParams, ModeParams, RawPlace, Section
from tokenmill.data.filters import FilterParams

Unit = Literal["file", "paragraph", "line"]

Mask = Literal["email", "phone", "card", "ip"]


class DataParams(MixtureParams, extra="forbid"):
    """Where the raw text is, and how often training sees its parts."""

    raw: RawPlace
    """A file or a folder (read recursively) of text, chats or tables, also compressed; README lists
    the formats. Files named `test` beside others named `train` or `valid` are held out: nothing is
    trained on them.

    Outside the repository give an absolute path, or queued experiments do not find it. Or
    `s3://bucket/prefix`, an object or a folder of objects, which is read where it is; DVC knows it
    by its ETags, and needs no copy of it.
    """

    encoding: str
    """The encoding of the text files: `auto` finds it for each file by all of its text (a
    byte-order mark, else escape sequences, else UTF-8, else chardet), or a name that Python knows,
    such as `cp1251`, for all of them."""

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, name: str) -> str:
        try:
            # That of names in DNS knows no way to go on behind a byte that it cannot decode
            known = name == "auto" or isinstance("a".encode(name).decode(name, "replace"), str)
        except (LookupError, ValueError):
            known = False
        if not known:
            raise ValueError(
                f"data.encoding ({name!r}) is no text encoding of Python; write auto, utf-8, "
                "cp1251, …"
            )
        return name


class NearDuplicateParams(Section):
    """Which documents are near-duplicates (MinHash; Broder 1997, Lee et al. 2022)."""

    enabled: bool
    """Whether a document that is nearly the same as an earlier one is dropped as `near_duplicate`.
    With the values below it takes 72 bytes of memory a document, at moments twice that."""

    threshold: Annotated[float, Field(ge=0.3, le=0.99)]
    """Jaccard similarity of the sets of shingles from which a document counts as a near-duplicate.
    The border is soft: of pairs as similar as this about 40 % are found, of more similar ones more
    (docs/decisions.md has the curve). With shingles of 5 words, one word in a hundred replaced
    leaves 0.9, three in a hundred 0.75, five 0.63."""

    permutations: Annotated[int, Field(ge=16, le=1024)]
    """Random orders of the shingles. More of them make the border sharper; twice as many take about
    twice the time and memory."""

    ngram: Annotated[int, Field(ge=1, le=16)]
    """Words in a row that make a shingle (Lee et al. 2022 and FineWeb: 5). A shorter document is
    one shingle."""


class CleanParams(ModeParams, extra="forbid"):
    """How raw records become documents."""

    columns: Annotated[list[str], Field(min_length=1)] | None
    """Columns or keys that hold the text, joined by a line break; null finds the usual shapes."""

    text_file: Unit
    """What one document is in a .txt or .md file: the `file` (cut at line breaks beyond 2 MiB), a
    `paragraph` (between blank lines) or a `line`."""

    drop_boilerplate: bool
    """Whether lines with `lorem ipsum`, `javascript`, or a phrase of cookie notices and terms of
    use are removed (C4, Raffel et al. 2020)."""

    mask: list[Mask]
    """What is replaced by `[EMAIL]`, `[PHONE]`, `[CARD]`, `[IP]`: any of `email`, `phone` (with
    country code, or as written in North America), `card` (payment cards, by their check digit),
    `ip` (v4 and v6); [] is off."""

    filters: FilterParams
    """Which documents are too poor to keep; applied to the cleaned text, before duplicates."""

    min_chars: Annotated[int, Field(ge=1)]
    """The fewest characters of a cleaned document; shorter ones are dropped as `too_short`."""

    max_chars: Annotated[int, Field(ge=1)] | None
    """The most characters of a cleaned document; longer ones are dropped as `too_long`; null is no
    limit."""

    deduplicate: bool
    """Whether a document whose cleaned text was seen before is dropped as `duplicate`. This takes 8
    bytes of memory a document, at moments twice that."""

    near_duplicates: NearDuplicateParams

    @model_validator(mode="after")
    def _bounds(self) -> "CleanParams":
        if self.max_chars is not None and self.max_chars < self.min_chars:
            raise ValueError(
                f"clean.max_chars ({self.max_chars}) is below clean.min_chars ({self.min_chars}) "
                "and would drop all; raise it or set it to null."
            )
        return self
