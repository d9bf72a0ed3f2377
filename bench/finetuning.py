"""Fine-tuning beside TRL's SFTTrainer with PEFT: `python -m bench.finetuning --chats FILE`.

The same chats, of the same tokens with the same answers; one GPT-2 with random weights in the
folder that transformers loads; the same rank, rate, schedule and threads, in float32 on the CPU.
All weights learn, then LoRA on every map. TRL pads, with as many chats in a batch as hold the same
number of tokens on average, or packs by its own `bfd`. Every job has a process of its own, in
turns; figures are medians. TokenMill's time is that of the whole run, with validation, checkpoints
and output, TRL's that of `train()`, which does none of this. The loss on held-out chats shows that
all learn alike. Without trl and peft TokenMill runs alone.
"""

import argparse
import contextlib
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.harness import section
from bench.machine import peak_bytes
from bench.program import RowFile, command_line
from tokenmill.core.files import sha256_of, write_json
from tokenmill.data.clean import clean
from tokenmill.data.params import CleanParams
from tokenmill.executors.threads import ThreadExecutor
from tokenmill.finetuning.chats import ChatSplit, read_chats
from tokenmill.finetuning.params import FinetuneParams, Method
from tokenmill.finetuning.run import tuning_job
from tokenmill.formats.tokenizer import END_OF_TEXT, TextTokenizer, read_tokenizer, token_bytes
from tokenmill.model.config import ModelConfig
from tokenmill.model.device import choose_compute
from tokenmill.model.gpt import GPT, build, parameter_count
from tokenmill.model.huggingface import load_model, load_weights, save_weights
from tokenmill.model.manifest import FORMAT, MANIFEST, Manifest, TrainedWith, Tuned, read_manifest
from tokenmill.model.ops import IGNORED
from tokenmill.model.sequences import PackedTexts, mean_loss
from tokenmill.stage import report_errors
from tokenmill.tokens.params import TokenizerParams
from tokenmill.tokens.train_tokenizer import train_tokenizer
from tokenmill.training.params import RuntimeParams, TrainParams
from tokenmill.training.run import run_job

METHODS: tuple[Method, ...] = ("full", "lora")

HOW = ("TokenMill", "TRL, padded", "TRL, packed")

VALIDATION = 32
"""Held-out sequences, at most."""

Row = dict[str, Any]


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("--chats", type=Path, required=True, help="a file or folder of chats")
    parser.add_argument(
        "--sequences", type=int, default=240, help="packed sequences to learn from (default 240)"
    )
    parser.add_argument("--width", type=int, default=256, help="n_embd (default 256)")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=256, help="context_length (default 256)")
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(options.threads),
        "TOKENIZERS_PARALLELISM": "false",
    }
    with tempfile.TemporaryDirectory() as name:
        report_errors(lambda: compare(options, Path(name), RowFile(options.json)))


def compare(options: argparse.Namespace, folder: Path, file: RowFile) -> None:
    """A line for each method and contender."""
    chats = prepare(options, folder)
    there = all(importlib.util.find_spec(name) for name in ("trl", "peft"))
    contenders = HOW if there else HOW[:1]
    model = read_manifest(folder / "models")
    print(
        f"gpt2, {model.parameters:,} parameters, {options.threads} threads, {chats:,} tokens of "
        "chats an epoch"
    )
    print(
        f"{'method':8}{'':14}{'s an epoch':>12}{'tokens/s':>10}"
        f"{'peak MiB':>10}{'loss':>8}{'faster':>8}"
    )
    for method in METHODS:
        turns: dict[str, list[Row]] = {how: [] for how in contenders}
        for turn in range(options.rounds):
            for how in contenders:
                turns[how].append(_in_a_process(partial(work, how, method, folder, turn)))
        for how, rows in turns.items():
            seconds = [row["seconds"] for row in rows]
            first = [row["seconds"] for row in turns["TokenMill"]]
            row = {
                "method": method,
                "how": how,
                "seconds": statistics.median(seconds),
                "tokens_per_second": chats / statistics.median(seconds),
                "peak_mib": statistics.median(row["peak_mib"] for row in rows),
                "val_loss": rows[0]["val_loss"],
                "tokenmill_faster": statistics.median(
                    b / a for a, b in zip(first, seconds, strict=True)
                ),
            }
            file.add(row)
            print(
                f"{method:8}{how:14}{row['seconds']:>12.1f}{row['tokens_per_second']:>10,.0f}"
                f"{row['peak_mib']:>10,.0f}{row['val_loss']:>8.3f}"
                f"{row['tokenmill_faster']:>7.2f}x",
                flush=True,
            )


def _in_a_process(job: partial[Row]) -> Row:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(job).result()


def prepare(options: argparse.Namespace, folder: Path) -> int:
    """Write chats, tokenizer and base into `folder`; return the tokens that an epoch of chats
    has."""
    whole = folder / "whole"
    params = CleanParams.model_validate(section("clean"))
    clean(
        raw=options.chats,
        out=whole,
        params=params,
        encoding="auto",
        executor=ThreadExecutor(threads=1),
    )
    tokenizer = folder / "tokenizer.json"
    train_tokenizer(
        whole,
        tokenizer,
        TokenizerParams(type="bpe", vocab_size=options.vocabulary, sample_bytes=10_000_000),
    )
    found = read_chats(
        whole, read_tokenizer(tokenizer), context_length=options.context, held_out=0.05
    )
    chosen = np.random.default_rng(0).permutation(len(found["train"].layers))[: options.sequences]
    np.save(folder / "train.npy", found["train"].layers[chosen])
    np.save(folder / "val.npy", found["val"].layers[:VALIDATION])
    sizes = {
        "n_layer": options.layers,
        "n_head": max(1, options.width // 64),
        "n_embd": options.width,
        "dropout": 0.0,
    }
    sizes |= {
        "architecture": "gpt2",
        "context_length": options.context,
        "vocab_size": options.vocabulary,
    }
    config = ModelConfig.model_validate(sizes)
    save_weights(build(config, seed=0), folder / "models/epoch-1")
    train = section("train", precision="float32", optimizer="adamw", learning_rate=1e-3)
    manifest = Manifest(
        format_version=FORMAT,
        fingerprint="bench",
        model=config,
        train=TrainedWith.model_validate(train),
        parameters=parameter_count(config),
        epochs=1,
        weights=[sha256_of(folder / "models/epoch-1/model.safetensors")],
        tokenizer_sha256=sha256_of(tokenizer),
    )
    write_json(folder / "models" / MANIFEST, manifest.model_dump())
    return sum(len(ids) for ids, _ in texts_of(np.load(folder / "train.npy")))


def texts_of(layers: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The chats in packed sequences, each as its ids and the target behind each of them."""
    found = []
    for inputs, targets, starts in layers:
        for start in np.unique(starts):
            here = starts == start
            if (targets[here] != IGNORED).any():
                found.append((inputs[here], targets[here]))
    return found


def answer_bytes(layers: np.ndarray, tokenizer: TextTokenizer) -> int:
    """The UTF-8 bytes of the answers in packed sequences, without the ends of turns."""
    targets = layers[:, 1]
    spelled = token_bytes(tokenizer)
    return sum(len(spelled[target]) for target in targets[targets != IGNORED])


def work(how: str, method: Method, folder: Path, turn: int) -> Row:
    """One epoch, in this process."""
    own = folder / f"{method}-{turn}"
    own.mkdir(exist_ok=True)
    os.chdir(own)
    params = FinetuneParams.model_validate(
        section("finetune", methods=[method], data=str(folder), epochs=1)
    )
    base = read_manifest(folder / "models")
    train = params.as_training(
        TrainParams.model_validate(base.train.model_dump()),
        base.model,
        sequences=len(np.load(folder / "train.npy", mmap_mode="r")),
    )
    learn = _tokenmill if how == "TokenMill" else partial(_trl, packing=how.endswith("packed"))
    with contextlib.redirect_stdout(sys.stderr):
        model, seconds = learn(method, params, train, folder)
    peak = peak_bytes() / 2**20
    val = PackedTexts(np.load(folder / "val.npy"), device=torch.device("cpu"))
    compute = choose_compute("cpu", "float32")
    loss = mean_loss(model, val, np.arange(val.count), micro_batch=4, compute=compute)
    return {"seconds": seconds, "peak_mib": peak, "val_loss": loss}


def _tokenmill(
    method: Method, params: FinetuneParams, train: TrainParams, folder: Path
) -> tuple[GPT, float]:
    """The whole run of the stage, chats aside: validation, checkpoints and output are part of the
    seconds."""
    base = read_manifest(folder / "models")
    rows = np.load(folder / "train.npy")
    val = np.load(folder / "val.npy")
    split = ChatSplit(
        val,
        chats=0,
        cut=0,
        left_out=0,
        answer_tokens=int((val[:, 1] != IGNORED).sum()),
        answer_bytes=answer_bytes(val, read_tokenizer(folder / "tokenizer.json")),
        bytes_per_token=1.0,
        examples=[],
    )
    job = tuning_job(
        folder / "models",
        base,
        train,
        rows,
        split,
        tuned=Tuned(lora=params.lora if method == "lora" else None, data="chats", chats=len(rows)),
    )
    with tempfile.TemporaryDirectory() as name:
        output = Path(name, "model")
        began = time.perf_counter()
        run_job(
            job,
            runtime=RuntimeParams.model_validate(section("runtime", device="cpu")),
            output=output,
            metrics=output,
        )
        seconds = time.perf_counter() - began
        return load_model(output / "epoch-1"), seconds


def _trl(
    method: Method, params: FinetuneParams, train: TrainParams, folder: Path, *, packing: bool
) -> tuple[GPT, float]:
    """The same with SFTTrainer."""
    # Only this contender needs them
    from datasets import Dataset  # type: ignore[import-not-found]  # noqa: PLC0415
    from peft import LoraConfig, TaskType  # noqa: PLC0415
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM  # noqa: PLC0415
    from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast  # noqa: PLC0415
    from trl import SFTTrainer  # type: ignore[import-not-found]  # noqa: PLC0415

    base = read_manifest(folder / "models")
    rows = np.load(folder / "train.npy")
    texts = texts_of(rows)
    context = rows.shape[2]
    tokens = sum(len(ids) for ids, _ in texts)
    batch = (
        params.batch_size if packing else round(params.batch_size * context * len(texts) / tokens)
    )
    steps = -(-(len(rows) if packing else len(texts)) // batch)
    chats = [_labelled(ids, targets, at_most=context) for ids, targets in texts]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token=END_OF_TEXT
    )
    tokenizer.pad_token = tokenizer.eos_token
    lora = LoraConfig(
        r=params.lora.rank,
        lora_alpha=int(params.lora.alpha),
        target_modules=["c_attn", "c_proj", "c_fc"],
        fan_in_fan_out=True,
        task_type=TaskType.CAUSAL_LM,
    )
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder / f"models/epoch-{base.epochs}"),
        args=_sft_config(
            train,
            folder,
            steps=steps,
            per_device_train_batch_size=batch,
            max_length=context,
            packing=packing,
        ),
        train_dataset=Dataset.from_list(chats),
        processing_class=tokenizer,
        peft_config=lora if method == "lora" else None,
    )
    began = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - began
    return _merged(trainer.model, build(base.model, seed=0)), seconds


def _merged(learned: Any, model: GPT) -> GPT:
    """TokenMill's `model` with the weights that `transformers` or PEFT learned."""
    from peft import PeftModel  # noqa: PLC0415

    merged = learned.merge_and_unload() if isinstance(learned, PeftModel) else learned
    with tempfile.TemporaryDirectory() as name:
        merged.save_pretrained(name)
        load_weights(model, Path(name))
    return model.eval()


def _sft_config(train: TrainParams, folder: Path, *, steps: int, **more: Any) -> Any:
    """SFTTrainer's parameters for the same training in so many steps."""
    from trl import SFTConfig  # type: ignore[import-not-found]  # noqa: PLC0415

    return SFTConfig(
        output_dir=str(folder / "trl"),
        use_cpu=True,
        bf16=False,
        num_train_epochs=1,
        learning_rate=train.peak,
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={"num_decay_steps": steps // 2, "min_lr_ratio": 0.0},
        warmup_steps=train.schedule.warmup_steps,
        weight_decay=0.0,
        adam_beta2=train.beta2,
        max_grad_norm=train.gradient_clip,
        gradient_checkpointing=False,
        packing_strategy="bfd",
        save_strategy="no",
        logging_steps=train.log_every_steps,
        report_to="none",
        disable_tqdm=True,
        seed=0,
        **more,
    )


def _labelled(ids: np.ndarray, targets: np.ndarray, *, at_most: int) -> dict[str, list[int]]:
    """A chat as transformers has it: with its last target, labels not shifted, and -100 where
    nothing counts."""
    whole = np.append(ids, max(targets[-1], 0))[:at_most]
    labels = np.concatenate([[IGNORED], targets])[:at_most]
    return {
        "input_ids": whole.tolist(),
        "labels": np.where(labels == IGNORED, -100, labels).tolist(),
    }


if __name__ == "__main__":
    main()
