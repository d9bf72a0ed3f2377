"""Stage `train`: train the model to `train.epochs`; continue if an earlier run was stopped or had
fewer epochs."""

from tokenmill.core import paths
from tokenmill.core.params import MixtureParams, Section, load
from tokenmill.training.job import training_job
from tokenmill.training.launch import launch_processes
from tokenmill.training.params import ModelSection, RuntimeParams, TrainSection
from tokenmill.training.run import run_job
from tokenmill.training.size import step_flops


class Params(Section):
    """The sections of params.yaml that this stage reads."""

    data: MixtureParams
    model: ModelSection
    train: TrainSection
    runtime: RuntimeParams


def main() -> None:
    """Write models/gpt and metrics/{train.json,history.csv,steps.csv} from data/tokens."""
    params = load(Params)
    job = training_job(
        params.model,
        params.train,
        paths.TOKENS,
        paths.TOKENIZER,
        start=params.model.start,
        mixture=params.data.mixture,
    )
    if not launch_processes(params.runtime, step_flops=step_flops(job.work)):
        run_job(
            job,
            runtime=params.runtime,
            output=paths.MODEL,
            metrics=paths.METRICS,
            live=paths.LIVE,
        )
