"""Teach the newest epoch of the model to answer, by the method that the command line names."""

import os
from typing import get_args

from tokenmill.core import paths
from tokenmill.core.files import write_json
from tokenmill.core.params import Section, load
from tokenmill.data.params import CleanParams, DataParams
from tokenmill.executor import ExecutorParams, open_executor
from tokenmill.finetuning.params import FinetuneParams, Method
from tokenmill.finetuning.run import finetuning_job
from tokenmill.planning.plan import peak_flops
from tokenmill.training.history import EpochRow, StepRow, train_metrics, write_rows
from tokenmill.training.launch import launch_processes
from tokenmill.training.params import RuntimeParams
from tokenmill.training.run import run


class Runtime(RuntimeParams, ExecutorParams):
    """What training and cleaning read of the section `runtime`."""


class Params(Section):
    """What this stage reads of params.yaml."""

    data: DataParams
    clean: CleanParams
    finetune: FinetuneParams
    runtime: Runtime


def main(name: str) -> None:
    """models/gpt, finetune.data -> models/METHOD,
    metrics/finetuned/METHOD/{train.json,history.csv,steps.csv}.

    reports/METHOD_held_out.json has some of the held-out chats for `evaluate_finetuned`.
    """
    params = load(Params)
    methods: dict[str, Method] = {method: method for method in get_args(Method)}
    if not launch_processes(params.runtime):
        _finetune(methods[name], params)


def _finetune(method: Method, params: Params) -> None:
    """Train, as the only process or as one of several; the main process writes the results."""
    metrics = paths.FINETUNED_METRICS / method
    with open_executor(params.runtime, threads=os.cpu_count() or 1) as executor:
        job, chats = finetuning_job(
            method,
            params.finetune,
            clean_params=params.clean,
            encoding=params.data.encoding,
            executor=executor,
            runtime=params.runtime,
            models=paths.MODEL,
            tokens=paths.TOKENS,
            tokenizer_file=paths.TOKENIZER,
        )
    training = run(
        job,
        runtime=params.runtime,
        output=paths.MODELS / method,
        times=metrics,
        live=paths.LIVE,
        peak_flops=peak_flops,
    )
    if training is None:
        return
    write_rows(metrics / "history.csv", EpochRow, training.state.epochs)
    write_rows(metrics / "steps.csv", StepRow, training.state.steps)
    counts = {
        f"{name}_{key}": value
        for name, split in chats.items()
        for key, value in split.counts().items()
    }
    write_json(paths.REPORTS / f"{method}_held_out.json", {"chats": chats["val"].examples})
    last = training.state.epochs[-1]
    write_json(
        metrics / "train.json",
        train_metrics(last, parameters=training.manifest.parameters) | counts,
    )
