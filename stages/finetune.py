"""Stage `finetune`: teach the newest epoch of the model to answer, by the method that params.yaml
names."""

import os

from tokenmill.core import paths
from tokenmill.core.files import write_json
from tokenmill.core.params import Section, load
from tokenmill.data.params import CleanParams, DataParams
from tokenmill.display import note
from tokenmill.finetuning.params import FinetuneParams
from tokenmill.finetuning.run import clean_chats, finetuning_job
from tokenmill.formats.records import rounded
from tokenmill.training.launch import launch_processes
from tokenmill.training.params import RuntimeParams
from tokenmill.training.run import run_job
from tokenmill.training.size import step_flops
from tokenmill.words.warnings import left_out_of_chats


class Params(Section):
    """The sections of params.yaml that this stage reads."""

    data: DataParams
    clean: CleanParams
    finetune: FinetuneParams
    runtime: RuntimeParams


def main() -> None:
    """Write models/finetuned and metrics/finetuned/{train.json,history.csv,steps.csv}.

    reports/finetuned_held_out.json gets some of the held-out chats, for `evaluate_finetuned`.
    """
    params = load(Params)
    with clean_chats(params.finetune, params.clean, encoding=params.data.encoding) as folder:
        job, chats = finetuning_job(
            params.finetune,
            chats_folder=folder,
            runtime=params.runtime,
            models=paths.MODEL,
            tokens=paths.TOKENS,
            tokenizer_file=paths.TOKENIZER,
        )
        if launch_processes(params.runtime, step_flops=step_flops(job.work)):
            return
        left_out = {
            "left_out": sum(split.left_out for split in chats.values()),
            "texts": sum(split.left_out + split.chats for split in chats.values()),
            "context_length": job.manifest.model.context_length,
        }
        if os.environ.get("RANK", "0") == "0":  # of several processes one says it
            note(left_out_of_chats(**left_out))
        counts = {name: split.counts() for name, split in chats.items()}
        finished = run_job(
            job,
            runtime=params.runtime,
            output=paths.FINETUNED,
            metrics=paths.FINETUNED_METRICS,
            live=paths.LIVE,
            counts={f"{name}_{key}": n for name, own in counts.items() for key, n in own.items()},
        )
        if finished:  # else another process writes the results
            fits = {"bytes_per_token": rounded(chats["train"].bytes_per_token)}
            write_json(paths.HELD_OUT, {"chats": chats["val"].examples} | fits | left_out)
