"""Write the folder of `tokenmill publish`: the run report with a place to talk to every epoch.

The report is the page that the stage `report` wrote. Weights lie in it; larger ones lie in files
beside it, as scripts.
"""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_bytes, write_directory, write_text
from tokenmill.core.params import Mode, typed_mode
from tokenmill.evaluation.results import Evaluation
from tokenmill.evaluation.sampling import Sampling
from tokenmill.formats.tokenizer import TextTokenizer, read_tokenizer
from tokenmill.model.manifest import read_manifest
from tokenmill.publish.cleaning import cleaning_rules
from tokenmill.publish.parts import PackedEpoch, script, tokenizer_name, tokenizer_part
from tokenmill.publish.talk import POLICY, questions_of, read_results, talking_page
from tokenmill.publish.weights import Precision, pack
from tokenmill.runs.find import chosen_epoch, find_model
from tokenmill.runs.under_way import unfinished
from tokenmill.runs.writer import load_pair

INDEX = "index.html"
WEIGHTS = "weights"
"""The folder beside the page for weights that are too large to lie in it."""

MARK = '<meta name="generator" content="tokenmill publish">'
"""A page with this line was published, so publishing again may replace it."""

INLINE_BYTES = 12_000_000
"""The most bytes of all weights together that lie in the page; in base64 16 MB."""

FILE = re.compile(r"epoch-\d+-[0-9a-f]{12}-\d+\.js")
ABOUT = "The model of every epoch runs in this page. Nothing that you write leaves it."


def publish(
    root: Path,
    target: Path,
    sampling: Sampling,
    *,
    epochs: Sequence[int] | None = None,
    precision: Precision = "int8",
) -> list[int]:
    """Write the folder `target` for the run in the project at `root`, whole or not at all. A folder
    that was published before is replaced. Return the epochs that it has.

    Args:
        root: the folder of the project.
        target: the folder to write.
        sampling: what the page's fields begin with.
        epochs: the epochs to talk to; None means all.
        precision: in which matrices are stored.

    Raises:
        UserError: the training is not finished, evaluation or report is missing or of another
            model, an epoch is missing or damaged, or something else or a stage writes to `target`.
    """
    _refuse_others(target, root)
    if run := unfinished(root):
        raise UserError(f"{run.sentence}; a run is published when it is finished.")
    manifest = read_manifest(root / paths.MODEL)
    report, evaluation = read_results(root, manifest.weights)
    wanted = epochs or range(1, manifest.epochs + 1)
    numbers = sorted({chosen_epoch(each, manifest.epochs, "the workspace") for each in wanted})
    tokenizer = read_tokenizer(root / paths.TOKENIZER)
    packed = {
        number: pack(*load_pair(find_model(root, epoch=number)), epoch=number, precision=precision)
        for number in numbers
    }
    is_inline = sum(len(epoch.data) for epoch in packed.values()) <= INLINE_BYTES
    page = talking_page(
        POLICY.sub(rf"{MARK}\n\g<0>", report),
        _data(numbers, evaluation, sampling, typed_mode(root)),
        about=ABOUT,
        blocks=_blocks(packed, tokenizer) | (dict(_weights(packed)) if is_inline else {}),
        policy="" if is_inline else " 'self' file:",  # beside a page on a disk, 'self' is nothing
    )
    with write_directory(target) as folder:
        write_text(folder / INDEX, page)
        write_text(folder / ".nojekyll", "")  # GitHub Pages serves the files as they are
        for file in (paths.DATA_REPORT, paths.SAMPLES):
            if (root / file).exists():
                shutil.copyfile(root / file, folder / file.name)
        for name, text in () if is_inline else _weights(packed):
            write_text(folder / WEIGHTS / f"{name}.js", script(name, text))
    return numbers


def _refuse_others(target: Path, root: Path) -> None:
    """Refuse a folder with anything that `publish` does not write, and one of a stage."""
    paths.refuse_output(target, root)
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


def _blocks(packed: Mapping[int, PackedEpoch], tokenizer: TextTokenizer) -> dict[str, str]:
    """The parts that lie in the page in any case."""
    epochs = {_name_of(number): epoch.description() for number, epoch in packed.items()}
    return epochs | {tokenizer_name(tokenizer.sha256): tokenizer_part(tokenizer)}


def _weights(packed: Mapping[int, PackedEpoch]) -> Iterator[tuple[str, str]]:
    """The parts of all weights, each with its name."""
    for epoch in packed.values():
        for name in epoch.parts:
            yield name, epoch.part(name)


def _name_of(epoch: int) -> str:
    """The name of the part that describes an epoch."""
    return f"about-epoch-{epoch}"


def _data(
    epochs: Sequence[int], evaluation: Evaluation, sampling: Sampling, mode: Mode
) -> dict[str, Any]:
    """What the page knows besides the parts."""
    offered = [{"number": n, "name": f"epoch {n}", "part": _name_of(n)} for n in epochs]
    return {
        "cleaning": cleaning_rules(mode),
        "folder": WEIGHTS,
        "models": [{"label": "this run", "epochs": offered}],
        "questions": questions_of(evaluation, {n: _name_of(n) for n in epochs}),
        "sampling": asdict(sampling),
        "unreachable": "it must lie beside this page",
    }
