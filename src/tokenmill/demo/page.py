"""The demo's page and the server behind it.

The page has models to choose, a prompt, the sampling, and one or two answers side by side. The socket listens before
anything slow begins, so that a browser finds the page at once.
"""

import ipaddress
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import gradio as gr
import uvicorn
from fastapi import FastAPI
from gradio.events import Dependency
from gradio.themes import Base

from tokenmill.core.errors import UserError
from tokenmill.demo.answering import MOST_TOKENS, NONE, QUESTION, TEXT, WRITING_AT_ONCE, Answer, Answering
from tokenmill.evaluation.params import PromptParams
from tokenmill.model.generate import Sampling

QUEUE = 32
"""Answers that may wait."""


HEAD = """\
<h1>Ask the model</h1>
<p>Choose an epoch of a trained model, or two to compare.</p>
"""


STYLE = """\
.gradio-container { max-width: 60rem !important; margin: 0 auto !important; }
.answer { border-top: 1px solid var(--border-color-primary); padding-top: 1rem; min-height: 8rem; }
.answer .words { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; }
.answer .of, .answer .quiet { color: var(--body-text-color-subdued); font-size: .8125rem; overflow-wrap: anywhere; }
.answer .refusal { border-left: 3px solid var(--error-border-color); padding-left: .875rem; overflow-wrap: anywhere; }
#prompt textarea { unicode-bidi: plaintext; }
"""
"""What a theme of Gradio cannot express: answers are text, in either direction."""


class Column:
    """One model's drop-downs and its answer."""

    def __init__(self, answering: Answering, *, side: str, optional: bool):
        """Build the drop-downs in the layout that is open now; `place_answer` builds the answer."""
        self._answering, self._side, self._optional = answering, side, optional
        with gr.Row():
            label = "Compare with" if optional else "Model"
            self.name = gr.Dropdown(label=label, elem_id=f"{side}-model", scale=3, min_width=120)
            self.epoch = gr.Dropdown(label="Epoch", elem_id=f"{side}-epoch", scale=1, min_width=90)

    def place_answer(self) -> None:
        """Build the answer in the layout that is open now."""
        with gr.Column(visible=not self._optional, min_width=280) as self.place:
            self.answer = gr.HTML(elem_id=f"{self._side}-answer", elem_classes="answer", apply_default_css=False)

    def listen(self, page: gr.Blocks, asking: Sequence[Any], asked: Sequence[Any]) -> Dependency:
        """Look up the models when the page is opened, follow the choice of a model, and answer what is `asked`."""
        outputs = [self.name, self.epoch, self.place, self.answer]
        # Gradio does not check values, because its exceptions would go to the terminal; `Answering` checks them.
        unchecked: dict[str, Any] = {"show_progress": "hidden", "preprocess": False}
        private = unchecked | {"outputs": outputs, "api_visibility": "private", "concurrency_limit": None}
        page.load(self._opened, **private)
        waiting: dict[str, Any] = {"show_progress": "minimal", "show_progress_on": self.epoch}
        self.name.input(self._chosen, self.name, **private | waiting)
        return gr.on(
            asking,
            self._answering.answer,
            [self.name, self.epoch, *asked],
            self.answer,
            api_name=self._side,
            trigger_mode="once",
            concurrency_limit=WRITING_AT_ONCE,
            concurrency_id="writing",
            **unchecked,
        )

    def _opened(self) -> list[Any]:
        """Offer all models and choose the first."""
        try:
            names = self._answering.models.names()
        except UserError as error:
            return [gr.skip(), gr.skip(), gr.skip(), Answer().html(refused=str(error))]
        names = [NONE, *names] if self._optional else names
        return [gr.update(choices=names, value=names[0]), *self._epochs(names[0])]

    def _chosen(self, name: str) -> Iterator[list[Any]]:
        """Another model: clear what belongs to the former one at once, then show its epochs."""
        yield [gr.skip(), gr.update(value=None), gr.update(visible=name != NONE), ""]
        yield [gr.skip(), *self._epochs(name)]

    def _epochs(self, name: str) -> list[Any]:
        """Offer the epochs of a model and choose the last."""
        sentence, epochs = gr.skip(), list[int]()
        try:
            epochs = self._answering.models.epochs(name)
        except (UserError, OSError) as error:
            sentence = Answer().html(refused=str(error))
        last = epochs[-1] if epochs else None
        return [gr.update(choices=epochs, value=last, visible=bool(epochs)), gr.skip(), sentence]


def page(answering: Answering, sampling: Sampling, prompts: Sequence[PromptParams]) -> gr.Blocks:
    """The whole page, with the initial sampling and prompts to click on."""
    with gr.Blocks(title="TokenMill", analytics_enabled=False) as whole:
        gr.HTML(HEAD, apply_default_css=False)
        with gr.Row():
            columns = Column(answering, side="left", optional=False), Column(answering, side="right", optional=True)
        with gr.Group():
            kind = gr.Radio(
                [QUESTION, TEXT],
                value=QUESTION,
                label="The prompt is",
                show_label=False,
                container=False,
                elem_id="kind",
            )
            prompt = gr.Textbox(
                label="Prompt",
                show_label=False,
                lines=1,
                max_lines=12,
                autofocus=True,
                elem_id="prompt",
                placeholder="Enter to write, Shift+Enter for a new line",
            )
        with gr.Row():
            write = gr.Button("Write", variant="primary", elem_id="write", min_width=120, scale=0)
            stop = gr.Button("Stop", elem_id="stop", min_width=120, scale=0)
        fields = _sampling_fields(sampling)
        with gr.Row():
            for column in columns:
                column.place_answer()
        _examples(prompt, kind, prompts)
        asked = [prompt, kind, *fields]
        writing: list[Any] = [column.listen(whole, [write.click, prompt.submit], asked) for column in columns]
        stop.click(None, cancels=writing, api_visibility="private")
    whole.queue(max_size=QUEUE)
    return whole


def _examples(prompt: gr.Textbox, kind: gr.Radio, prompts: Sequence[PromptParams]) -> None:
    """The prompts of the evaluation, to click on."""
    ready = [(entry.user or entry.text or "", QUESTION if entry.user else TEXT) for entry in prompts]
    examples = gr.Dataset(
        label="Prompts of the evaluation",
        components=[prompt],
        samples=[[text] for text, _ in ready],
        type="index",
        samples_per_page=max(1, len(ready)),
        elem_id="examples",
        visible=bool(ready),
    )
    examples.click(
        lambda index: ready[index], examples, [prompt, kind], show_progress="hidden", api_visibility="private"
    )


def _sampling_fields(sampling: Sampling) -> Sequence[gr.Slider | gr.Number]:
    """The sampling, in the order of FIELDS."""
    temperature, top_k, length = sampling.temperature, sampling.top_k or 0, min(sampling.max_new_tokens, MOST_TOKENS)
    with gr.Accordion("Sampling", open=False):
        return (
            gr.Slider(0, max(2, temperature), temperature, step=0.05, label="Temperature (0: greedy)", buttons=[]),
            gr.Slider(0, max(200, top_k), top_k, step=1, label="Top-k (0: all)", buttons=[]),
            gr.Slider(0.05, 1, 1, step=0.05, label="Top-p (1: all)", buttons=[]),
            gr.Slider(1, 2, 1, step=0.05, label="Repetition penalty (1: none)", buttons=[]),
            gr.Slider(1, MOST_TOKENS, length, step=1, label="Length in tokens", buttons=[]),
            gr.Number(sampling.seed, precision=0, label="Seed"),
        )


THEME = Base(
    primary_hue="blue",
    neutral_hue="slate",
    font=("system-ui", "sans-serif"),
    font_mono=("ui-monospace", "monospace"),
)
"""System fonts: none is loaded from anywhere."""


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at the address; port 0 is any free one.

    Raises:
        UserError: the port is taken, or the address is not one of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UserError(f"--host {host} is no address ({error.strerror}); 127.0.0.1 is this machine.") from None
    try:
        if os.name == "posix":  # elsewhere it would share a port that is taken
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise UserError(
            f"--host {host} --port {port} cannot be used ({error.strerror}); "
            "give another --port, or 0 for any free one."
        ) from None
    return listener


def url(listener: socket.socket) -> str:
    """What to open in a browser on this machine."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        return f"http://localhost:{port}"
    return f"http://[{host}]:{port}" if address.version == 6 else f"http://{host}:{port}"


def is_public(listener: socket.socket) -> bool:
    """Whether other machines can reach it."""
    return not ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def serve(page: gr.Blocks, listener: socket.socket) -> None:
    """Serve the page until Ctrl-C; nothing can be uploaded.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    app = gr.mount_gradio_app(
        FastAPI(openapi_url=None),
        page,
        path="/",
        theme=THEME,
        css=STYLE,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        max_file_size=1,
        pwa=False,
        mcp_server=False,
        enable_monitoring=False,
    )
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=0)
    _Server(config).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Cuts off open pages and unfinished answers when it ends, without a message."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().handle_exit(sig, frame)
