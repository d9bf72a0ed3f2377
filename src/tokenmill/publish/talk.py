"""A page with a place to talk, from a page that has `TALK` and `page/`.

The styles, the form, the code of the page and that of its worker come in, the data, and the parts
that shall lie in it. A policy in the page allows its own script by its hash, and no request to
anywhere else.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.core.files import read_bytes
from tokenmill.evaluation.results import Evaluation
from tokenmill.formats.chat import SHOWN
from tokenmill.publish.parts import as_json
from tokenmill.runs.consistency import read_own_evaluation

PAGE = Path(__file__).with_name("page")
WORKER = ("tokenizer.js", "cleaning.js", "model.js", "writing.js", "worker.js")
"""The parts of the worker's code, in their order."""

TALK = "<!-- talk -->"
"""Where a page has the place to talk (reports/templates/run_report.html)."""
ABOUT = "<!-- about -->"
"""Where that place says where the models run."""
BODY_END = "</body>"
POLICY = re.compile(r'(<meta http-equiv="Content-Security-Policy" content=")[^"]*(">)')

REPORT_AGAIN = "`dvc repro -sf report` writes it"
NO_PROMPT = re.compile("|".join(shown.strip() for shown in SHOWN.values() if shown))
"""Begins a conversation as people see it, which is not the text that the model was asked."""


def read_results(root: Path, weights: Iterable[str]) -> tuple[str, Evaluation]:
    """The page of the stage `report`, which must name the weights of all epochs by these hashes and
    have a place to talk, and the evaluation of the same model."""
    evaluation = read_own_evaluation(root)  # first, because without it there is no such page
    path = root / paths.RUN_REPORT
    try:
        report = read_bytes(path).decode("utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        raise UserError(f"{path} is missing or damaged; {REPORT_AGAIN}.") from None
    if not all(one in report for one in weights):
        raise UserError(f"{path} is of another run than the model; {REPORT_AGAIN}.")
    if report.count(TALK) != 1 or report.count(BODY_END) != 1 or len(POLICY.findall(report)) != 1:
        raise UserError(f"{path} was written by another version; {REPORT_AGAIN}.")
    return report, evaluation


def questions_of(evaluation: Evaluation, epochs: Mapping[int, str]) -> list[dict[str, Any]]:
    """The fixed prompts with the greedy answers of these epochs, by the names of the parts that
    describe them."""
    return [
        {
            "prompt": question.prompt,
            "kind": question.kind,
            "greedy": {
                epochs[result.epoch]: result.answers[number].greedy
                for result in evaluation.epochs
                if result.epoch in epochs
            },
        }
        for number, question in enumerate(evaluation.questions)
        if question.kind == "user" or not NO_PROMPT.match(question.prompt)
    ]


def talking_page(
    frame: str,
    data: Mapping[str, Any],
    *,
    about: str,
    blocks: Mapping[str, str],
    code: Sequence[str] = ("talk.js",),
    policy: str = "",
) -> str:
    """A page with everything in its place.

    Args:
        frame: the page around, with `TALK` and a policy.
        data: what the page knows; `page/talk.js` reads it.
        about: a sentence about where the models run, without markup.
        blocks: the parts that lie in the page, by name.
        code: the files of `page/` that are its script.
        policy: what the policy goes on with behind the script's hash; by itself nothing else is
            loaded.
    """
    script = "\n".join(map(_file, code))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    whole = (
        "default-src 'none'; style-src 'unsafe-inline'; worker-src blob:; "
        f"script-src 'sha256-{digest}'{policy}"
    )
    texts = {"talk-data": as_json(data), "talk-worker": "\n".join(map(_file, WORKER)), **blocks}
    scripts = [
        f'<script type="text/plain" id="{name}">{text}</script>' for name, text in texts.items()
    ]
    place = f"<style>\n{_file('talk.css')}</style>\n{_file('talk.html').replace(ABOUT, about)}"
    end = "\n".join([*scripts, f"<script>{script}</script>", BODY_END])
    page = POLICY.sub(rf"\g<1>{whole}\g<2>", frame)
    return page.replace(TALK, place).replace(BODY_END, end)


def _file(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")
