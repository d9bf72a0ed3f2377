"""Write the folder of `tokenmill publish`: the run report with a place to talk to every epoch.

The report is the page that the stage `report` wrote. Where it has `TALK`, the parts of `page/` come
in: styles, a form, the code of the page and that of its worker, the tokenizer, and the weights in
base64. Larger weights lie in files beside it, as scripts, which a browser also reads from a disk. A
policy in the page allows these scripts only, by their hashes, and no request to anywhere else.
"""

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_bytes, write_directory, write_text
from tokenmill.evaluation.generate import Sampling
from tokenmill.evaluation.results import Evaluation, Question, read_evaluation
from tokenmill.formats.chat import SHOWN, START, TURN_END, TURN_TOKENS
from tokenmill.formats.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.model.gpt import GPT
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import read_manifest
from tokenmill.publish.classes import character_classes
from tokenmill.publish.weights import Precision, describe, packed
from tokenmill.runs.find import chosen_epoch, find_model
from tokenmill.runs.writer import check_tokenizer

PAGE = Path(__file__).with_name("page")
INDEX = "index.html"
WEIGHTS = "weights"
"""The folder beside the page for weights that are too large to lie in it."""

WORKER = ("tokenizer.js", "model.js", "writing.js", "worker.js")
"""The parts of the worker's code, in their order."""

TALK = "<!-- talk -->"
"""Where the report has the place to talk (reports/templates/run_report.html)."""
BODY_END = "</body>"
POLICY = re.compile(r'(<meta http-equiv="Content-Security-Policy" content=")[^"]*(">)')
MARK = '<meta name="generator" content="tokenmill publish">'
"""A page with this line was published, so publishing again may replace it."""

INLINE_BYTES = 16_000_000
"""The most bytes of all weights together, in base64, that lie in the page."""
PART_BYTES = 6_000_000
"""The bytes of weights in each file beside it; in base64 8 MB."""

FILE = re.compile(r"epoch-\d+-[0-9a-f]{12}-\d+\.js")
REPORT_AGAIN = "`dvc repro -sf report` writes it"
NO_PROMPT = re.compile("|".join(shown.strip() for shown in SHOWN.values() if shown))
"""Begins a conversation as people see it, which is not the text that the model was asked."""


@dataclass(frozen=True)
class Site:
    """What was published."""

    page: Path
    epochs: list[int]
    page_bytes: int
    """The size of the page."""
    files: list[Path]
    """Files with weights beside the page; empty if they lie in it."""
    files_bytes: int


@dataclass(frozen=True)
class Weights:
    """The weights of all epochs in base64."""

    parts: dict[int, dict[str, str]]
    """For each epoch its parts by name, in their order."""
    about: dict[str, Any]
    """How the page reads them (publish/weights.py)."""

    @property
    def inline(self) -> bool:
        """Whether they lie in the page."""
        return sum(len(text) for _, text in self.every()) <= INLINE_BYTES

    def every(self) -> Iterator[tuple[str, str]]:
        """All parts with their names."""
        for parts in self.parts.values():
            yield from parts.items()


def publish(
    root: Path,
    target: Path,
    sampling: Sampling,
    *,
    epochs: Sequence[int] | None = None,
    precision: Precision = "int8",
) -> Site:
    """Write the folder `target` for the run in the project at `root`, whole or not at all. A folder
    that was published before is replaced.

    Args:
        root: the folder of the project.
        target: the folder to write.
        sampling: what the page's fields begin with.
        epochs: the epochs to talk to; None means all.
        precision: in which matrices are stored.

    Raises:
        UserError: the report is missing or of another run, an epoch is missing or damaged, or there
            is something else in `target`.
    """
    _refuse_others(target)
    manifest = read_manifest(root / paths.MODEL)
    report = _report(root, manifest.fingerprint)
    numbers = sorted(
        {chosen_epoch(each, manifest.epochs, "the workspace") for each in epochs or ()}
    )
    numbers = numbers or list(range(1, manifest.epochs + 1))
    tokenizer = read_tokenizer(root / paths.TOKENIZER)
    weights = _weights(root, numbers, tokenizer, precision)
    evaluation = read_evaluation(root / paths.EVALUATION)
    data = _data(weights, evaluation, tokenizer, sampling)
    with write_directory(target) as folder:
        write_text(folder / INDEX, _page(report, data, weights))
        write_text(folder / ".nojekyll", "")  # GitHub Pages serves the files as they are
        for file in (paths.DATA_REPORT, paths.SAMPLES):
            if (root / file).exists():
                shutil.copyfile(root / file, folder / file.name)
        for name, text in () if weights.inline else weights.every():
            write_text(folder / WEIGHTS / f"{name}.js", f'tokenmillWeights("{name}","{text}");\n')
    files = sorted((target / WEIGHTS).glob("*.js"))
    return Site(
        page=target / INDEX,
        epochs=numbers,
        page_bytes=(target / INDEX).stat().st_size,
        files=files,
        files_bytes=sum(file.stat().st_size for file in files),
    )


def _refuse_others(target: Path) -> None:
    """Refuse a folder with anything that `publish` does not write."""
    if not target.exists():
        return
    page = target / INDEX
    if not page.is_file() or MARK not in read_bytes(page).decode("utf-8", "replace"):
        raise UserError(f"{target} exists and was not published; name another folder by --output.")
    known = {INDEX, ".nojekyll", paths.DATA_REPORT.name, paths.SAMPLES.name}
    for path in sorted(target.rglob("*")):
        inside = path.relative_to(target)
        is_weights = inside.parts[0] == WEIGHTS and (path.is_dir() or FILE.fullmatch(path.name))
        if not is_weights and inside.as_posix() not in known:
            raise UserError(
                f"{path} was not published, and would be lost; name another folder by --output."
            )


def _report(root: Path, fingerprint: str) -> str:
    """The page of the stage `report`, which must be of this run and have a place to talk."""
    path = root / paths.RUN_REPORT
    try:
        report = read_bytes(path).decode("utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        raise UserError(f"{path} is missing or damaged; {REPORT_AGAIN}.") from None
    if fingerprint not in report:
        raise UserError(f"{path} is of another run than the model; {REPORT_AGAIN}.")
    if report.count(TALK) != 1 or report.count(BODY_END) != 1 or len(POLICY.findall(report)) != 1:
        raise UserError(f"{path} was written by another version; {REPORT_AGAIN}.")
    return report


def _weights(
    root: Path, epochs: Sequence[int], tokenizer: TextTokenizer, precision: Precision
) -> Weights:
    parts = {}
    about: dict[str, Any] = {}
    for epoch in epochs:
        checkpoint = find_model(root, epoch=epoch)
        model = load_model(checkpoint.folder)
        check_tokenizer(checkpoint, model, tokenizer)
        about = describe(model, precision)
        parts[epoch] = _parts(model, epoch, precision)
    return Weights(parts, about)


def _parts(model: GPT, epoch: int, precision: Precision) -> dict[str, str]:
    """The weights of an epoch in base64. Names hold the hash, so that no browser takes a part of
    another model from its cache."""
    data = packed(model, precision)
    name = f"epoch-{epoch}-{hashlib.sha256(data).hexdigest()[:12]}"
    return {
        f"{name}-{number}": base64.b64encode(data[start : start + PART_BYTES]).decode()
        for number, start in enumerate(range(0, len(data), PART_BYTES))
    }


def _data(
    weights: Weights,
    evaluation: Evaluation,
    tokenizer: TextTokenizer,
    sampling: Sampling,
) -> dict[str, Any]:
    """What the page knows besides the weights."""
    turns = {role: tokenizer.turn_ids[mark] for role, mark in START.items()}
    return {
        "about": weights.about,
        "asks": evaluation.asks,
        "classes": character_classes(),
        "end": tokenizer.eot_id,
        "epochs": {epoch: {"parts": list(parts)} for epoch, parts in weights.parts.items()},
        "folder": WEIGHTS,
        "questions": _questions(evaluation, list(weights.parts)),
        "sampling": asdict(sampling),
        "spellings": {tokenizer.turn_ids[mark]: SHOWN[mark] for mark in TURN_TOKENS},
        "tokenizer": json.loads(tokenizer.backend.to_str()),
        "turns": turns | {"end": tokenizer.turn_ids[TURN_END]},
    }


def _questions(evaluation: Evaluation, epochs: Sequence[int]) -> list[dict[str, Any]]:
    """The fixed prompts with the greedy answers of these epochs."""
    return [
        {
            "prompt": question.prompt,
            "kind": question.kind,
            "greedy": {
                result.epoch: result.answers[number].greedy
                for result in evaluation.epochs
                if result.epoch in epochs
            },
        }
        for number, question in enumerate(evaluation.questions)
        if _is_as_asked(question)
    ]


def _is_as_asked(question: Question) -> bool:
    """Whether the model was asked this very text, and not a conversation that people see as it."""
    return question.kind == "user" or not NO_PROMPT.match(question.prompt)


def _page(report: str, data: dict[str, Any], weights: Weights) -> str:
    """The report with everything in its place."""
    code = _part("talk.js")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; worker-src blob:; "
        f"script-src 'sha256-{digest}'"
    )
    blocks = {"talk-data": _json(data), "talk-worker": "\n".join(map(_part, WORKER))}
    if weights.inline:
        blocks |= dict(weights.every())
    else:
        policy += " 'self' file:"  # beside a page on a disk, 'self' is nothing
    scripts = [
        f'<script type="text/plain" id="{name}">{text}</script>' for name, text in blocks.items()
    ]
    place = f"<style>\n{_part('talk.css')}</style>\n{_part('talk.html')}"
    end = "\n".join([*scripts, f"<script>{code}</script>", BODY_END])
    page = POLICY.sub(rf"{MARK}\n\g<1>{policy}\g<2>", report)
    return page.replace(TALK, place).replace(BODY_END, end)


def _part(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """JSON that no HTML parser takes for the end of its script."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
