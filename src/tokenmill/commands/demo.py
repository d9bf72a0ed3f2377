"""The demo: what it needs is looked at before Gradio, which takes seconds to load; then it serves until Ctrl-C."""

import contextlib
import os
import threading
import webbrowser
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from tokenmill.commands.asking import evaluate_params, sampling_values
from tokenmill.core.errors import UserError
from tokenmill.core.params import PARAMS_FILE
from tokenmill.demo.answering import WRITING_AT_ONCE, Answering
from tokenmill.demo.models import Loaded, Models
from tokenmill.demo.server import bound, is_public, url
from tokenmill.model.sampler import Sampling

ROOM = 4
"""Models in memory: the two columns of two readers."""


def serve(root: Path, *, host: str, port: int, folders: Sequence[Path], open_browser: bool) -> None:
    """Serve the page for the project at `root`, or for `folders` alone, until Ctrl-C.

    Raises:
        UserError: Gradio is not installed, there is no model, a folder holds none, or the port is taken.
        KeyboardInterrupt: Ctrl-C.
    """
    if find_spec("gradio") is None:
        raise UserError("the demo needs Gradio; `pip install -c constraints.txt -e '.[demo]'` installs it.")
    evaluate = evaluate_params(root)
    if evaluate is None and not folders:
        raise UserError(
            f"{PARAMS_FILE} is missing in {root.resolve()}; run the command in the project's root, or name models "
            "by --model FOLDER."
        )
    models = Models(root, folders)
    models.check()
    with contextlib.closing(bound(host, port)) as listener:
        torch.set_num_threads(max(1, torch.get_num_threads() // WRITING_AT_ONCE))
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        from tokenmill.demo import page, server  # noqa: PLC0415 (Gradio reads the variable above)

        answering = Answering(models, Loaded(ROOM))
        threading.Thread(target=answering.prepare, daemon=True).start()
        whole = page.page(answering, Sampling(**sampling_values(evaluate)), evaluate.prompts if evaluate else [])
        print(f"the demo is at {url(listener)} (Ctrl-C ends it)", flush=True)
        if is_public(listener):
            print("everybody in the network can open it, and everybody's prompts run on this machine", flush=True)
        if open_browser:
            webbrowser.open(url(listener))
        server.serve(whole, listener)
