"""Write the git refs epoch-1 ... epoch-N, so that DVC can compare epochs.

A stage of its own, without outputs, so that it also runs when `train` came out of the cache.
"""

from stages import paths
from tokenmill import stage
from tokenmill.evaluation.epoch_refs import write_epoch_refs
from tokenmill.files import read_json
from tokenmill.params import PARAMS_FILE
from tokenmill.training.history import read_epochs, train_metrics


def main() -> None:
    """metrics/{history.csv,train.json}, reports/evaluation.json -> refs/epoch-N."""
    parameters = read_json(paths.METRICS / "train.json")["parameters"]
    measured = read_json(paths.REPORTS / "evaluation.json")["epochs"]
    epochs = [
        {"train.json": train_metrics(row, parameters=parameters), "eval.json": result["metrics"]}
        for row, result in zip(read_epochs(paths.METRICS / "history.csv"), measured, strict=True)
    ]
    names = write_epoch_refs(epochs, PARAMS_FILE)
    last = names[-1] if names else ""
    print(f"compare epochs with: dvc metrics diff epoch-1 {last}" if names else "no git repository: no refs for epochs")


if __name__ == "__main__":
    stage.run(main)
