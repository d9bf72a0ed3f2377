"""nanoGPT, run from a checkout that the user has: nothing of it is in this project.

Its training script is run as it is, in a folder of its own; its model is imported for steps beside
TokenMill's.
"""

import importlib.util
import os
import pickle
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import nn

from bench.harness import READ_EVERY, Steps
from tokenmill.core.errors import UserError
from tokenmill.model.device import Compute

DATASET = "tokenmill_bench"
OUT = "out"


@dataclass(frozen=True)
class Recipe:
    """A size of model and run."""

    n_layer: int
    n_head: int
    n_embd: int
    context: int
    batch: int
    steps: int
    eval_iters: int

    @property
    def sizes(self) -> dict[str, int]:
        """What it calls as TokenMill does."""
        return {"n_layer": self.n_layer, "n_head": self.n_head, "n_embd": self.n_embd}

    @property
    def tokens(self) -> int:
        """The number of tokens that it sees."""
        return self.steps * self.batch * self.context


CPU = Recipe(4, 4, 128, 64, 12, 2000, 20)
"""Its published one for a CPU."""
GPU = Recipe(6, 6, 384, 256, 64, 5000, 200)
"""Its other published one, for a text of tens of MB."""
TINY = Recipe(1, 2, 16, 16, 4, 4, 1)
"""To see that a benchmark runs."""


def check(checkout: Path) -> None:
    """Refuse a folder that is not nanoGPT.

    Raises:
        UserError: a file is missing.
    """
    for name in ("train.py", "model.py", "configurator.py", "config/train_shakespeare_char.py"):
        if not (checkout / name).exists():
            raise UserError(
                f"--nanogpt {checkout} holds no {name}: give a checkout of "
                "github.com/karpathy/nanoGPT."
            )


def run_recipe(
    checkout: Path, recipe: Recipe, here: Path, *, train: np.ndarray, val: np.ndarray
) -> float:
    """Run its training script with its Tiny Shakespeare configuration and a recipe in `here`; give
    the seconds."""
    cuda = torch.cuda.is_available()
    options = recipe.sizes | {
        "device": "cuda" if cuda else "cpu",
        "compile": cuda,
        "eval_iters": recipe.eval_iters,
        "log_interval": 1,
        "block_size": recipe.context,
        "batch_size": recipe.batch,
        "max_iters": recipe.steps,
        "lr_decay_iters": recipe.steps,
        "dropout": 0.0,
        "eval_interval": min(250, recipe.steps),
        "always_save_checkpoint": True,
    }
    data = here / "data" / DATASET
    data.mkdir(parents=True)
    for name, ids in (("train", train), ("val", val)):
        ids.astype(np.uint16).tofile(data / f"{name}.bin")
    with (data / "meta.pkl").open("wb") as file:
        pickle.dump({"vocab_size": int(max(train.max(), val.max())) + 1}, file)
    for name in ("configurator.py", "config"):
        (here / name).symlink_to((checkout / name).resolve())
    began = time.perf_counter()
    done = subprocess.run(
        [
            sys.executable,
            str((checkout / "train.py").resolve()),
            "config/train_shakespeare_char.py",
            f"--dataset={DATASET}",
            f"--out_dir={OUT}",
            *(f"--{name}={value}" for name, value in options.items()),
        ],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise UserError(f"nanoGPT's train.py failed: {done.stderr.strip().splitlines()[-1]}")
    return seconds


def trained(checkout: Path, here: Path) -> nn.Module:
    """The model that `run_recipe` left in `here`."""
    saved = torch.load(here / OUT / "ckpt.pt", map_location="cpu", weights_only=True)
    module = _module(checkout)
    model = module.GPT(module.GPTConfig(**saved["model_args"]))
    model.load_state_dict(
        {name.removeprefix("_orig_mod."): value for name, value in saved["model"].items()}
    )
    return model.eval()


def steps_of(
    checkout: Path,
    compute: Compute,
    ids: np.ndarray,
    shape: dict[str, int],
    *,
    batch: int,
    biases: bool,
    compiled: bool,
) -> Steps:
    """Its model, optimizer and way of making batches, with the loss read as seldom as TokenMill
    reads it.

    With `biases` it is GPT-2, whose head is its embeddings; without, it is what nanoGPT's own
    recipes train.
    """
    module = _module(checkout)
    device = compute.device
    sizes = {name: size for name, size in shape.items() if name != "context_length"}
    length = shape["context_length"]
    config = module.GPTConfig(dropout=0.0, bias=biases, block_size=length, **sizes)
    raw = module.GPT(config).to(device)
    optimizer = raw.configure_optimizers(0.1, 1e-4, (0.9, 0.99), device.type)
    model = torch.compile(raw) if compiled else raw
    data = ids.astype(np.uint16)
    batch_of = partial(_batch_of, data, length=length, batch=batch, device=device)
    upcoming = [batch_of()]
    done = [0]

    def steps(count: int) -> None:
        for _ in range(count):
            inputs, targets = upcoming.pop()
            with compute.autocast():
                _, loss = model(inputs, targets)
            upcoming.append(batch_of())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done[0] += 1
            if done[0] % READ_EVERY == 0:
                loss.item()

    return steps


def _batch_of(
    data: np.ndarray, *, length: int, batch: int, device: torch.device
) -> list[torch.Tensor]:
    """Random inputs and their targets, as nanoGPT's train.py makes them."""
    starts = torch.randint(len(data) - length, (batch,)).tolist()
    pair = []
    for shift in (0, 1):
        rows = [data[start + shift : start + shift + length] for start in starts]
        pair.append(torch.stack([torch.from_numpy(row.astype(np.int64)) for row in rows]))
    if device.type == "cuda":
        return [ids.pin_memory().to(device, non_blocking=True) for ids in pair]
    return pair


def _module(checkout: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("nanogpt_model", checkout / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
