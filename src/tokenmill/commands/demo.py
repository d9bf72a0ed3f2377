"""The demo: what it needs is looked at before Gradio, which takes seconds to load; then it serves until Ctrl-C."""

import contextlib
import os
import webbrowser
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from tokenmill.demo.address import bound, is_public, url
from tokenmill.demo.answering import WRITING_AT_ONCE, Answering
from tokenmill.demo.loaded import Loaded
from tokenmill.demo.models import Models
from tokenmill.errors import UserError
from tokenmill.evaluation.params import EvaluateParams
from tokenmill.params import PARAMS_FILE, Section, load

ROOM = 4
"""Models in memory: the two columns of two readers."""


class Params(Section):
    """What the demo reads of params.yaml."""

    evaluate: EvaluateParams


def serve(root: Path, *, host: str, port: int, folders: Sequence[Path], open_browser: bool) -> None:
    """Serve the page for the project at `root` until Ctrl-C.

    Raises:
        UserError: Gradio is not installed, there is no model, a folder holds none, or the port is taken.
    """
    if find_spec("gradio") is None:
        raise UserError("the demo needs Gradio; `pip install -c constraints.txt -e '.[demo]'` installs it.")
    defaults = load(Params, root / PARAMS_FILE).evaluate
    models = Models(root, folders)
    models.check()
    with contextlib.closing(bound(host, port)) as listener:
        torch.set_num_threads(max(1, torch.get_num_threads() // WRITING_AT_ONCE))
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        from tokenmill.demo import page, server  # noqa: PLC0415 (Gradio takes seconds to load, and is optional)

        whole = page.page(Answering(models, Loaded(ROOM)), defaults)
        print(f"the demo is at {url(listener)} (Ctrl-C ends it)", flush=True)
        if is_public(listener):
            print("everybody in the network can open it, and everybody's prompts run on this machine", flush=True)
        if open_browser:
            webbrowser.open(url(listener))
        server.serve(whole, listener)
