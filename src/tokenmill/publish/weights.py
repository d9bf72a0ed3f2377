"""The weights of a model as `page/model.js` reads them: one row of bytes, and each tensor's place.

Matrices are stored as int8 with a scale for each row, as float16, or as they are, in float32; norms
and biases as float32.
Numbers are little-endian.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
from torch import Tensor

from tokenmill.core.errors import UserError
from tokenmill.formats.tokenizer import TextTokenizer
from tokenmill.model.config import Architecture
from tokenmill.model.gpt import GPT
from tokenmill.model.gpt2 import GPT2
from tokenmill.model.modern import LOGIT_CAP, ROPE_BASE
from tokenmill.model.ngrams import MULTIPLIER
from tokenmill.model.ops import NORM_EPS
from tokenmill.publish.parts import PackedEpoch, tokenizer_name

Precision = Literal["int8", "float16", "float32"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

KNOWN: tuple[Architecture, ...] = ("gpt2", "modern", "speedrun")
"""The architectures whose forward pass `page/model.js` has."""
LARGEST_INT8 = 127
ALIGNED = 4
"""Each array begins at a multiple of so many bytes, as JavaScript's typed arrays need it."""


def pack(model: GPT, tokenizer: TextTokenizer, *, epoch: int, precision: Precision) -> PackedEpoch:
    """The weights of an epoch, whose number is 0 for a model that is no run.

    The name holds their hash, so that no browser takes a part of another model from its cache.
    """
    about, data = packed(model, precision)
    return PackedEpoch(
        name=f"epoch-{epoch}-{hashlib.sha256(data).hexdigest()[:12]}",
        data=data,
        about=about,
        tokenizer=tokenizer_name(tokenizer.sha256),
    )


def constants_of(model: GPT) -> dict[str, float]:
    """The numbers that no configuration holds; each architecture reads its own.

    Raises:
        UserError: `page/model.js` does not know the architecture.
    """
    if model.config.architecture not in KNOWN:
        raise UserError(
            f"model.architecture ({model.config.architecture}) is unknown to the page, which has "
            f"{', '.join(KNOWN)}; `tokenmill generate` lets it write."
        )
    return {
        "norm_eps": model.norm.eps if isinstance(model, GPT2) else NORM_EPS,
        "rope_base": ROPE_BASE,
        "logit_cap": LOGIT_CAP,
        "attention_scale": model.config.attention_scale,
        "multiplier": MULTIPLIER,
    }


def packed(model: GPT, precision: Precision) -> tuple[dict[str, Any], bytes]:
    """What `page/model.js` needs to know to read a model (configuration, constants, and the place
    of every tensor, the same for all epochs of a run), and the bytes of all tensors.

    Raises:
        UserError: `page/model.js` does not know the architecture, or a weight is not finite, or too
            large for float16.
    """
    about = {"config": model.config.model_dump(), "constants": constants_of(model)}
    tensors = []
    data = bytearray()
    for name, parameter in _parameters(model):
        kind = precision if parameter.ndim == 2 else "float32"
        places = []
        for array in _stored(parameter.detach().float().cpu().numpy(), kind):
            if not np.isfinite(array).all():
                raise UserError(
                    f"{name} has a weight that {precision} cannot hold; publish another epoch."
                )
            places.append(len(data))
            data += array.tobytes()
            data += bytes(-len(data) % ALIGNED)
        tensor = {"name": name, "shape": list(parameter.shape), "kind": kind, "at": places[-1]}
        if kind == "int8":
            tensor["scales_at"] = places[0]
        tensors.append(tensor)
    return about | {"tensors": tensors, "bytes": len(data)}, bytes(data)


def _parameters(model: GPT) -> Iterator[tuple[str, Tensor]]:
    """The parameters by name; one for queries, keys and values together as three."""
    for name, parameter in model.named_parameters():
        if ".qkv." not in name:
            yield name, parameter
            continue
        for letter, part in zip("qkv", parameter.chunk(3), strict=True):
            yield name.replace(".qkv.", f".{letter}."), part


def _stored(tensor: np.ndarray, kind: Precision) -> Sequence[np.ndarray]:
    """A tensor as float32 or float16; or a matrix (R, C) as its scales (R) and int8. Where a weight
    is not finite, one of these is not."""
    if kind == "float32":
        return [tensor.astype("<f4")]
    with np.errstate(over="ignore", invalid="ignore"):
        if kind == "float16":
            return [tensor.astype("<f2")]
        scales = np.maximum(tensor.max(axis=1), -tensor.min(axis=1)) / LARGEST_INT8
        steps = tensor / np.where(scales > 0, scales, 1)[:, None]
        return [scales.astype("<f4"), np.rint(steps, out=steps).astype("i1")]
