"""The section `evaluate` of params.yaml: the fixed prompts and how they are continued."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from tokenmill.core.params import Section

Mark: TypeAlias = Literal["seen", "held_out"]


class PromptParams(Section):
    """One prompt: `user` (a question, put into the conversation template) or `text` (continued as it stands)."""

    user: str | None = Field(default=None, min_length=1)
    """A user's message; the model writes the assistant's answer."""

    text: str | None = Field(default=None, min_length=1)
    """A beginning that the model continues as it stands."""

    expect: str | None = Field(default=None, min_length=1)
    """What a right answer contains; the report says whether it does."""

    mark: Mark | None = None
    """`seen`: the training text has the question and its answer. `held_out`: it has neither the question nor one that
    differs only in its marks or capitals. Right answers are counted apart, as recall and as generalisation."""

    @model_validator(mode="after")
    def _one_of_two(self) -> "PromptParams":
        if (self.user is None) == (self.text is None):
            raise ValueError("each entry of evaluate.prompts needs either `user` or `text`, and not both.")
        return self


_PROMPTS = TypeAdapter(list[PromptParams])


def _auto_or_prompts(value: Any) -> Any:
    if value == "auto" or isinstance(value, list):
        return value if value == "auto" else _PROMPTS.validate_python(value)
    raise ValueError(f"evaluate.prompts ({value!r}) must be 'auto' or a list of prompts.")


class EvaluateParams(Section):
    """What the stage `evaluate` asks the model of each epoch, and how the model answers."""

    prompts: Annotated[Literal["auto"] | list[PromptParams], BeforeValidator(_auto_or_prompts)]
    """The prompts, the same at every epoch. A list holds your own ones; see `user`, `text`, `expect` and `mark`.
    `auto`: the list in `prompts.yaml` in the folder `data.raw`, as the built-in corpus has one; where there is none,
    the beginnings of held-out documents, or the questions of held-out conversations. The report then shows beside each
    answer what really follows, and nothing is right or wrong."""

    max_new_tokens: int = Field(ge=1, le=100_000)
    """Maximum length of an answer; it ends earlier at end-of-text."""

    temperature: float = Field(gt=0.0)
    """Temperature of the sampled answer: below 1 more cautious, above 1 more daring. The greedy answer has none."""

    top_k: int = Field(ge=1)
    """The sampled answer draws each token from the `top_k` likeliest ones."""

    seed: int = Field(ge=0, le=2**32 - 1)
    """Seed of the sampled answer, the same at every epoch."""


class RawText(Section, extra="ignore"):
    """The section `data`, as evaluation reads it."""

    raw: str
    """A folder here may hold prompts."""


class EvaluateRuntime(Section, extra="ignore"):
    """The part of the section `runtime` that evaluation reads."""

    device: Literal["auto", "cpu", "cuda", "mps"]
    """The device on which the models run."""
