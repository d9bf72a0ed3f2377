"""Measure every epoch of a fine-tuned model as `evaluate` measures those of its base, and show both side by side."""

from pathlib import Path

from tokenmill.core import paths
from tokenmill.core.files import write_json, write_text
from tokenmill.core.params import Section, load
from tokenmill.evaluation.evaluate import evaluate
from tokenmill.evaluation.params import EvaluateParams, EvaluateRuntime, RawText
from tokenmill.evaluation.results import read_evaluation
from tokenmill.reports.answers import beside_base


class Params(Section):
    """What this stage reads of params.yaml."""

    data: RawText
    evaluate: EvaluateParams
    runtime: EvaluateRuntime


def main(name: str) -> None:
    """models/METHOD, data/tokens, reports/evaluation.json -> metrics/finetuned/METHOD/eval.json, reports/METHOD.md.

    `val_loss` in eval.json is that on the base's own text, so what was forgotten; metrics/finetuned/METHOD/train.json
    has the loss on held-out chats.
    """
    params = load(Params)
    evaluation = evaluate(
        models=paths.MODELS / name,
        tokens=paths.TOKENS,
        tokenizer_file=paths.TOKENIZER,
        raw=Path(params.data.raw),
        params=params.evaluate,
        device=params.runtime.device,
    )
    base, last = read_evaluation(paths.EVALUATION), evaluation.epochs[-1]
    write_text(paths.REPORTS / f"{name}.md", beside_base(base, evaluation))
    text = {"base_text_loss": last.val_loss, "base_text_loss_before": base.epochs[-1].val_loss}
    write_json(paths.FINETUNED_METRICS / name / "eval.json", evaluation.metrics(last) | text)
    print(f"base and fine-tuned side by side: {paths.REPORTS / f'{name}.md'}")
