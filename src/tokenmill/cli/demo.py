"""`tokenmill demo`: a page on which the trained models answer, served until Ctrl-C."""

import argparse
import contextlib
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.generate import default_sampling, evaluate_params
from tokenmill.cli.main import Parser, port
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.display import say

if TYPE_CHECKING:
    from tokenmill.demo.models import Models
    from tokenmill.evaluation.prompts import EvaluateParams

EXAMPLES = """\
  tokenmill demo                              all epochs and experiments, in your browser
  tokenmill demo --open --port 8000
  tokenmill demo --model /path/to/model       a further folder, as `tokenmill export` writes it
  tokenmill demo --host 0.0.0.0               for everybody in the network
  tokenmill demo --host-name demo.example.org behind a proxy that keeps this Host header
"""


def add_arguments(parser: Parser) -> None:
    """Declare where to listen, and which further models to offer."""
    parser.add_argument(
        "--port", type=port, default=7860, metavar="N", help="0 is any free one (default 7860)"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where to listen (default: only this machine)",
    )
    parser.add_argument(
        "--host-name",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="a proxy's names for this page",
    )
    parser.add_argument(
        "--model",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="FOLDER",
        help="further models to offer",
    )
    parser.add_argument("--open", action="store_true", help="open the browser")


def run(options: argparse.Namespace) -> None:
    """Check that there is something to serve, then serve."""
    from tokenmill.core.params import PARAMS_FILE
    from tokenmill.demo.models import Models

    root = Path()
    evaluate = evaluate_params()
    if evaluate is None and not options.model:
        raise UserError(
            f"{PARAMS_FILE} is missing in {root.resolve()}; run the command in the project's "
            "root, or name models by --model FOLDER."
        )
    models = Models(root, options.model)
    models.check()
    _serve(options, models, evaluate)


def _examples(root: Path, evaluate: "EvaluateParams | None") -> list[dict[str, Any]]:
    """The page's examples where there is no report: the prompts in params.yaml, otherwise those
    that the last evaluation chose."""
    from tokenmill.evaluation.results import Evaluation
    from tokenmill.formats.records import read_record
    from tokenmill.publish.talk import questions_of

    if evaluate is None:
        return []
    if evaluate.prompts == "auto":
        with contextlib.suppress(UserError):
            return questions_of(read_record(root / paths.EVALUATION, Evaluation), {})
        return []
    return [
        {"prompt": one.user or one.text, "kind": "user" if one.user else "text", "greedy": {}}
        for one in evaluate.prompts
    ]


def _serve(
    options: argparse.Namespace, models: "Models", evaluate: "EvaluateParams | None"
) -> None:
    from tokenmill.demo import server
    from tokenmill.demo.pages import Pages

    with contextlib.closing(server.bound(options.host, options.port)) as listener:
        examples = _examples(models.root, evaluate)
        pages = Pages(models, default_sampling(evaluate), examples)
        threading.Thread(target=pages.prepare, daemon=True).start()
        say(f"the demo is at {server.url(listener)} (Ctrl-C ends it)")
        if server.is_public(listener):
            say("everybody in the network can open it, read its models, and trace texts here")
        if options.open:
            webbrowser.open(server.url(listener))
        server.serve(pages, listener, options.host_name)
