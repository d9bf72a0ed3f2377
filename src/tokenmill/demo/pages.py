"""What the demo serves: its page, and the parts of the models that are chosen there, made when they
are asked for.

A part is made by a function, found by its name in a table that the page and the parts before it
filled.
"""

import contextlib
import functools
import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import sha256_of
from tokenmill.core.params import typed_mode
from tokenmill.demo.models import Models, Offer
from tokenmill.evaluation.sampling import Sampling
from tokenmill.evaluation.trace import Tracer
from tokenmill.formats.token_file import METADATA_FILE
from tokenmill.formats.token_index import read_index_metadata
from tokenmill.model.manifest import WEIGHTS, read_manifest
from tokenmill.publish.cleaning import cleaning_rules
from tokenmill.publish.parts import PackedEpoch, script, tokenizer_name, tokenizer_part
from tokenmill.publish.talk import questions_of, read_results, talking_page
from tokenmill.reports.page import render
from tokenmill.runs.find import FoundModel
from tokenmill.stage import describe
from tokenmill.words.units import message

ABOUT = "Every model runs in this page."
TRACED = "Only an answer that you look up in the training text goes to the program that serves it."
UNTRACED = "Nothing that you write leaves it."

PACKED_EPOCHS = 4
"""The most epochs whose weights are kept for the next part: those of two columns and the epochs
before them."""

EXACT_PARAMETERS = 10_000_000
"""A model of at most so many parameters comes in float32, as it was trained: 53 MB in base64, which
take a second. A larger one comes in int8, a quarter of that."""

MOST_PARAMETERS = 1_000_000_000
"""A larger model is refused: a browser would write less than a token a second."""


@dataclass
class Pages:
    """The page and its parts. It is thread-safe."""

    models: Models
    sampling: Sampling
    """What the page's fields begin with."""
    examples: Sequence[Mapping[str, Any]]
    """Prompts to click on where there is no report, as `questions_of` has them."""
    _parts: dict[str, Callable[[], str]] = field(default_factory=dict, repr=False)
    """Makes a part, by its name."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        """Keep what was read of the last models, and of the index."""
        self._packed = functools.lru_cache(PACKED_EPOCHS)(_packed)
        self._tracer = functools.lru_cache(1)(lambda _version: Tracer.of_project(self.models.root))

    def prepare(self) -> None:
        """Read the model that the page begins with. Errors come when it is asked for."""
        with contextlib.suppress(UserError, OSError):
            offer = self.models.offers()[0]
            self._read(self.models.find(offer, offer.epochs))

    def page(self) -> str:
        """The page, with the models that exist now: the run report, where it is that of the
        workspace's model, or else a page of its own.

        Raises:
            UserError: there is no model any more.
        """
        offers = self.models.offers()
        shown = [{"label": offer.label, "epochs": list(self._epochs(offer))} for offer in offers]
        traced = self._traced_tokenizer()
        frame, questions = self._frame(offers[0])
        data = {
            "cleaning": cleaning_rules(typed_mode(self.models.root)),
            "folder": "parts",
            "models": shown,
            "questions": questions,
            "sampling": asdict(self.sampling),
            "trace": traced,
            "unreachable": "`tokenmill demo` has ended or does not know it; start it again",
        }
        return talking_page(
            frame,
            data,
            about=f"{ABOUT} {TRACED if traced else UNTRACED}",
            blocks={},
            code=("talk.js", "trace.js"),
            policy=" 'self'; connect-src 'self'",
        )

    def part(self, name: str) -> str | None:
        """The script that hands the page a part, or a sentence why it cannot; None for a name that
        no page knows."""
        if name not in self._parts:
            return None
        try:
            return script(name, self._parts[name]())
        except (UserError, OSError) as error:
            return script(name, None, sentence(error))

    def trace(self, text: str) -> str:
        """Where a text stands in the training text, as HTML.

        Raises:
            UserError: there is no index, or it is of other tokens.
        """
        with self._lock:
            version = _version(self.models.root / paths.INDEX / METADATA_FILE)
            found = self._tracer(version).trace(text)
        return render("traced.html", answer=found)

    def _epochs(self, offer: Offer) -> Iterable[dict[str, Any]]:
        """The epochs of a model as the page knows them."""
        for number in range(1, offer.epochs + 1) if offer.epochs else [0]:
            part = self._name_of(offer, number)
            self._parts[part] = functools.partial(self._describe, offer, number)
            yield {"number": number or None, "name": offer.name_of(number), "part": part}

    def _name_of(self, offer: Offer, epoch: int) -> str:
        """The name of the part that describes an epoch of a model, always the same."""
        model = hashlib.sha256(repr((offer.rev, offer.folder)).encode()).hexdigest()[:12]
        return f"about-{model}-{epoch}"

    def _frame(self, run: Offer) -> tuple[str, Sequence[Mapping[str, Any]]]:
        """The page around, and its examples. A finished run of the workspace is the first offer."""
        root = self.models.root
        with contextlib.suppress(UserError, OSError):
            manifest = read_manifest(root / paths.MODEL)
            report, evaluation = read_results(root, manifest.weights)
            epochs = {n: self._name_of(run, n) for n in range(1, manifest.epochs + 1)}
            return report, questions_of(evaluation, epochs)
        return render("demo.html"), self.examples

    def _traced_tokenizer(self) -> str | None:
        """The name of the tokenizer whose texts can be traced; None if there is no index."""
        root = self.models.root
        with contextlib.suppress(UserError, OSError):
            if read_index_metadata(root / paths.INDEX).parts:
                return tokenizer_name(sha256_of(root / paths.TOKENIZER))
        return None

    def _describe(self, offer: Offer, epoch: int) -> str:
        checkpoint = self.models.find(offer, epoch)
        packed = self._read(checkpoint)
        for name in packed.parts:
            self._parts[name] = functools.partial(self._weights, checkpoint, name)
        return packed.description()

    def _weights(self, checkpoint: FoundModel, name: str) -> str:
        packed = self._read(checkpoint)
        if name not in packed.parts:
            raise UserError(f"{checkpoint.name} has changed meanwhile; load the page again.")
        return packed.part(name)

    def _read(self, checkpoint: FoundModel) -> PackedEpoch:
        """The weights of a model as they are on disk now; one is read after the other."""
        with self._lock:
            version = _version(checkpoint.folder / WEIGHTS, checkpoint.tokenizer)
            packed, tokenizer = self._packed(checkpoint, version)
            self._parts[packed.tokenizer] = lambda: tokenizer
            return packed


def _version(*files: Path) -> tuple[int, ...] | None:
    """What changes when a new run replaces one of the files; None if one is missing."""
    try:
        stats = [file.stat() for file in files]
    except OSError:
        return None
    return tuple(value for one in stats for value in (one.st_ino, one.st_size, one.st_mtime_ns))


def _packed(checkpoint: FoundModel, _version: tuple[int, ...] | None) -> tuple[PackedEpoch, str]:
    """The weights of a model, and the part with its tokenizer."""
    from tokenmill.publish.weights import pack  # noqa: PLC0415 (loads PyTorch)
    from tokenmill.runs.writer import load_pair  # noqa: PLC0415

    weights = checkpoint.folder / WEIGHTS
    if weights.exists() and weights.stat().st_size > 4 * MOST_PARAMETERS:
        raise UserError(
            f"{checkpoint.name} has more than {MOST_PARAMETERS:,} parameters, and a browser would "
            "write less than a token a second with it; `tokenmill generate` lets it write."
        )
    model, tokenizer = load_pair(checkpoint)
    count = sum(parameter.numel() for parameter in model.parameters())
    precision = "float32" if count <= EXACT_PARAMETERS else "int8"
    packed = pack(model, tokenizer, epoch=checkpoint.epoch or 0, precision=precision)
    return packed, tokenizer_part(tokenizer)


def sentence(error: UserError | OSError) -> str:
    """What the page says of an error, without passwords in addresses."""
    return message(describe(error) if isinstance(error, OSError) else str(error))
