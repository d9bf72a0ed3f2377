"""What a model answers to the questions of chats that its fine-tuning never saw, beside what its base answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from tokenmill.core.params import Section
from tokenmill.core.tokenizer import read_tokenizer
from tokenmill.evaluation.evaluate import answer
from tokenmill.evaluation.params import EvaluateParams
from tokenmill.evaluation.prompts import MOST_OPENINGS, first_questions, prepare
from tokenmill.evaluation.results import Answer, Question
from tokenmill.model.device import DeviceName, choose_compute, configure_process
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import read_manifest


class HeldOut(Section):
    """What the stage `finetune` leaves to ask about."""

    chats: list[str] = Field(max_length=MOST_OPENINGS)


@dataclass(frozen=True)
class HeldOutAnswers:
    """A held-out chat's first question, with the chat's own answer as its truth, and two models' answers to it."""

    question: Question
    before: Answer
    after: Answer


def ask_held_out(
    chats: Sequence[str], *, base: Path, tuned: Path, tokenizer_file: Path, params: EvaluateParams, device: DeviceName
) -> list[HeldOutAnswers]:
    """Ask the newest epochs of two folders of models the first question of each chat.

    Raises:
        UserError: a model is missing, damaged, or has another tokenizer.
    """
    tokenizer = read_tokenizer(tokenizer_file)
    manifests = {models: read_manifest(models) for models in (base, tuned)}
    for manifest in manifests.values():
        manifest.check_tokenizer(tokenizer.sha256, str(tokenizer_file))
    context_length = manifests[tuned].model.context_length
    questions = first_questions(chats, tokenizer, context_length=context_length, max_new_tokens=params.max_new_tokens)
    prompts = prepare(questions, tokenizer, context_length=context_length)

    def answers(models: Path) -> list[Answer]:
        compute = choose_compute(device, manifests[models].train.precision)
        configure_process(compute)
        model = load_model(models / f"epoch-{manifests[models].epochs}", str(compute.device))
        return [answer(model, tokenizer, prompt, params) for prompt in prompts]

    both = zip(prompts, answers(base), answers(tuned), strict=True)
    return [HeldOutAnswers(prompt.question, before, after) for prompt, before, after in both]
