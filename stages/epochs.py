"""Show what each epoch was worth: the report of answers, and git refs by which DVC compares epochs.

A stage of its own because it writes outside its outputs: it must also run when `train` came out of the cache.
"""

from stages import paths
from tokenmill import stage
from tokenmill.evaluation.epoch_refs import write_epoch_refs
from tokenmill.evaluation.report import render
from tokenmill.evaluation.results import read_evaluation
from tokenmill.files import read_json, write_text
from tokenmill.params import PARAMS_FILE
from tokenmill.training.history import read_epochs, train_metrics

DATA = ("clean.json", "data.json", "tokenizer.json", "tokens.json")
"""The metrics of the data, which are the same at every epoch."""


def main() -> None:
    """metrics of all stages, history.csv, reports/evaluation.json -> reports/samples.md, refs/epoch-N."""
    data = {name: read_json(paths.METRICS / name) for name in DATA}
    parameters = read_json(paths.METRICS / "train.json")["parameters"]
    evaluation = read_evaluation(paths.EVALUATION)
    write_text(paths.SAMPLES, render(evaluation))
    epochs = [
        data | {"train.json": train_metrics(row, parameters=parameters), "eval.json": result.metrics()}
        for row, result in zip(read_epochs(paths.METRICS / "history.csv"), evaluation.epochs, strict=True)
    ]
    names = write_epoch_refs(epochs, PARAMS_FILE)
    print(f"answers: {paths.SAMPLES}")
    if len(names) > 1:
        print(f"compare epochs: dvc metrics diff {names[0]} {names[-1]}")


if __name__ == "__main__":
    stage.run(main)
