"""The page of the demo: models to choose, one or two conversations side by side, a prompt, the
sampling.

A question continues the conversation, as in the chat of `tokenmill generate`. A click on an example
asks it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr
from gradio.events import Dependency
from gradio.themes import Base

from tokenmill.core.errors import UserError
from tokenmill.demo.answering import (
    FIELDS,
    MOST_CHARACTERS,
    MOST_TOKENS,
    NONE,
    QUESTION,
    TEXT,
    WRITING_AT_ONCE,
    Answering,
    Turn,
    html,
)
from tokenmill.evaluation.generate import Sampling
from tokenmill.evaluation.prompts import PromptParams
from tokenmill.words.units import visible

QUEUE = 32
"""The most answers that may wait."""

LOOKING_UP_AT_ONCE = 4
"""The number of pages that can look up the models at the same time."""

HEAD = """\
<h1>Ask the model</h1>
<p>Choose an epoch of a trained model, or two to compare, and ask;
each question continues the conversation.</p>
"""


STYLE = """\
.gradio-container { max-width: 60rem !important; margin: 0 auto !important; }
.head h1 { font-size: 1.5rem; font-weight: 600; margin-bottom: .25rem; }
.answer { padding-top: .5rem; min-height: 8rem; }
.answer .turn + .turn { margin-top: 1.5rem; }
.answer .asked { width: fit-content; max-width: 90%; margin: 0 0 .75rem auto; padding: .5rem .75rem;
  border-radius: .75rem; background: var(--background-fill-secondary); }
.answer .asked, .answer .words { white-space: pre-wrap; overflow-wrap: anywhere;
  unicode-bidi: isolate; }
.answer .of, .answer .quiet { color: var(--body-text-color-subdued); font-size: .8125rem;
  overflow-wrap: anywhere; }
.answer .refusal { border-left: 3px solid var(--error-border-color); padding-left: .875rem;
  overflow-wrap: anywhere; }
#prompt textarea { unicode-bidi: plaintext; }
"""
"""The style that a theme of Gradio cannot express. Answers are text, in either direction."""


THEME = Base(
    primary_hue="blue",
    neutral_hue="slate",
    font=("system-ui", "sans-serif"),
    font_mono=("ui-monospace", "monospace"),
)
"""The theme. It uses system fonts, so that no font is loaded from anywhere."""

# Gradio does not check values, because its exceptions would go to the terminal; `Answering` checks
# them.
UNCHECKED: dict[str, Any] = {"show_progress": "hidden", "preprocess": False}
PRIVATE: dict[str, Any] = UNCHECKED | {
    "api_visibility": "private",
    "concurrency_limit": LOOKING_UP_AT_ONCE,
}


class Column:
    """The drop-downs of one model, and its conversation."""

    def __init__(self, answering: Answering, *, side: str, optional: bool):
        """Build the drop-downs in the layout that is open now; `place_answer` builds the
        conversation."""
        self._answering = answering
        self._side = side
        self._optional = optional
        self.turns = gr.State([])
        with gr.Row():
            label = "Compare with" if optional else "Model"
            known = {"choices": [NONE], "value": NONE} if optional else {}
            self.name = gr.Dropdown(
                label=label, elem_id=f"{side}-model", scale=3, min_width=120, **known
            )
            self.epoch = gr.Dropdown(label="Epoch", elem_id=f"{side}-epoch", scale=1, min_width=90)

    def place_answer(self) -> None:
        """Build the conversation in the layout that is open now."""
        with gr.Column(visible=not self._optional, min_width=280) as self.place:
            self.answer = gr.HTML(
                elem_id=f"{self._side}-answer", elem_classes="answer", apply_default_css=False
            )

    def follow(self, page: gr.Blocks) -> None:
        """Look up the models when the page is opened, and follow the choice of a model."""
        outputs = [self.name, self.epoch, self.place, self.answer, self.turns]
        waiting: dict[str, Any] = PRIVATE | {
            "show_progress": "minimal",
            "show_progress_on": self.epoch,
        }
        page.load(self._opened, None, outputs, **PRIVATE)
        self.name.input(self._chosen, self.name, outputs, **waiting)

    def ask(self, asked: Dependency, values: Sequence[Any], *, api: bool) -> Dependency:
        """Answer when `values` are there: a prompt, its kind, and the sampling."""
        prompt, kind, *sampling = values
        public: dict[str, Any] = {"api_name": self._side} if api else {"api_visibility": "private"}
        return asked.then(
            self._answering.answer,
            [self.name, self.epoch, prompt, kind, self.turns, *sampling],
            [self.answer, self.turns],
            trigger_mode="once",
            concurrency_limit=WRITING_AT_ONCE,
            concurrency_id="writing",
            **UNCHECKED | public,
        )

    def _opened(self) -> list[Any]:
        """Offer all models and choose the first."""
        try:
            labels = self._answering.models.labels()
        except UserError as error:
            return [gr.skip(), gr.skip(), gr.skip(), _refused(error), []]
        labels = [(NONE, NONE), *labels] if self._optional else labels
        return [gr.update(choices=labels, value=labels[0][1]), *self._epochs(labels[0][1])]

    def _chosen(self, name: str) -> Iterator[list[Any]]:
        """After the choice of another model, first clear what belongs to the former one, then show
        the epochs."""
        yield [gr.skip(), gr.update(value=None), gr.update(visible=name != NONE), "", []]
        yield [gr.skip(), *self._epochs(name)]

    def _epochs(self, name: str) -> list[Any]:
        sentence = gr.skip()
        epochs = list[int]()
        try:
            epochs = self._answering.models.epochs(name)
        except (UserError, OSError) as error:
            sentence = _refused(error)
        last = epochs[-1] if epochs else None
        return [
            gr.update(choices=epochs, value=last, visible=bool(epochs)),
            gr.skip(),
            sentence,
            [],
        ]


def _refused(error: Exception) -> str:
    return html([Turn("", QUESTION, notes=[], refused=str(error))])


def page(answering: Answering, sampling: Sampling, prompts: Sequence[PromptParams]) -> gr.Blocks:
    """Build the page, with the initial sampling and prompts to click on."""
    with gr.Blocks(title="TokenMill", analytics_enabled=False) as whole:
        gr.HTML(HEAD, elem_classes="head", apply_default_css=False)
        with gr.Row():
            columns = (
                Column(answering, side="left", optional=False),
                Column(answering, side="right", optional=True),
            )
        with gr.Row():
            for column in columns:
                column.place_answer()
                column.follow(whole)
        kind, prompt, asked = _prompt_fields()
        with gr.Row():
            write = gr.Button("Write", variant="primary", elem_id="write", min_width=120, scale=0)
            stop = gr.Button("Stop", elem_id="stop", min_width=120, scale=0)
            anew = gr.Button("New conversation", elem_id="anew", min_width=220, scale=0)
        examples = _examples(prompts)
        values = [asked, kind, *_sampling_fields(sampling)]
        sent = gr.on(
            [write.click, prompt.submit],
            None,
            prompt,
            [asked, prompt],
            js="text => [text, '']",
            api_visibility="private",
        )
        chosen = examples.click(
            lambda index: _example(prompts[index]),
            examples,
            [asked, kind],
            show_progress="hidden",
            api_visibility="private",
        )
        writing: list[Any] = [
            column.ask(event, values, api=event is sent)
            for event in (sent, chosen)
            for column in columns
        ]
        stop.click(None, cancels=writing, api_visibility="private")
        # Otherwise the last words of a cancelled answer would come after the clearing
        ended = anew.click(None, cancels=writing, api_visibility="private")
        ended.then(
            lambda: ["", [], "", []],
            outputs=[part for column in columns for part in (column.answer, column.turns)],
            **PRIVATE,
        )
    whole.queue(max_size=QUEUE)
    return whole


def _prompt_fields() -> tuple[gr.Radio, gr.Textbox, gr.Textbox]:
    """The kind of the prompt, the field where it is typed, and a hidden field for the prompt that
    was sent."""
    hidden: dict[str, Any] = {"show_label": False, "container": False}
    with gr.Group():
        kind = gr.Radio(
            [QUESTION, TEXT], value=QUESTION, label="The prompt is", elem_id="kind", **hidden
        )
        prompt = gr.Textbox(
            label="Prompt",
            show_label=False,
            lines=1,
            max_lines=12,
            max_length=MOST_CHARACTERS,
            autofocus=True,
            elem_id="prompt",
            placeholder="Enter to write, Shift+Enter for a new line",
        )
    return kind, prompt, gr.Textbox(visible=False)


def _examples(prompts: Sequence[PromptParams]) -> gr.Dataset:
    """The prompts of the evaluation. A click on one asks it."""
    return gr.Dataset(
        label="Prompts of the evaluation: a click asks",
        components=[gr.Textbox(visible=False)],
        samples=[[visible(_example(entry)[0])] for entry in prompts],
        type="index",
        samples_per_page=max(1, len(prompts)),
        elem_id="examples",
        visible=bool(prompts),
    )


def _example(entry: PromptParams) -> tuple[str, str]:
    return (entry.user, QUESTION) if entry.user else (entry.text or "", TEXT)


def _sampling_fields(sampling: Sampling) -> list[gr.Slider | gr.Number]:
    temperature = sampling.temperature
    top_k = sampling.top_k or 0
    length = min(sampling.max_new_tokens, MOST_TOKENS)
    top_p = sampling.top_p or 1
    penalty = sampling.repetition_penalty
    with gr.Accordion("Sampling", open=False):
        shown = {
            "temperature": gr.Slider(
                0,
                max(2, temperature),
                temperature,
                step=0.05,
                label="Temperature (0: greedy)",
                buttons=[],
            ),
            "top_k": gr.Slider(
                0, max(200, top_k), top_k, step=1, label="Top-k (0: all)", buttons=[]
            ),
            "top_p": gr.Slider(0.05, 1, top_p, step=0.05, label="Top-p (1: all)", buttons=[]),
            "repetition_penalty": gr.Slider(
                1,
                max(2, penalty),
                penalty,
                step=0.05,
                label="Repetition penalty (1: none)",
                buttons=[],
            ),
            "max_new_tokens": gr.Slider(
                1, MOST_TOKENS, length, step=1, label="Length in tokens", buttons=[]
            ),
            "seed": gr.Number(sampling.seed, precision=0, label="Seed"),
        }
    return [shown[name] for name in FIELDS]
