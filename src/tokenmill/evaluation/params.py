"""The section `evaluate` of params.yaml: the fixed prompts and how they are continued."""

from typing import Literal

from pydantic import Field, model_validator

from tokenmill.core.params import Section


class PromptParams(Section):
    """One prompt: `user` (a question, put into the conversation template) or `text` (continued as it stands)."""

    user: str | None = Field(default=None, min_length=1)
    """A user's message; the model writes the assistant's answer."""

    text: str | None = Field(default=None, min_length=1)
    """A beginning that the model continues as it stands."""

    expect: str | None = Field(default=None, min_length=1)
    """What a right answer contains; the report says whether it does."""

    @model_validator(mode="after")
    def _one_of_two(self) -> "PromptParams":
        if (self.user is None) == (self.text is None):
            raise ValueError("each entry of evaluate.prompts needs either `user` or `text`, and not both.")
        return self


class EvaluateParams(Section):
    """What the stage `evaluate` asks the model of each epoch, and how the model answers."""

    prompts: list[PromptParams]
    """The prompts, the same at every epoch; see `user`, `text` and `expect`."""

    max_new_tokens: int = Field(ge=1)
    """Maximum length of an answer; it ends earlier at end-of-text."""

    temperature: float = Field(gt=0.0)
    """Temperature of the sampled answer: below 1 more cautious, above 1 more daring. The greedy answer has none."""

    top_k: int = Field(ge=1)
    """The sampled answer draws each token from the `top_k` likeliest ones."""

    seed: int = Field(ge=0, le=2**32 - 1)
    """Seed of the sampled answer, the same at every epoch."""


class EvaluateRuntime(Section, extra="ignore"):
    """The part of the section `runtime` that evaluation reads."""

    device: Literal["auto", "cpu", "cuda", "mps"]
    """The device on which the models run."""
