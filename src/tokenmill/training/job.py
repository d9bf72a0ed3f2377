"""What a run trains, on what, and from which weights: decided from parameters and hashes, before
anything is loaded."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.core.files import Unchanged, sha256_of
from tokenmill.core.paths import TOKENIZER
from tokenmill.formats.measured import measured_text
from tokenmill.formats.token_file import SPLITS, TokenMetadata, read_metadata, too_short
from tokenmill.formats.token_row import open_tokens, train_file
from tokenmill.model.config import ModelConfig, ModelParams
from tokenmill.model.device import Compute
from tokenmill.model.gpt import GPT, build, parameter_count
from tokenmill.model.huggingface import load_weights
from tokenmill.model.manifest import CONFIG, FORMAT, WEIGHTS, Manifest, TrainedWith, read_config
from tokenmill.model.sequences import Sequences, WholeText, place_tokens, sequences_anywhere
from tokenmill.training.distributed import Group
from tokenmill.training.identity import Identity, fingerprint, identity_of
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.schedule import Workload


@dataclass(frozen=True)
class Data:
    """What a run learns from and validates with, opened for a device."""

    train: Sequences
    val: Sequences
    """What is measured: every validation reads all of it."""
    val_bytes: int
    """UTF-8 bytes of the text in `val`."""
    place: str
    """Where the tokens are, as `place_tokens` names it."""
    mapped: Unchanged | None = None
    """The file that `train` is read from, where it is in no memory."""


@dataclass(frozen=True)
class Job:
    """What a run trains, on what, and from which weights."""

    work: Workload
    manifest: Manifest
    """The manifest written with the output; its fingerprint names the folder of the checkpoints."""
    identity: Identity
    """What decides the run's numbers; its fingerprint is that of the manifest."""
    start: Callable[[], GPT]
    """Gives the model before the first step, on the CPU."""
    origin: str
    """Where that model comes from: `scratch`, or the folder of its weights."""
    open: Callable[[Compute, Group, RuntimeParams], Data]
    """Opens the data for a device and a group of processes."""


def training_job(
    model: ModelParams,
    train: TrainParams,
    tokens: Path,
    tokenizer_file: Path,
    *,
    start: Path | None = None,
    mixture: dict[str, float] | None = None,
) -> Job:
    """Training on the folder `tokens`, which this tokenizer made, mixed by `mixture`, from random
    weights or from those in the folder `start`, which must fit the parameters and the tokens."""
    metadata = read_metadata(tokens)
    config = ModelConfig.of(model, metadata.vocab_size)
    if problem := too_short(metadata.train.tokens, config.context_length):
        raise UserError(problem)
    work = Workload.on(metadata, config, train, mixture)
    start_sha256 = _check_start(start, config, metadata) if start else None
    text = {name: metadata.split(name).sha256 for name in SPLITS}
    more: dict[str, object] = {"start": start_sha256} if start_sha256 else {}
    if work.stretches:  # the names of sources change nothing
        more["mixture"] = [(one.tokens, one.weight) for one in work.stretches]
    identity = identity_of(config, train, text, **more)
    return Job(
        work=work,
        manifest=manifest_of(
            work,
            identity,
            tokenizer_sha256=metadata.tokenizer_sha256,
            start_sha256=start_sha256,
            mixture=mixture,
        ),
        identity=identity,
        start=lambda: _first_model(config, train.seed, start),
        origin=f"the weights of {start}" if start else "scratch",
        open=functools.partial(_open_tokens, tokens, tokenizer_file, work),
    )


def manifest_of(work: Workload, identity: Identity, **origin: Any) -> Manifest:
    """The manifest of a run that goes to its last epoch, without the hashes of its weights;
    `origin` has the fields that say what it starts from and learns from."""
    return Manifest(
        format_version=FORMAT,
        fingerprint=fingerprint(identity),
        model=work.config,
        train=TrainedWith.model_validate(work.train.model_dump()),
        parameters=parameter_count(work.config),
        epochs=work.train.epochs,
        **origin,
    )


def _check_start(folder: Path, config: ModelConfig, tokens: TokenMetadata) -> str:
    """Refuse a model to start from that does not fit `config`, or whose tokenizer is not that of
    the tokens. Return the hash of its weights."""
    found = read_config(folder).model_copy(update={"dropout": config.dropout})
    if found != config:
        raise UserError(
            f"{folder / CONFIG} has other sizes than the model to train; `tokenmill params` names "
            "them."
        )
    file = folder / TOKENIZER.name
    for path in (folder / WEIGHTS, file):
        if not path.exists():
            raise UserError(f"{path} is missing; `dvc pull {folder}` fetches it.")
    tokens.check_tokenizer(sha256_of(file), str(file))
    return sha256_of(folder / WEIGHTS)


def _first_model(config: ModelConfig, seed: int, start: Path | None) -> GPT:
    """The model before the first step: random, or with the weights in a folder."""
    model = build(config, seed=seed)
    if start:
        load_weights(model, start)
    return model


def _open_tokens(  # noqa: PLR0917 (the last three are those of `Job.open`)
    tokens: Path,
    tokenizer_file: Path,
    work: Workload,
    compute: Compute,
    group: Group,
    runtime: RuntimeParams,
) -> Data:
    file = Unchanged(train_file(tokens))  # before its hash is compared
    train_ids, place = place_tokens(
        open_tokens(tokens, "train"),
        runtime.token_placement,
        compute.device,
        processes=group.on_this_machine,
    )
    file.check()  # it was read twice: compared, then placed
    measured = measured_text(tokens, "val", tokenizer_file, at_most=work.train.validation_bytes)
    cut = {"context_length": work.config.context_length, "device": compute.device}
    return Data(
        train=sequences_anywhere(train_ids, **cut),
        val=WholeText(measured.ids, **cut),
        val_bytes=measured.bytes,
        place=place,
        mapped=file if place in {"mmap", "compressed"} else None,
    )
