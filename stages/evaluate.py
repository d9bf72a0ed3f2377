"""Measure every epoch: losses on fixed windows, answers to fixed prompts."""

from stages import paths
from tokenmill import stage
from tokenmill.evaluation.evaluate import evaluate
from tokenmill.evaluation.params import EvaluateParams
from tokenmill.evaluation.report import render
from tokenmill.files import write_json, write_text
from tokenmill.params import Section, load
from tokenmill.training.params import RuntimeParams


class Params(Section):
    """What this stage reads of params.yaml."""

    evaluate: EvaluateParams
    runtime: RuntimeParams


def main() -> None:
    """models/gpt, data/tokens, tokenizer.json -> metrics/eval.json, reports/{samples.md,evaluation.json}."""
    params = load(Params)
    evaluation = evaluate(
        models=paths.MODEL,
        tokens=paths.TOKENS,
        tokenizer_file=paths.TOKENIZER,
        params=params.evaluate,
        runtime=params.runtime,
    )
    write_json(paths.REPORTS / "evaluation.json", evaluation.as_json())
    write_text(paths.REPORTS / "samples.md", render(evaluation))
    write_json(paths.METRICS / "eval.json", evaluation.epochs[-1].metrics())
    print(f"evaluated {len(evaluation.epochs)} epochs; see {paths.REPORTS / 'samples.md'}")


if __name__ == "__main__":
    stage.run(main)
