"""`tokenmill demo`: a page on which the trained models answer, served until Ctrl-C."""

import argparse
import contextlib
import os
import threading
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.main import Parser, port
from tokenmill.core import paths
from tokenmill.core.errors import UserError
from tokenmill.display import say
from tokenmill.stage import set_wait_policy

if TYPE_CHECKING:
    from tokenmill.demo.models import Models
    from tokenmill.evaluation.prompts import EvaluateParams, PromptParams

MODELS_IN_MEMORY = 4
"""The most models in memory: enough for the two columns of two readers."""

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
    """Check that there is something to serve before the slow import of Gradio, then serve."""
    set_wait_policy()
    from tokenmill.cli.generate import evaluate_params  # noqa: PLC0415 (pydantic, as the next two)
    from tokenmill.core.params import PARAMS_FILE  # noqa: PLC0415
    from tokenmill.demo.models import Models  # noqa: PLC0415

    if find_spec("gradio") is None:
        raise UserError(
            "the demo needs Gradio; `pip install -c constraints.txt -e '.[demo]'` installs it."
        )
    root = Path()
    evaluate = evaluate_params(root)
    if evaluate is None and not options.model:
        raise UserError(
            f"{PARAMS_FILE} is missing in {root.resolve()}; run the command in the project's "
            "root, or name models by --model FOLDER."
        )
    models = Models(root, options.model)
    models.check()
    _serve(options, models, evaluate)


def _prompts(root: Path, evaluate: "EvaluateParams | None") -> "list[PromptParams]":
    """The prompts of the evaluation: those in params.yaml, otherwise those that the last evaluation
    chose."""
    from tokenmill.evaluation.prompts import PromptParams  # noqa: PLC0415 (pydantic)
    from tokenmill.evaluation.results import read_evaluation  # noqa: PLC0415

    if evaluate is None:
        return []
    if evaluate.prompts != "auto":
        return evaluate.prompts
    try:
        questions = read_evaluation(root / paths.EVALUATION).questions
    except UserError:
        return []
    return [PromptParams.model_validate({question.kind: question.prompt}) for question in questions]


def _serve(
    options: argparse.Namespace, models: "Models", evaluate: "EvaluateParams | None"
) -> None:
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # Gradio reads it when it is imported
    import torch  # noqa: PLC0415

    from tokenmill.cli.generate import default_sampling  # noqa: PLC0415
    from tokenmill.demo import server  # noqa: PLC0415
    from tokenmill.demo.answering import WRITING_AT_ONCE, Answering  # noqa: PLC0415
    from tokenmill.demo.models import Loaded  # noqa: PLC0415
    from tokenmill.demo.page import page  # noqa: PLC0415

    torch.set_num_threads(max(1, torch.get_num_threads() // WRITING_AT_ONCE))
    with contextlib.closing(server.bound(options.host, options.port)) as listener:
        answering = Answering(models, Loaded(MODELS_IN_MEMORY))
        threading.Thread(target=answering.prepare, daemon=True).start()
        whole = page(answering, default_sampling(evaluate), _prompts(models.root, evaluate))
        say(f"the demo is at {server.url(listener)} (Ctrl-C ends it)")
        if server.is_public(listener):
            say("everybody in the network can open it, and everybody's prompts run on this machine")
        if options.open:
            webbrowser.open(server.url(listener))
        server.serve(whole, listener, options.host_name)
