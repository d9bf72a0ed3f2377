"""Fine-tuning as a job for `training.run`: the chats from disk, and the model to start from."""

import contextlib
import hashlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.paths import way_out
from tokenmill.data.clean import clean
from tokenmill.data.params import CleanParams
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.finetuning.chats import ChatSplit, read_chats
from tokenmill.finetuning.params import FinetuneParams
from tokenmill.formats.measured import evenly_spread
from tokenmill.formats.records import checked
from tokenmill.formats.token_file import read_metadata
from tokenmill.formats.token_row import open_tokens
from tokenmill.formats.tokenizer import read_tokenizer
from tokenmill.model.huggingface import load_model
from tokenmill.model.manifest import MANIFEST, Manifest, Tuned, read_manifest
from tokenmill.model.sequences import PackedTexts
from tokenmill.temporary import temporary_folder
from tokenmill.training.identity import identity_of
from tokenmill.training.job import Data, Job, manifest_of
from tokenmill.training.lora import adapt, trained_parameters
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.schedule import Workload

CHATS = "TOKENMILL_CHATS"
"""The environment variable that tells the processes of one training the folder of the clean chats.
A process that is not one of several cleans for itself."""


def finetuning_job(
    params: FinetuneParams,
    *,
    chats_folder: Path,
    runtime: RuntimeParams,
    models: Path,
    tokens: Path,
    tokenizer_file: Path,
) -> tuple[Job, dict[str, ChatSplit]]:
    """Prepare the fine-tuning of the newest epoch of `models` to `finetune.epochs`. Return the job,
    and the chats that it learns from.

    Args:
        chats_folder: the chats, as `clean_chats` yields them.
        tokens: the base model's own text, of which `finetune.base_fraction` takes some.
    """
    params.refuse_sharding(runtime)
    base = read_manifest(models)
    tokenizer = read_tokenizer(tokenizer_file)
    base.check_tokenizer(tokenizer.sha256, str(tokenizer_file))
    chats = read_chats(
        chats_folder,
        tokenizer,
        context_length=base.model.context_length,
        held_out=params.val_fraction,
    )
    kept = base.train.model_dump()
    trained = checked(kept, TrainParams, source=models / MANIFEST, way_out=way_out(models))
    rows = with_base_text(chats["train"].layers, base, trained, tokens, params.base_fraction)
    train = params.as_training(trained, base.model, sequences=len(rows))
    tuned = Tuned(
        lora=params.lora if params.method == "lora" else None,
        data=Path(str(params.data)).name,
        chats=chats["train"].chats,
    )
    return tuning_job(models, base, train, rows, chats["val"], tuned=tuned), chats


@contextlib.contextmanager
def clean_chats(
    params: FinetuneParams, clean_params: CleanParams, *, encoding: str
) -> Iterator[Path]:
    """Clean the chats of `finetune.data` as the base's text was cleaned, on this machine. Yield a
    folder of shards that exists as long as the block.

    They are cleaned once for all processes that the block starts; these find the folder in their
    environment. Processes that torchrun starts clean for themselves.
    """
    if "RANK" in os.environ and CHATS in os.environ:
        yield Path(os.environ[CHATS])
        return
    with temporary_folder() as outer:
        folder = outer / "clean"
        with ThreadExecutor() as executor:
            clean(
                raw=Path(str(params.data)),
                out=folder,
                params=clean_params,
                encoding=encoding,
                parameter="finetune.data",
                executor=executor,
            )
        os.environ[CHATS] = str(folder)
        try:
            yield folder
        finally:
            del os.environ[CHATS]


def with_base_text(
    layers: np.ndarray, base: Manifest, trained: TrainParams, tokens: Path, fraction: float
) -> np.ndarray:
    """Sequences of chats (N, L, T), followed by evenly spread ones of the first epoch of the base's
    training, which are `fraction` of all.

    Args:
        base: the manifest of the base model.
        trained: what it was trained with.

    Raises:
        UserError: that epoch has too few.
    """
    chats, _, context_length = layers.shape
    wanted = round(chats * fraction / (1 - fraction))
    if not wanted:
        return layers
    work = Workload.on(read_metadata(tokens), base.model, trained, base.mixture)
    starts = np.sort(work.order_of(0))
    if wanted > len(starts):
        most = math.floor(1000 * len(starts) / (chats + len(starts))) / 1000
        raise UserError(
            f"finetune.base_fraction ({fraction:g}) needs {wanted:,} sequences of the base's text "
            f"beside {chats:,} of chats, and an epoch of its training had {len(starts):,}; set it "
            f"to at most {most:g}."
        )
    ids = open_tokens(tokens, "train")
    chosen = starts[evenly_spread(len(starts), wanted)]
    windows = np.stack([ids[start : start + context_length + 1] for start in chosen])
    rows = np.stack([windows[:, :-1], windows[:, 1:], np.zeros_like(windows[:, 1:])], axis=1)
    return np.concatenate([layers, rows.astype(np.int32)])


def tuning_job(
    models: Path,
    base: Manifest,
    train: TrainParams,
    rows: np.ndarray,
    val: ChatSplit,
    *,
    tuned: Tuned,
) -> Job:
    """Prepare the training of the newest epoch in the folder `models`, whose manifest is `base`, on
    the sequences `rows`, of all its weights or by LoRA, as `tuned` says."""
    lora = tuned.lora
    config, start_sha256 = base.model, base.weights[-1]
    newest = models / f"epoch-{base.epochs}"
    origin = str(newest)
    method: dict[str, object] = {"method": "full"}
    learning = None
    if lora:
        method = {"method": "lora", "lora": lora.model_dump()}
        try:
            learning = trained_parameters(config, lora)
        except ValueError as error:
            raise UserError(str(error)) from None
        origin += f" with LoRA: {learning:,} parameters learn, {base.parameters:,} stay"
    text = {"train": _sha256(rows), "val": _sha256(val.layers)}
    identity = identity_of(config, train, text, start=start_sha256, **method)
    tokens = len(rows) * config.context_length + 1
    work = Workload(config, train, tokens, whole_texts=True, learning=learning)
    return Job(
        work=work,
        manifest=manifest_of(
            work,
            identity,
            tokenizer_sha256=base.tokenizer_sha256,
            start_sha256=start_sha256,
            tuned=tuned,
        ),
        identity=identity,
        start=lambda: (
            adapt(load_model(newest), lora, seed=train.seed) if lora else load_model(newest)
        ),
        origin=origin,
        open=lambda compute, *_: Data(
            train=PackedTexts(rows, device=compute.device),
            val=PackedTexts(val.layers, device=compute.device),
            val_bytes=val.answer_bytes,
            place="memory",
        ),
    )


def _sha256(layers: np.ndarray) -> str:
    return hashlib.sha256(layers.tobytes()).hexdigest()
